//! Control groups of pods, in every hierarchy of version 1 and in that of version 2.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs,
    path::{Path, PathBuf},
};

use super::{
    Only, freezer,
    pods::PodState,
    tasks::{self, Task},
};
use crate::identity::{cgroup::container_id, cgroup_walk::pod_cgroups};

/// Hierarchies of version 1 that every pod is in: the first of them is looked at every time, the
/// others take turns.
const MAIN: [&str; 4] = ["pids", "memory", "cpu,cpuacct", "cpu"];
/// Processes looked at in one sample, of pods that give no reason to be looked at. A node with two
/// thousand of them is seen in ten seconds.
const AT_A_TIME: usize = 400;
/// Processes looked at of one pod.
const OF_A_POD: usize = 256;

/// What is left of a pod in the control groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodGroup {
    /// The pod.
    pub uid: String,
    /// Its group's directory.
    pub path: PathBuf,
    /// Whether a runtime's group of a container is in it.
    pub has_containers: bool,
    /// The group of version 1 whose `freezer.state` keeps its processes from running: its own, one
    /// below or one above.
    pub frozen: Option<PathBuf>,
    /// Processes in it.
    pub tasks: Vec<Task>,
}

/// What is kept from one look to the next.
#[derive(Debug, Default)]
pub(super) struct CgroupLook {
    /// The first is the main one.
    trees: Vec<PathBuf>,
    turn: usize,
    /// By UID: directories, relative to the tree.
    groups: BTreeMap<String, BTreeSet<PathBuf>>,
    /// Pods that give a reason to look again.
    suspicious: HashSet<String>,
    /// Pods that had a directory, as long as they have groups.
    had_directory: HashSet<String>,
    /// The last pod that was looked at without a reason.
    last: String,
}

impl CgroupLook {
    /// Looks for the groups of pods.
    pub(super) fn refresh(&mut self, root: &Path) {
        if self.trees.is_empty() {
            self.trees = trees(root);
        }
        let Some((main, others)) = self.trees.split_first() else { return };
        let other = others.get(self.turn % others.len().max(1));
        self.turn = self.turn.wrapping_add(1);
        for tree in [Some(main), other].into_iter().flatten() {
            for (uid, found) in pod_cgroups(tree) {
                let found = found.iter().filter_map(|group| group.strip_prefix(tree).ok());
                self.groups.entry(uid).or_default().extend(found.map(Path::to_owned));
            }
        }
        let trees = &self.trees;
        self.groups.retain(|_, groups| {
            groups.retain(|group| trees.iter().any(|tree| tree.join(group).is_dir()));
            !groups.is_empty()
        });
    }

    /// Whether a pod has a group.
    pub(super) fn knows(&self, uid: &str) -> bool {
        self.groups.contains_key(uid)
    }

    /// Whether a process is left in a pod's group or below, in the main hierarchy; `None` when there
    /// is none. A pod without a group has none.
    pub(super) fn populated(&self, uid: &str) -> Option<bool> {
        let main = self.trees.first()?;
        let mut groups = self.groups.get(uid).into_iter().flatten();
        Some(groups.any(|group| has_process(&main.join(group))))
    }

    /// Looks at the processes of pods: of those that give a reason, and of some of the others.
    pub(super) fn sample(&mut self, only: &Only, pods: &[PodState]) -> Vec<PodGroup> {
        if matches!(only, Only::Below(_)) {
            return Vec::new();
        }
        self.had_directory.extend(pods.iter().map(|pod| pod.uid.clone()));
        self.had_directory.retain(|uid| self.groups.contains_key(uid));
        let volumes: BTreeMap<&str, usize> =
            pods.iter().map(|pod| (pod.uid.as_str(), pod.volumes.len())).collect();
        // A pod without a directory may be another kubelet's, whose root is not known.
        let had_directory = &self.had_directory;
        let torn_down = |uid: &str| match volumes.get(uid) {
            Some(count) => *count == 0,
            None => had_directory.contains(uid),
        };
        let mut found = Vec::new();
        let mut budget = AT_A_TIME;
        let (after, before): (Vec<_>, Vec<_>) =
            self.groups.iter().partition(|(uid, _)| **uid > self.last);
        for (uid, groups) in after.into_iter().chain(before) {
            if matches!(only, Only::Pod(wanted) if wanted != uid) {
                continue;
            }
            let reason = self.suspicious.contains(uid) || torn_down(uid);
            if !reason && budget == 0 {
                continue;
            }
            let group = look(&self.trees, uid, groups, torn_down(uid));
            if !reason {
                budget = budget.saturating_sub(group.tasks.len().max(1));
                self.last.clone_from(uid);
            }
            found.push(group);
        }
        let is_suspicious = |group: &&PodGroup| {
            group.frozen.is_some() || group.tasks.iter().any(|task| task.killed || task.exiting)
        };
        self.suspicious =
            found.iter().filter(is_suspicious).map(|group| group.uid.clone()).collect();
        found
    }
}

/// All hierarchies, the main one first.
fn trees(root: &Path) -> Vec<PathBuf> {
    if root.join("cgroup.controllers").exists() {
        return vec![root.to_owned()];
    }
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    // Names of more than one controller are links to the same tree.
    let mut trees: Vec<PathBuf> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .filter(|tree| tree.join("cgroup.procs").exists())
        .collect();
    let rank = |tree: &PathBuf| {
        let name = tree.file_name().unwrap_or_default();
        MAIN.iter().position(|main| name == *main).unwrap_or(MAIN.len())
    };
    trees.sort_by_key(|tree| (rank(tree), tree.clone()));
    trees
}

/// One pod. A process may be in the pod's group of one hierarchy only, and then the main one is
/// empty.
fn look(trees: &[PathBuf], uid: &str, groups: &BTreeSet<PathBuf>, everywhere: bool) -> PodGroup {
    let (main, others) = trees.split_at(trees.len().min(1));
    let mut this = PodGroup {
        uid: uid.into(),
        path: PathBuf::new(),
        has_containers: false,
        frozen: None,
        tasks: Vec::new(),
    };
    let others = if everywhere { others } else { &[] };
    for tree in main.iter().chain(others) {
        for group in groups.iter().map(|group| tree.join(group)).filter(|group| group.is_dir()) {
            if this.path.as_os_str().is_empty() {
                this.path.clone_from(&group);
            }
            let mut below = Vec::new();
            collect(&group, &mut below, &mut this.has_containers);
            let tasks = below.iter().filter_map(|(pid, group)| tasks::read(*pid, group));
            let before = this.tasks.len();
            this.tasks.extend(tasks.take(OF_A_POD));
            if before == 0 && !this.tasks.is_empty() {
                this.path = group;
            }
        }
        if !this.tasks.is_empty() {
            break;
        }
    }
    let freezer = trees.iter().find(|tree| tree.ends_with("freezer"));
    this.frozen =
        freezer.and_then(|tree| groups.iter().find_map(|group| freezer::frozen(tree, group)));
    this
}

/// Processes in a group and below.
fn collect(group: &Path, pids: &mut Vec<(u32, PathBuf)>, has_containers: &mut bool) {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let found = text.lines().filter_map(|pid| pid.parse().ok());
    pids.extend(found.take(OF_A_POD).map(|pid| (pid, group.to_owned())));
    for below in below(group) {
        let name = below.file_name().and_then(|name| name.to_str());
        *has_containers |= name.and_then(container_id).is_some();
        if pids.len() < OF_A_POD {
            collect(&below, pids, has_containers);
        }
    }
}

/// The groups directly below one.
pub(super) fn below(group: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    let groups = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    groups.map(|entry| entry.path())
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
    below(group).any(|group| has_process(&group))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn populated(root: &Path, uid: &str) -> Option<bool> {
        let mut look = CgroupLook::default();
        look.refresh(root);
        look.populated(uid)
    }

    #[test]
    fn both_versions_are_read() {
        for (pod, file, text) in [
            ("kubepods", "cgroup.events", "populated 1\nfrozen 0\n"),
            ("pids/kubepods", "ctr/cgroup.procs", "42\n"),
        ] {
            let root = tempfile::tempdir().unwrap();
            let group = root.path().join(pod).join(format!("pod{UID}"));
            match pod {
                "kubepods" => write(root.path().join("cgroup.controllers"), "cpu\n"),
                _ => write(root.path().join("pids/cgroup.procs"), ""),
            }
            write(group.join(file), text);
            assert_eq!(populated(root.path(), UID), Some(true), "{pod}");
            write(group.join(file), if pod == "kubepods" { "populated 0\n" } else { "" });
            assert_eq!(populated(root.path(), UID), Some(false), "{pod}");
            assert_eq!(populated(root.path(), &UID.replace('0', "1")), Some(false));
        }
        assert_eq!(populated(Path::new("/nonexistent"), UID), None);
    }

    #[test]
    fn a_process_in_one_hierarchy_only_is_found_once_the_pod_is_torn_down() {
        let root = tempfile::tempdir().unwrap();
        let own = std::process::id();
        for tree in ["memory", "pids"] {
            write(root.path().join(tree).join("cgroup.procs"), "");
        }
        let group = root.path().join("memory/kubepods").join(format!("pod{UID}"));
        write(group.join("cgroup.procs"), &format!("{own}\n"));
        let mut look = CgroupLook::default();
        look.refresh(root.path());
        look.had_directory.insert(UID.into());
        let found = look.sample(&Only::All, &[]);
        assert_eq!((found[0].uid.as_str(), &found[0].path), (UID, &group));
        assert_eq!((found[0].tasks[0].pid, found[0].has_containers), (own, false));
        fs::create_dir(group.join("a".repeat(64))).unwrap();
        assert!(look.sample(&Only::Pod(UID.into()), &[])[0].has_containers);
        assert!(look.sample(&Only::Pod("another".into()), &[]).is_empty());
    }

    #[test]
    fn a_few_pods_are_looked_at_each_time_and_all_in_the_end() {
        let root = tempfile::tempdir().unwrap();
        write(root.path().join("cgroup.controllers"), "");
        let own = format!("{}\n", std::process::id()).repeat(OF_A_POD);
        let mut pods = Vec::new();
        for n in 1..=5 {
            let uid = UID.replace('0', &n.to_string());
            write(root.path().join(format!("pod{uid}/cgroup.procs")), &own);
            pods.push(PodState {
                directory: Path::new("/k/pods").join(&uid),
                uid,
                started: true,
                populated: None,
                volumes: vec![super::super::VolumeState {
                    path: "/v".into(),
                    csi: None,
                    mounts: Vec::new(),
                }],
            });
        }
        let mut look = CgroupLook::default();
        look.refresh(root.path());
        let mut seen = BTreeSet::new();
        for _ in 0..3 {
            let found = look.sample(&Only::All, &pods);
            assert_eq!(found.len(), 2);
            seen.extend(found.into_iter().map(|group| group.uid));
        }
        assert_eq!(seen.len(), 5);
    }
}
