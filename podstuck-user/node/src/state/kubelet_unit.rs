//! What kubelets that do not run were configured with: by systemd's units, and by the files that these name.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::process::chroot;
use serde::{Deserialize, Serialize};

use super::{
    kubelet::{files_that, read_files},
    only_roots::OnlyRoots,
};
use crate::identity::{kubelet::Settings, on_host, unit::Unit};
use podstuck_confine::role::Role;
use podstuck_confine::{
    alive::{self, Occasion},
    helper::{NotEntered, Question, Teller, ask_in_parts},
};
use podstuck_model::query::NoAnswer;

/// Units that run a kubelet, or a program with one in it, by distribution.
const UNITS: [&str; 10] = [
    "kubelet.service",
    "k3s.service",
    "k3s-agent.service",
    "rke2-server.service",
    "rke2-agent.service",
    "k0sworker.service",
    "k0scontroller.service",
    "microshift.service",
    "snap.microk8s.daemon-kubelite.service",
    "snap.kubelet-eks.daemon.service",
];
/// Where systemd looks for them; a file hides those of its name in the places behind (systemd.unit(5)).
const PLACES: [&str; 7] = [
    "/etc/systemd/system.control",
    "/run/systemd/transient",
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
/// Files with flags in kubeadm's packages, for a kubelet that is started in another way.
const VARIABLES: [&str; 3] =
    ["/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/sysconfig/kubelet"];
const COMMAND: &str = "kubelet $KUBELET_KUBEADM_ARGS $KUBELET_ARGS $KUBELET_EXTRA_ARGS";
/// Drop-ins of a unit that are read.
const DROP_INS: usize = 64;

/// What kubelets are configured with, whether they run or not. Root's files alone count.
pub fn configured(host_root: &Path) -> Vec<Settings> {
    let mut all = Vec::new();
    let question = ReadUnits { host_root: host_root.into() };
    match ask_in_parts(question, |settings| all.push(settings)) {
        Ok(unread) => unread.iter().for_each(|why| tracing::info!("kubelet's unit: {why}")),
        Err(failure) => tracing::info!("kubelet's units: {}", NoAnswer::from(failure)),
    }
    all
}

/// The units that are there, by the names of their files.
pub(in crate::state) fn present(host_root: &Path) -> Vec<String> {
    let is_there = |name: &str| {
        let at = |place: &&str| on_host(host_root, &Path::new(place).join(name));
        PLACES.iter().any(|place| at(place).symlink_metadata().is_ok())
    };
    UNITS.into_iter().filter(|name| is_there(name)).map(str::to_owned).collect()
}

/// What units say.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) struct ReadUnits {
    host_root: PathBuf,
}

impl Question for ReadUnits {
    const IS_SHORT: bool = true;
    const ROLE: Role = Role::HelperInside;
    type Step = ();
    type Part = Settings;
    /// What could not be read.
    type Answer = Vec<String>;

    fn answer(self, tell: &mut Teller<(), Settings>) -> Result<Vec<String>> {
        let mounts = podstuck_confine::proc::mounts(std::process::id());
        if self.host_root != Path::new("/") {
            // Links mean what they mean there.
            chroot(&self.host_root).context("entering the host's root directory")?;
            std::env::set_current_dir("/").context("entering it")?;
        }
        let lives = |path: &Path| {
            let path = on_host(&self.host_root, path);
            let why =
                mounts.as_ref().and_then(|it| alive::why_not_in(it, &path, Occasion::Unknown));
            why.map_or(Ok(()), |why| Err(NotEntered(why)))
        };
        let mut unread = Vec::new();
        let only_roots = OnlyRoots(mounts.as_ref());
        for unit in units(Path::new("/"), &lives, &only_roots, &mut unread) {
            let Some(mut settings) = unit.settings() else { continue };
            unread.extend(read_files(&mut settings, &only_roots, lives));
            tell.part(&settings)?;
        }
        Ok(unread)
    }
}

type Lives<'a> = &'a dyn Fn(&Path) -> Result<(), NotEntered>;

/// The units that are there, with their variables.
fn units(
    top: &Path,
    lives: Lives<'_>,
    only_roots: &OnlyRoots<'_>,
    unread: &mut Vec<String>,
) -> Vec<Unit> {
    let mut take = |path: &Path| {
        let at = on_host(top, path);
        // Most are not there.
        if lives(path).is_err() || !at.is_file() {
            return None;
        }
        let text = only_roots.read(&at);
        text.map_err(|error| unread.push(format!("{}: {error:#}", path.display()))).ok()
    };
    let mut units: Vec<Unit> = Vec::new();
    for name in UNITS {
        let mut files = PLACES.iter().map(|place| Path::new(place).join(name));
        let Some(text) = files.find_map(|file| take(&file)) else { continue };
        let mut unit = Unit::default();
        unit.take(&text);
        for file in drop_ins(top, name, lives) {
            take(&file).iter().for_each(|text| unit.take(text));
        }
        units.push(unit);
    }
    if !units.iter().any(|unit| unit.settings().is_some()) {
        units.push(Unit::of_command(COMMAND, VARIABLES.map(PathBuf::from)));
    }
    for unit in &mut units {
        for file in unit.files().to_vec() {
            take(&file).iter().for_each(|text| unit.take_variables(text));
        }
    }
    units
}

/// The drop-ins of a unit, in the order in which they count: by name, each from the first place that has it.
fn drop_ins(top: &Path, unit: &str, lives: Lives<'_>) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    for place in PLACES {
        let directory = Path::new(place).join(format!("{unit}.d"));
        if lives(&directory).is_err() {
            continue;
        }
        let is_conf = |path: &Path| path.extension().is_some_and(|end| end == "conf");
        for file in files_that(&on_host(top, &directory), DROP_INS, is_conf) {
            let Some(name) = file.file_name() else { continue };
            if !files.iter().any(|known| known.file_name() == Some(name)) {
                files.push(directory.join(name));
            }
        }
    }
    files.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
    files
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, chown, symlink},
    };

    use super::*;
    use crate::state::scratch::write;

    fn roots(top: &Path) -> Vec<PathBuf> {
        let mounts = podstuck_confine::proc::mounts(std::process::id());
        let units = units(top, &|_| Ok(()), &OnlyRoots(mounts.as_ref()), &mut Vec::new());
        units.iter().filter_map(|unit| unit.settings()?.root).collect()
    }

    #[test]
    fn where_the_pods_of_a_kubelet_are_that_is_down() {
        if !rustix::process::getuid().is_root() {
            return podstuck_testing::skip("root is needed to make files of root's");
        }
        let top = tempfile::tempdir_in("/run").unwrap();
        let at = |path: &str| top.path().join(path);
        let none: [PathBuf; 0] = [];
        assert_eq!(roots(top.path()), none);
        write(at("var/lib/kubelet/kubeadm-flags.env"), "KUBELET_KUBEADM_ARGS=--root-dir=/env\n");
        assert_eq!(roots(top.path()), [Path::new("/env")], "without any unit");
        write(
            at("usr/lib/systemd/system/kubelet.service"),
            "[Service]\nExecStart=/usr/bin/kubelet\n",
        );
        let kubeadm = "[Service]\nEnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\nExecStart=\n\
             ExecStart=/usr/bin/kubelet $KUBELET_KUBEADM_ARGS $MORE\n";
        write(at("usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf"), kubeadm);
        assert_eq!(roots(top.path()), [Path::new("/env")]);
        let own = "[Service]\nEnvironment=MORE=--root-dir=/own\n";
        write(at("etc/systemd/system/kubelet.service.d/20-own.conf"), own);
        assert_eq!(roots(top.path()), [Path::new("/own")]);
        // The administrator's of the same name hides the package's.
        symlink("/dev/null", at("etc/systemd/system/kubelet.service.d/10-kubeadm.conf")).unwrap();
        assert_eq!(roots(top.path()), none);
        fs::remove_file(at("etc/systemd/system/kubelet.service.d/10-kubeadm.conf")).unwrap();
        // A file that others may write is not read.
        let file = at("etc/systemd/system/kubelet.service.d/20-own.conf");
        fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).unwrap();
        assert_eq!(roots(top.path()), [Path::new("/env")]);
        fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
        chown(&file, Some(1000), None).unwrap();
        assert_eq!(roots(top.path()), [Path::new("/env")]);
        let k3s = "[Service]\nExecStart=/usr/local/bin/k3s agent --kubelet-arg=root-dir=/k3s\n";
        write(at("etc/systemd/system/k3s-agent.service"), k3s);
        assert_eq!(roots(top.path()), ["/env", "/k3s"].map(Path::new));
    }
}
