//! The pod's control groups: real ones, below a group of the lab's own. kubelet makes one in each
//! hierarchy of version 1; the lab is content with two.

use std::path::{Path, PathBuf};

use rustix::{
    fs::{AtFlags, CWD, unlinkat},
    io::Errno,
};

use super::{go_remove::Failure, layout::Pod};

const ROOT: &str = "/sys/fs/cgroup";

/// Where the pod's groups are, or would be.
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

/// Removes them as libcontainer does, once. These calls are not counted: they concern no volume.
pub(super) fn remove(pod: &Pod) -> Result<(), Failure> {
    for group in of_pod(pod) {
        match unlinkat(CWD, &group, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(Failure::new("unlinkat", group, errno)),
        }
    }
    Ok(())
}
