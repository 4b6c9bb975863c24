//! Reads the settings of the running kubelets, from their command lines and the files that these name.

use std::{
    cell::RefCell,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{
    as_process::{enter, words},
    only_roots::OnlyRoots,
};
use crate::identity::{
    kubelet::Settings,
    on_host,
    roots::USUAL,
    runtimes::running_daemons,
    trust::{Belief, Standing},
};
use podstuck_confine::helper::{NotEntered, Question, Teller, ask_in_parts};
use podstuck_confine::role::Role;
use podstuck_model::{path::safe_path, query::NoAnswer};

/// Drop-ins that are read.
const DROP_INS: usize = 256;

/// After so long no more kubelets are asked before the run that are no services: there may be many.
const SHARE: Duration = Duration::from_secs(4);

/// A kubelet that runs.
#[derive(Clone, Debug)]
pub struct Kubelet {
    /// Its process id.
    pub pid: u32,
    /// How far it is believed.
    pub standing: Standing,
    /// Its settings.
    pub settings: Settings,
    /// The settings that could not be read, with the reasons.
    pub unread: Vec<String>,
}

impl Kubelet {
    /// Where its pods are, as it sees it.
    pub fn root(&self) -> &Path {
        self.settings.root.as_deref().unwrap_or(Path::new(USUAL))
    }
}

/// The kubelets of the node, those first that are believed more; of those roots only, if any are given. And the process
/// ids of those that did not answer at all: they take two seconds each, and those that are no services a few in all.
pub fn running(host_root: &Path, roots: &[PathBuf]) -> (Vec<Kubelet>, Vec<u32>) {
    let (mut answered, mut silent, begun) = (Vec::new(), Vec::new(), Instant::now());
    let mut daemons = running_daemons(&on_host(host_root, "/proc".as_ref()));
    for pid in daemons.kubelets {
        let Some(standing) = daemons.standings.remove(&pid) else { continue };
        if standing.belief == Belief::Administrator && begun.elapsed() > SHARE {
            silent.push(pid);
            continue;
        }
        match settings(host_root, pid) {
            (Some(settings), unread) => {
                answered.push(Kubelet { pid, standing, settings, unread });
            }
            (None, _) => silent.push(pid),
        }
    }
    answered
        .retain(|kubelet| roots.is_empty() || roots.iter().any(|wanted| wanted == kubelet.root()));
    (answered, silent)
}

/// The settings of a kubelet that could be read, and what could not be read.
pub(in crate::state) fn settings(host_root: &Path, pid: u32) -> (Option<Settings>, Vec<String>) {
    let (mut settings, mut unread) = (None, Vec::new());
    let question = ReadKubelet { host_root: host_root.into(), pid };
    match ask_in_parts(question, |part| settings = Some(part)) {
        Ok(more) => unread.extend(more),
        Err(failure) => unread.push(NoAnswer::from(failure).to_string()),
    }
    unread.iter().for_each(|why| tracing::info!("kubelet (pid {pid}): {why}"));
    (settings, unread)
}

/// Reads the settings of a kubelet.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) struct ReadKubelet {
    host_root: PathBuf,
    pid: u32,
}

impl Question for ReadKubelet {
    const IS_SHORT: bool = true;
    const ROLE: Role = Role::HelperInside;
    type Step = ();
    /// First by its command line, then by its files, too.
    type Part = Settings;
    /// What could not be read.
    type Answer = Vec<String>;

    fn answer(self, tell: &mut Teller<(), Settings>) -> Result<Vec<String>> {
        let of_flags = Settings::of(&words(&self.host_root, self.pid)?);
        let mut settings = of_flags.context("its command line is not a kubelet's")?;
        tell.part(&settings)?;
        if settings == Settings::default() {
            return Ok(Vec::new());
        }
        let inside = enter(&self.host_root, self.pid)?;
        let unread = read_files(&mut settings, &inside.only_roots(), |path| inside.lives(path));
        tell.part(&settings)?;
        Ok(unread)
    }
}

/// Takes what the files say, of those that live and are root's alone; what could not be read.
pub(super) fn read_files(
    settings: &mut Settings,
    only_roots: &OnlyRoots<'_>,
    lives: impl Fn(&Path) -> Result<(), NotEntered>,
) -> Vec<String> {
    let unread = RefCell::new(Vec::new());
    let is_unread = |path: &Path, why: &dyn std::fmt::Display| {
        unread.borrow_mut().push(format!("{}: {why}", safe_path(path)));
    };
    let enter = |path: &Path| lives(path).map_err(|why| is_unread(path, &why)).is_ok();
    let take = |path: &Path, take: &mut dyn FnMut(&str) -> Result<(), String>| {
        if !enter(path) {
            return;
        }
        let text = only_roots.read(path).map_err(|error| format!("{error:#}"));
        let taken = text.and_then(|text| take(&text));
        if let Err(why) = taken {
            is_unread(path, &why);
        }
    };
    let files_in = |directory: &Path, extension| {
        if !enter(directory) {
            return Vec::new();
        }
        // Each of its files is examined, but a removed one is not missed.
        match only_roots.examine(directory) {
            Ok(()) => files_in(directory, extension),
            Err(why) => {
                is_unread(directory, &format!("{why:#}"));
                Vec::new()
            }
        }
    };
    if let Some((file, drop_ins)) = settings.distributions_files() {
        // Most have none.
        let files = [file].into_iter().filter(|file| enter(file) && file.exists());
        for file in files.chain(files_in(&drop_ins, "yaml")) {
            take(&file, &mut |text| settings.take_distributions(text));
        }
    }
    if let Some(file) = settings.args_file.clone() {
        take(&file, &mut |text| {
            settings.take_args(text);
            Ok(())
        });
    }
    let drop_ins =
        settings.config_dir.clone().map(|dir| files_in(&dir, "conf")).unwrap_or_default();
    for file in settings.config.clone().into_iter().chain(drop_ins) {
        take(&file, &mut |text| settings.take_config(text));
    }
    unread.into_inner()
}

/// In the order in which kubelet takes them (`mergeKubeletConfigurations` in cmd/kubelet/app): by name.
pub(super) fn files_in(directory: &Path, extension: &str) -> Vec<PathBuf> {
    files_that(directory, DROP_INS, |path| path.extension().is_some_and(|end| end == extension))
}

/// The matching entries of a directory, by name, of a limited number.
pub(super) fn files_that(
    directory: &Path,
    most: usize,
    fits: impl Fn(&Path) -> bool,
) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().take(most);
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.retain(|path| fits(path));
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::state::scratch::write;

    #[test]
    fn drop_ins_are_taken_by_name_and_unreadable_ones_are_reported() {
        if !rustix::process::getuid().is_root() {
            return podstuck_testing::skip("root is needed to make files of root's");
        }
        let dir = tempfile::tempdir_in("/run").unwrap();
        let mounts = podstuck_confine::proc::mounts(std::process::id());
        let only_roots = OnlyRoots(mounts.as_ref());
        let config = |logs: &str| format!("kind: KubeletConfiguration\npodLogsDir: {logs}\n");
        let (file, drop_ins) = (dir.path().join("config.yaml"), dir.path().join("d"));
        write(file.clone(), &config("/first"));
        write(drop_ins.join("20-b.conf"), &config("/last"));
        write(drop_ins.join("10-a.conf"), &config("/middle"));
        write(drop_ins.join("30-c.conf.bak"), &config("/never"));
        write(drop_ins.join("30-c.conf"), "not: [closed");
        let mut settings =
            Settings { config: Some(file), config_dir: Some(drop_ins), ..Settings::default() };
        let all = |_: &Path| Ok(());
        let unread = read_files(&mut settings, &only_roots, all);
        assert_eq!(settings.pod_logs, Some("/last".into()));
        assert!(unread.len() == 1 && unread[0].contains("30-c.conf"), "{unread:?}");
        settings.config = Some("/nonexistent/config".into());
        assert!(read_files(&mut settings, &only_roots, all)[0].contains("/nonexistent/config"));
        // What does not live is not looked at.
        let none = |_: &Path| Err(NotEntered("it hangs".into()));
        let unread = read_files(&mut settings, &only_roots, none);
        assert!(
            unread.len() == 2 && unread.iter().all(|why| why.ends_with(": it hangs")),
            "{unread:?}"
        );
        // Nor a file that others may have written.
        fs::set_permissions(dir.path().join("d"), PermissionsExt::from_mode(0o777)).unwrap();
        settings.config = None;
        let unread = read_files(&mut settings, &only_roots, all);
        assert!(unread.len() == 1 && unread[0].contains("is not root's alone"), "{unread:?}");
    }
}
