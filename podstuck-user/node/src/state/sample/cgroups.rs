//! Processes in the control groups of pods.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::{Path, PathBuf},
};

use super::{
    Only, freezer, halted,
    hierarchies::{Hierarchies, below},
    shims::{self, NodeShims},
    tasks,
};
use crate::identity::cgroup::container_id;
use podstuck_confine::proc;
use podstuck_model::{identity::Target, node::PodState, pod_group::PodGroup};

/// Processes looked at of one pod.
const OF_A_POD: usize = 256;

/// The state that is kept from one sample to the next.
#[derive(Debug, Default)]
pub(super) struct CgroupCollector {
    /// Pods that give a reason to look again.
    suspicious: HashSet<String>,
    /// Pods that had a directory, as long as they have groups.
    had_directory: HashSet<String>,
    /// The last pod that was looked at without a reason.
    last: String,
}

impl CgroupCollector {
    /// Looks at the processes of pods: of those that give a reason, and `at_a_time` of the others.
    pub(super) fn sample(
        &mut self,
        (only, at_a_time): (&Only, usize),
        hierarchies: &Hierarchies,
        pods: &[PodState],
        shims: &NodeShims,
    ) -> Vec<PodGroup> {
        if matches!(only, Only::Below(_)) {
            return Vec::new();
        }
        self.had_directory.extend(pods.iter().map(|pod| pod.uid.clone()));
        self.had_directory.retain(|uid| hierarchies.knows(uid));
        let without_volumes: BTreeMap<&str, bool> =
            pods.iter().map(|pod| (pod.uid.as_str(), pod.has_no_volumes())).collect();
        // A pod without a directory may be another kubelet's, whose root is not known.
        let had_directory = &self.had_directory;
        let torn_down = |uid: &str| match without_volumes.get(uid) {
            Some(without) => *without,
            None => had_directory.contains(uid),
        };
        let mut found = Vec::new();
        let mut budget = at_a_time;
        let (after, before): (Vec<_>, Vec<_>) =
            hierarchies.groups().partition(|(uid, _)| **uid > self.last);
        for (uid, groups) in after.into_iter().chain(before) {
            if !only.includes_pod(uid) {
                continue;
            }
            let reason = self.suspicious.contains(uid) || torn_down(uid);
            if !reason && budget == 0 {
                continue;
            }
            let mut group = look(hierarchies.trees(), uid, groups, torn_down(uid), shims);
            let is_asked = matches!(only, Only::Pod(_));
            if is_asked || has_empty_container(&group) {
                shims::look_at_children(&mut group);
            }
            if is_asked {
                shims::look_for_strays(&mut group);
                tasks::look_for_inits(group.tasks.iter_mut().chain(&mut group.outside));
            } else {
                group.containers.clear();
            }
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

/// One pod. A process may be in the pod's group of one hierarchy only, and then the main one is
/// empty.
fn look(
    trees: &[PathBuf],
    uid: &str,
    groups: &BTreeSet<PathBuf>,
    everywhere: bool,
    shims: &NodeShims,
) -> PodGroup {
    let (main, others) = trees.split_at(trees.len().min(1));
    let mut this = without_processes(uid);
    // Only directly below the pod's group: a container may make groups below its own, of any name.
    let mut containers: Vec<String> = Vec::new();
    let others = if everywhere { others } else { &[] };
    for tree in main.iter().chain(others) {
        for group in groups.iter().map(|group| tree.join(group)).filter(|group| group.is_dir()) {
            if this.path.as_os_str().is_empty() {
                this.path.clone_from(&group);
            }
            let children: Vec<PathBuf> = below(&group).collect();
            let names = children.iter().filter_map(|it| it.file_name()?.to_str());
            containers.extend(names.filter_map(|it| container_id(it).map(str::to_owned)));
            let mut found = Vec::new();
            collect(&group, children.into_iter(), &mut found);
            let tasks = found.iter().filter_map(|(pid, group)| tasks::read(*pid, group));
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
    this.has_containers = !containers.is_empty();
    this.shims = shims::of(&this.tasks, &containers, shims);
    this.containers = containers;
    let freezer = trees.iter().find(|tree| tree.ends_with("freezer"));
    this.frozen = freezer
        .and_then(|tree| groups.iter().find_map(|group| freezer::frozen(tree, group)))
        .or_else(|| halted::frozen_of_killed(trees, &this.tasks, halted::groups_of));
    this
}

/// A pod's group in which no process was found yet.
pub(super) fn without_processes(uid: &str) -> PodGroup {
    PodGroup {
        target_id: 0,
        target: Target::unknown().into(),
        uid: uid.into(),
        path: PathBuf::new(),
        has_containers: false,
        containers: Vec::new(),
        frozen: None,
        tasks: Vec::new(),
        outside: Vec::new(),
        shims: Vec::new(),
    }
}

/// Whether a container of the pod has a control group and no process in it: the runtime has yet to remove it.
fn has_empty_container(group: &PodGroup) -> bool {
    group.containers.iter().any(|id| !group.tasks.iter().any(|task| task.is_in(id)))
}

/// Processes in a group and in those below it.
fn collect(group: &Path, children: impl Iterator<Item = PathBuf>, pids: &mut Vec<(u32, PathBuf)>) {
    let text = proc::utf8(&group.join("cgroup.procs")).unwrap_or_default();
    let found = text.lines().filter_map(|pid| pid.parse().ok());
    pids.extend(found.take(OF_A_POD).map(|pid| (pid, group.to_owned())));
    for child in children {
        if pids.len() < OF_A_POD {
            collect(&child, below(&child), pids);
        }
    }
}

/// A pod with a process outside its control groups has a process.
pub(super) fn populate(pods: &mut [PodState], cgroups: &[PodGroup]) {
    for group in cgroups.iter().filter(|group| !group.outside.is_empty()) {
        let its = pods.iter_mut().filter(|pod| pod.uid == group.uid);
        its.for_each(|pod| pod.populated = Some(true));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::state::scratch::write;

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    #[test]
    fn a_process_in_one_hierarchy_only_is_found_once_the_pod_is_torn_down() {
        let root = tempfile::tempdir().unwrap();
        let own = std::process::id();
        for tree in ["memory", "pids"] {
            write(root.path().join(tree).join("cgroup.procs"), "");
        }
        let group = root.path().join("memory/kubepods").join(format!("pod{UID}"));
        write(group.join("cgroup.procs"), &format!("{own}\n"));
        let (mut look, hierarchies) = (CgroupCollector::default(), Hierarchies::of(root.path()));
        look.had_directory.insert(UID.into());
        let found = look.sample((&Only::All, 400), &hierarchies, &[], &NodeShims::default());
        assert_eq!((found[0].uid.as_str(), &found[0].path), (UID, &group));
        assert_eq!((found[0].tasks[0].pid, found[0].has_containers), (own, false));
        fs::create_dir(group.join("a".repeat(64))).unwrap();
        assert!(
            look.sample((&Only::Pod(UID.into()), 400), &hierarchies, &[], &NodeShims::default())[0]
                .has_containers
        );
        assert!(
            look.sample(
                (&Only::Pod("another".into()), 400),
                &hierarchies,
                &[],
                &NodeShims::default()
            )
            .is_empty()
        );
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
                seen_by: None,
                directory: Path::new("/k/pods").join(&uid),
                uid,
                started: true,
                before_boot: false,
                populated: None,
                changed: None,
                volume_removed: None,
                volumes: vec![podstuck_model::node::VolumeState {
                    target_id: 0,
                    target: Target::unknown().into(),
                    path: "/v".into(),
                    file: None,
                    csi: None,
                    mounts: Vec::new(),
                }],
                devices: Vec::new(),
                claims: Vec::new(),
            });
        }
        let (mut look, hierarchies) = (CgroupCollector::default(), Hierarchies::of(root.path()));
        let mut seen = BTreeSet::new();
        for _ in 0..3 {
            let found = look.sample((&Only::All, 400), &hierarchies, &pods, &NodeShims::default());
            assert_eq!(found.len(), 2);
            seen.extend(found.into_iter().map(|group| group.uid));
        }
        assert_eq!(seen.len(), 5);
        let found = look.sample((&Only::All, 400), &hierarchies, &pods, &NodeShims::default());
        let mut group = found.into_iter().next().unwrap();
        group.outside = tasks::read(std::process::id(), Path::new("/g")).into_iter().collect();
        populate(&mut pods, std::slice::from_ref(&group));
        let with = |pod: &&PodState| pod.populated == Some(true);
        let with: Vec<&str> = pods.iter().filter(with).map(|pod| pod.uid.as_str()).collect();
        assert_eq!(with, [group.uid.as_str()]);
    }
}
