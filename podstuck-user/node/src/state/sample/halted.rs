//! What keeps a daemon from its work, wherever it runs: a signal, its control group, or a limit that it has reached.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    descriptors,
    freezer::{own_or_above, read},
};
use podstuck_confine::proc;
use podstuck_model::{halted::Halted, pod_group::Task};

/// The control group hierarchies that decide whether a process runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Trees {
    /// Version 1.
    freezer: Option<PathBuf>,
    /// Version 1.
    pids: Option<PathBuf>,
    /// Version 2.
    unified: Option<PathBuf>,
}

impl Trees {
    /// Among these hierarchies.
    pub(super) fn among(trees: &[PathBuf]) -> Self {
        let find = |is: &dyn Fn(&&PathBuf) -> bool| trees.iter().find(is).cloned();
        Self {
            freezer: find(&|tree| tree.ends_with("freezer")),
            pids: find(&|tree| tree.ends_with("pids")),
            unified: find(&|tree| tree.join("cgroup.controllers").exists()),
        }
    }

    /// What keeps a process in this state from answering.
    pub(super) fn halted(&self, pid: u32, state: char) -> Option<Halted> {
        if proc::is_stopped(state) {
            return Some(Halted::Stopped);
        }
        let by_group = groups_of(pid).and_then(|groups| {
            let frozen = self.frozen(&groups).map(|group| Halted::Frozen { group });
            frozen.or_else(|| self.full(&groups))
        });
        by_group.or_else(|| descriptors::exhausted(pid))
    }

    /// The group to thaw, by the text of `/proc/PID/cgroup`; `None` when the process runs.
    fn frozen(&self, groups: &str) -> Option<PathBuf> {
        if let Some((tree, group)) = group_in(self.freezer.as_ref(), groups, "freezer") {
            return own_or_above(tree, &group, "freezer.self_freezing");
        }
        let (tree, group) = group_in(self.unified.as_ref(), groups, "")?;
        own_or_above(tree, &group, "cgroup.freeze")
    }

    /// The nearest group that has as many tasks as it may, by the text of `/proc/PID/cgroup` (cgroup-v2.rst, PID).
    fn full(&self, groups: &str) -> Option<Halted> {
        let found = group_in(self.pids.as_ref(), groups, "pids");
        let (tree, group) = found.or_else(|| group_in(self.unified.as_ref(), groups, ""))?;
        let number = |group: &Path, file: &str| read(group, file)?.parse().ok();
        group.ancestors().take_while(|above| above.starts_with(tree)).find_map(|above| {
            // `max` is no number: there is no limit.
            let (most, tasks): (u64, u64) =
                (number(above, "pids.max")?, number(above, "pids.current")?);
            (tasks >= most).then(|| Halted::NoTasks { group: above.to_owned(), tasks, most })
        })
    }
}

/// The frozen group of version 1 of a killed process, by the text of `/proc/PID/cgroup`: a container may make groups below its
/// own, and a process may be moved to any other.
pub(super) fn frozen_of_killed(
    trees: &[PathBuf],
    tasks: &[Task],
    groups: impl Fn(u32) -> Option<String>,
) -> Option<PathBuf> {
    let mut killed = tasks.iter().filter(|task| task.killed).peekable();
    killed.peek()?;
    let first = Trees { unified: None, ..Trees::among(trees) };
    killed.find_map(|task| first.frozen(&groups(task.pid)?))
}

/// The text of `/proc/PID/cgroup`.
pub(super) fn groups_of(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()
}

/// The group of a controller's line, below its tree; the controller of version 2 is empty.
fn group_in<'a>(
    tree: Option<&'a PathBuf>,
    groups: &str,
    controller: &str,
) -> Option<(&'a Path, PathBuf)> {
    let tree = tree?;
    let of = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let its = controllers.split(',').any(|name| name == controller);
        its.then(|| tree.join(path.trim_start_matches('/')))
    };
    Some((tree, groups.lines().find_map(of)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::sample::tasks;

    const GROUPS: &str = "5:cpu,freezer:/kubepods/pod\n4:pids:/kubepods/pod\n0::/pod\n";

    fn set(group: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(group).unwrap();
        for (name, text) in files {
            fs::write(group.join(name), format!("{text}\n")).unwrap();
        }
    }

    #[test]
    fn a_process_is_frozen_by_its_group_or_one_above() {
        let root = tempfile::tempdir().unwrap();
        let first = root.path().join("freezer");
        let pod = first.join("kubepods/pod");
        set(&pod, &[("freezer.self_freezing", "0")]);
        let frozen = || Trees::among(std::slice::from_ref(&first)).frozen(GROUPS);
        assert_eq!(frozen(), None);
        set(pod.parent().unwrap(), &[("freezer.self_freezing", "1")]);
        assert_eq!(frozen().as_deref(), pod.parent());
        let second = root.path().join("unified");
        set(&second, &[("cgroup.controllers", "cpu")]);
        set(&second.join("pod"), &[("cgroup.freeze", "0")]);
        let frozen = || Trees::among(std::slice::from_ref(&second)).frozen(GROUPS);
        assert_eq!(frozen(), None);
        set(&second.join("pod"), &[("cgroup.freeze", "1")]);
        assert_eq!(frozen(), Some(second.join("pod")));
    }

    #[test]
    fn a_process_whose_group_or_one_above_has_all_its_tasks_starts_no_other() {
        let root = tempfile::tempdir().unwrap();
        let (first, second) = (root.path().join("pids"), root.path().join("unified"));
        let slice = first.join("kubepods");
        set(&slice, &[("pids.max", "40"), ("pids.current", "39")]);
        set(&slice.join("pod"), &[("pids.max", "max"), ("pids.current", "30")]);
        set(&second, &[("cgroup.controllers", "pids")]);
        set(&second.join("pod"), &[("pids.max", "10"), ("pids.current", "9")]);
        let full = |tree: &PathBuf| Trees::among(std::slice::from_ref(tree)).full(GROUPS);
        assert_eq!((full(&first), full(&second)), (None, None));
        set(&slice, &[("pids.current", "40")]);
        set(&second.join("pod"), &[("pids.current", "11")]);
        let of = |group, tasks, most| Some(Halted::NoTasks { group, tasks, most });
        assert_eq!(full(&first), of(slice, 40, 40));
        assert_eq!(full(&second), of(second.join("pod"), 11, 10), "moved there: pids.c allows it");
    }

    /// runc#2105.
    #[test]
    fn the_frozen_group_of_a_killed_process_is_named_wherever_it_is() {
        let root = tempfile::tempdir().unwrap();
        let tree = root.path().join("freezer");
        let inner = tree.join("kubepods/pod/container/inner");
        set(&inner, &[("freezer.self_freezing", "1")]);
        let task = tasks::read(std::process::id(), &inner).unwrap();
        let of = |killed| {
            let groups = |_| Some("5:freezer:/kubepods/pod/container/inner\n".to_owned());
            let tasks = [Task { killed, ..task.clone() }];
            frozen_of_killed(std::slice::from_ref(&tree), &tasks, groups)
        };
        assert_eq!((of(true), of(false)), (Some(inner.clone()), None));
        set(&inner, &[("freezer.self_freezing", "0")]);
        assert_eq!(of(true), None);
    }
}
