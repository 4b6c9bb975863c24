//! The pod's cgroups: real ones, below the lab's own cgroup. With cgroup version 1, kubelet creates one in each
//! hierarchy; the lab uses two.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, unlinkat},
    io::Errno,
};

use super::{go_remove::Failure, layout::Pod};

const ROOT: &str = "/sys/fs/cgroup";

/// Paths of the pod's cgroups, whether or not they exist.
pub(super) fn of_pod(pod: &Pod) -> Vec<PathBuf> {
    let root = Path::new(ROOT);
    let trees = if root.join("cgroup.controllers").exists() {
        vec![root.to_owned()]
    } else {
        ["pids", "freezer"].map(|tree| root.join(tree)).into()
    };
    let trees = trees.into_iter().filter(|tree| tree.join("cgroup.procs").exists());
    trees.map(|tree| tree.join("podstuck-lab").join(format!("pod{}", pod.uid))).collect()
}

/// Cgroups of containers in one of the pod's cgroups.
fn of_containers(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// Whether a container's cgroup contains a process. A zombie does not count.
pub(super) fn has_container(pod: &Pod) -> bool {
    let mut containers = of_pod(pod).into_iter().flat_map(|group| of_containers(&group));
    containers
        .any(|group| fs::read(group.join("cgroup.procs")).is_ok_and(|procs| !procs.is_empty()))
}

/// Removes the cgroups like libcontainer, in one attempt, innermost first. These calls are not counted, because they
/// do not concern a volume.
pub(super) fn remove(pod: &Pod) -> Result<(), Failure> {
    let pods = of_pod(pod);
    let containers = pods.iter().flat_map(|group| of_containers(group));
    for group in containers.chain(pods.clone()) {
        match unlinkat(CWD, &group, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(Failure::new("unlinkat", group, errno)),
        }
    }
    Ok(())
}
