//! Whether the control groups of pods still hold a process.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use crate::identity::cgroup_walk::pod_cgroups;

/// Version 1 has a tree for each controller; one of these has every pod.
const CONTROLLERS: [&str; 4] = ["pids", "memory", "cpu,cpuacct", "cpu"];

/// The groups of all pods, by UID.
pub(super) struct PodCgroups {
    by_uid: HashMap<String, Vec<PathBuf>>,
}

impl PodCgroups {
    /// Looks for them; `None` when there is no tree at all.
    pub(super) fn find(root: &Path) -> Option<Self> {
        let unified = root.join("cgroup.controllers").exists();
        let trees = CONTROLLERS.map(|controller| root.join(controller));
        let v1 = trees.into_iter().find(|tree| tree.is_dir());
        let tree = if unified { Some(root.to_owned()) } else { v1 }?;
        Some(Self { by_uid: pod_cgroups(&tree) })
    }

    /// Whether a pod has a group.
    pub(super) fn know(&self, uid: &str) -> bool {
        self.by_uid.contains_key(uid)
    }

    /// Whether a process is left in a pod's group or below. A pod without a group has none.
    pub(super) fn populated(&self, uid: &str) -> bool {
        self.by_uid.get(uid).into_iter().flatten().any(|group| has_process(group))
    }
}

fn has_process(group: &Path) -> bool {
    if let Ok(events) = fs::read_to_string(group.join("cgroup.events")) {
        return events.lines().any(|line| line == "populated 1");
    }
    // Version 1 does not count below. Reading the file of a group whose processes are all zombies
    // shows none.
    if fs::read(group.join("cgroup.procs")).is_ok_and(|pids| !pids.is_empty()) {
        return true;
    }
    let below = fs::read_dir(group).into_iter().flatten().flatten();
    let groups = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    groups.map(|entry| entry.path()).any(|group| has_process(&group))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn both_versions_are_read() {
        for (pod, file, text) in [
            ("kubepods", "cgroup.events", "populated 1\nfrozen 0\n"),
            ("pids/kubepods", "ctr/cgroup.procs", "42\n"),
        ] {
            let root = tempfile::tempdir().unwrap();
            let group = root.path().join(pod).join(format!("pod{UID}"));
            if pod == "kubepods" {
                write(root.path().join("cgroup.controllers"), "cpu\n");
            }
            write(group.join(file), text);
            assert!(PodCgroups::find(root.path()).unwrap().populated(UID), "{pod}");
            write(group.join(file), if pod == "kubepods" { "populated 0\n" } else { "" });
            assert!(!PodCgroups::find(root.path()).unwrap().populated(UID), "{pod}");
            let other = UID.replace('0', "1");
            assert!(!PodCgroups::find(root.path()).unwrap().populated(&other));
        }
        assert!(PodCgroups::find(Path::new("/nonexistent")).is_none());
    }
}
