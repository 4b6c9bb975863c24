//! Shows the probes the directories that hold targets: the helper's side.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    os::fd::{AsFd, AsRawFd},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use nix::libc;
use podstuck_common::root::SHOW;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::{
    alive,
    helper::{Budget, Question, Teller, ask_in_parts},
    seen_by::{Root, Seen},
};
use crate::{
    identity::on_host,
    kernel::role::Role,
    model::{degraded::Feed, mounts::Mounts},
    proc,
};

/// A directory that is looked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sought {
    /// A process in whose root directory the path is to be understood; `None` for the host.
    pub(crate) pid: Option<u32>,
    pub(crate) path: OsString,
    /// By which the probes will know it; `None` for one that they need not know.
    pub(crate) index: Option<u32>,
}

impl Sought {
    /// One that the probes need not know.
    pub(crate) fn unshown(pid: Option<u32>, path: &Path) -> Self {
        Self { pid, path: path.into(), index: None }
    }
}

/// These directories are opened, and nothing is kept open.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ShowRoots {
    host_root: OsString,
    secret: u64,
    sought: Vec<Sought>,
    /// Of these, what is not to be entered.
    left_out: Vec<bool>,
}

impl Question for ShowRoots {
    const BUDGET: Budget = Budget::Roots;
    const ROLE: Role = Role::HelperBeneath;
    type Step = ();
    /// Which one, and its path without symbolic links.
    type Part = (usize, OsString);
    type Answer = ();

    fn answer(self, tell: &mut Teller<(), (usize, OsString)>) -> Result<()> {
        let all = self.sought.iter().enumerate().zip(&self.left_out);
        for (at, sought) in all.filter(|(_, left_out)| !**left_out).map(|(sought, _)| sought) {
            let top = match sought.pid {
                Some(pid) => PathBuf::from(format!("/proc/{pid}/root")),
                None => self.host_root.clone().into(),
            };
            // Most runtimes are not here.
            let Ok((directory, path)) = beneath(&top, Path::new(&sought.path)) else { continue };
            if let Some(index) = sought.index {
                show(&directory, self.secret, index);
            }
            tell.part(&(at, path.into()))?;
        }
        Ok(())
    }
}

/// Shows directories to the probes; the paths of those that exist, without symbolic links. What does not
/// answer within two seconds, and what comes after it, is left out.
pub(crate) fn show_roots(
    host_root: &Path,
    secret: u64,
    sought: Vec<Sought>,
) -> Vec<Option<PathBuf>> {
    let mut found = vec![None; sought.len()];
    let left_out = left_out(host_root, &sought);
    let question = ShowRoots { host_root: host_root.into(), secret, sought, left_out };
    let answer = ask_in_parts(question, |(at, path): (usize, OsString)| {
        if let Some(slot) = found.get_mut(at) {
            *slot = Some(PathBuf::from(path));
        }
    });
    if let Err(failure) = answer {
        tracing::info!("not all roots of targets were looked at: {failure:?}");
    }
    found
}

fn left_out(host_root: &Path, sought: &[Sought]) -> Vec<bool> {
    let place = |sought: &Sought| match sought.pid {
        Some(pid) => (pid, PathBuf::from(&sought.path)),
        None => (std::process::id(), on_host(host_root, Path::new(&sought.path))),
    };
    let places: Vec<(u32, PathBuf)> = sought.iter().map(place).collect();
    let pids: BTreeSet<u32> = places.iter().map(|(pid, _)| *pid).collect();
    let tables: BTreeMap<u32, Mounts> =
        pids.into_iter().filter_map(|pid| Some((pid, proc::mounts(pid)?))).collect();
    let looks = places.iter().map(|(pid, path)| (tables.get(pid), path.as_path()));
    alive::left_out(Feed::Calls, looks)
}

/// The path of a directory of the host without symbolic links, where it answers.
pub(crate) fn resolve(host_root: &Path, path: &Path) -> Option<PathBuf> {
    let sought = vec![Sought::unshown(None, path)];
    show_roots(host_root, 0, sought).pop().flatten()
}

/// Opens a directory whose path is to be understood in another root directory: its symbolic links lead
/// nowhere else. With its path there.
fn beneath(top: &Path, path: &Path) -> Result<(Seen, PathBuf)> {
    let top = Root::at(top).context("opening the root directory")?;
    let prefix = fs::read_link(top.open(Path::new("/"), OFlags::DIRECTORY)?.path())?;
    let directory = top.open(path, OFlags::DIRECTORY)?;
    let path = fs::read_link(directory.path())?;
    let below = path.strip_prefix(&prefix).unwrap_or(&path);
    Ok((directory, Path::new("/").join(below)))
}

/// See [`podstuck_common::root`].
fn show(directory: &impl AsFd, secret: u64, index: u32) {
    // SAFETY: the kernel refuses the flags before it looks at the address.
    unsafe {
        libc::syscall(libc::SYS_unlinkat, directory.as_fd().as_raw_fd(), secret, SHOW | index);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_lead_nowhere_outside_the_root_directory() {
        let top = tempfile::tempdir().unwrap();
        let inside = top.path().join("data/kubelet");
        fs::create_dir_all(&inside).unwrap();
        fs::create_dir_all(top.path().join("var/lib")).unwrap();
        symlink("/data/kubelet", top.path().join("var/lib/kubelet")).unwrap();
        symlink("../../../../../../..", top.path().join("up")).unwrap();
        let path = |text: &str| beneath(top.path(), Path::new(text)).ok().map(|(_, path)| path);
        assert_eq!(path("/var/lib/kubelet"), Some("/data/kubelet".into()));
        assert_eq!(path("/data/../data/./kubelet"), Some("/data/kubelet".into()));
        assert_eq!(path("/up"), Some("/".into()));
        assert_eq!(path("/var/lib/docker"), None);
    }

    #[test]
    fn showing_a_directory_changes_nothing() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("pods")).unwrap();
        let (directory, _) = beneath(top.path(), Path::new("/pods")).unwrap();
        let before = fs::metadata(top.path().join("pods")).unwrap();
        show(&directory, u64::MAX, 3);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
        let after = fs::metadata(top.path().join("pods")).unwrap();
        assert_eq!(before.modified().unwrap(), after.modified().unwrap());
    }
}
