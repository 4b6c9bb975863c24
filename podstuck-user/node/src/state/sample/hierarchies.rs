//! Control groups of pods, in every hierarchy of version 1 and in that of version 2.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::identity::cgroup_walk::pod_cgroups;
use podstuck_confine::proc;

/// Hierarchies of version 1 that every pod is in: the first of them is looked at every time, the
/// others take turns.
const MAIN: [&str; 4] = ["pids", "memory", "cpu,cpuacct", "cpu"];

/// Where the groups are.
#[derive(Debug, Default)]
pub(super) struct Hierarchies {
    /// The first is the main one.
    trees: Vec<PathBuf>,
    turn: usize,
    /// By UID: directories, relative to the tree.
    groups: BTreeMap<String, BTreeSet<PathBuf>>,
}

impl Hierarchies {
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

    /// Whether a process is left in a pod's group or below, in the main hierarchy; `None` without a main
    /// hierarchy. A pod without a group has no process.
    pub(super) fn populated(&self, uid: &str) -> Option<bool> {
        let main = self.trees.first()?;
        let mut groups = self.groups.get(uid).into_iter().flatten();
        Some(groups.any(|group| has_process(&main.join(group))))
    }

    /// All trees, the main one first.
    pub(super) fn trees(&self) -> &[PathBuf] {
        &self.trees
    }

    /// Every pod's UID with its groups' directories, relative to the tree.
    pub(super) fn groups(&self) -> impl Iterator<Item = (&String, &BTreeSet<PathBuf>)> {
        self.groups.iter()
    }

    #[cfg(test)]
    pub(super) fn of(root: &Path) -> Self {
        let mut this = Self::default();
        this.refresh(root);
        this
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

/// The groups directly below one.
pub(super) fn below(group: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    let groups = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    groups.map(|entry| entry.path())
}

fn has_process(group: &Path) -> bool {
    if let Some(events) = proc::utf8(&group.join("cgroup.events")) {
        return events.lines().any(|line| line == "populated 1");
    }
    // Version 1 does not count below. Reading the file of a group whose processes are all zombies
    // shows none.
    if proc::text(&group.join("cgroup.procs")).is_ok_and(|pids| !pids.is_empty()) {
        return true;
    }
    below(group).any(|group| has_process(&group))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::scratch::write;

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    fn populated(root: &Path, uid: &str) -> Option<bool> {
        Hierarchies::of(root).populated(uid)
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
}
