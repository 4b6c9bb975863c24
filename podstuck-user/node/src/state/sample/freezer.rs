//! The freezer of version 1 (kernel/cgroup/legacy_freezer.c). A process in a frozen group does not
//! even take SIGKILL; with version 2 it does.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{descriptors, hierarchies::below};
use podstuck_confine::proc;
use podstuck_model::halted::Halted;

/// The group that has to be thawed so that the processes of a group run: itself, the nearest one
/// above, or one directly below. `None` when they run.
pub(super) fn frozen(tree: &Path, group: &Path) -> Option<PathBuf> {
    let group = tree.join(group);
    let state = |group: &Path| read(group, "freezer.state");
    let is_frozen = |group: &Path| matches!(state(group).as_deref(), Some("FROZEN" | "FREEZING"));
    if is_frozen(&group) {
        return own_or_above(tree, &group, "freezer.self_freezing").or(Some(group));
    }
    below(&group).find(|container| is_frozen(container))
}

/// Where the freezers of both versions are.
#[derive(Clone, Debug, Default)]
pub(super) struct Freezers {
    first: Option<PathBuf>,
    second: Option<PathBuf>,
}

impl Freezers {
    /// Among these hierarchies.
    pub(super) fn among(trees: &[PathBuf]) -> Self {
        let find = |is: fn(&PathBuf) -> bool| trees.iter().find(|tree| is(tree)).cloned();
        Self {
            first: find(|tree| tree.ends_with("freezer")),
            second: find(|tree| tree.join("cgroup.controllers").exists()),
        }
    }

    /// What keeps a process in this state from answering, wherever it is.
    pub(super) fn halted(&self, pid: u32, state: char) -> Option<Halted> {
        if proc::is_stopped(state) {
            return Some(Halted::Stopped);
        }
        let frozen = self.of_process(pid).map(|group| Halted::Frozen { group });
        frozen.or_else(|| descriptors::exhausted(pid))
    }

    /// The group that has to be thawed so that a process runs; `None` when it runs.
    fn of_process(&self, pid: u32) -> Option<PathBuf> {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        self.of_groups(&groups)
    }

    /// By the text of `/proc/PID/cgroup`.
    fn of_groups(&self, groups: &str) -> Option<PathBuf> {
        let group = |controller: &str| {
            let of = |line: &str| {
                let (_, rest) = line.split_once(':')?;
                let (controllers, path) = rest.split_once(':')?;
                let its = controllers.split(',').any(|name| name == controller);
                its.then(|| PathBuf::from(path.trim_start_matches('/')))
            };
            groups.lines().find_map(of)
        };
        if let Some((tree, group)) = self.first.as_ref().zip(group("freezer")) {
            return own_or_above(tree, &tree.join(group), "freezer.self_freezing");
        }
        let (tree, group) = self.second.as_ref().zip(group(""))?;
        own_or_above(tree, &tree.join(group), "cgroup.freeze")
    }
}

/// The nearest group, from one up, of which a file says 1 (legacy_freezer.c; cgroup-v2.rst).
fn own_or_above(tree: &Path, group: &Path, file: &str) -> Option<PathBuf> {
    let ancestors = group.ancestors().take_while(|above| above.starts_with(tree));
    let mut frozen = ancestors.filter(|above| read(above, file).as_deref() == Some("1"));
    frozen.next().map(Path::to_owned)
}

fn read(group: &Path, name: &str) -> Option<String> {
    Some(proc::utf8(&group.join(name))?.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(group: &Path, state: &str, own: &str) {
        fs::create_dir_all(group).unwrap();
        fs::write(group.join("freezer.state"), format!("{state}\n")).unwrap();
        fs::write(group.join("freezer.self_freezing"), format!("{own}\n")).unwrap();
    }

    #[test]
    fn the_group_to_thaw_is_named() {
        let tree = tempfile::tempdir().unwrap();
        let pod = tree.path().join("kubepods/pod");
        let frozen = || frozen(tree.path(), Path::new("kubepods/pod"));
        set(&pod, "THAWED", "0");
        assert_eq!(frozen(), None);
        set(&pod.join("container"), "FROZEN", "1");
        assert_eq!(frozen(), Some(pod.join("container")));
        set(&pod, "FROZEN", "0");
        set(pod.parent().unwrap(), "FROZEN", "1");
        assert_eq!(frozen().as_deref(), pod.parent());
        set(&pod, "FREEZING", "1");
        assert_eq!(frozen(), Some(pod));
    }

    #[test]
    fn a_process_is_frozen_by_its_group_or_one_above() {
        let root = tempfile::tempdir().unwrap();
        let first = root.path().join("freezer");
        let pod = first.join("kubepods/pod");
        set(&pod, "FROZEN", "0");
        let groups = "5:cpu,freezer:/kubepods/pod\n0::/pod\n";
        let frozen = || Freezers::among(std::slice::from_ref(&first)).of_groups(groups);
        assert_eq!(frozen(), None);
        set(pod.parent().unwrap(), "FROZEN", "1");
        assert_eq!(frozen().as_deref(), pod.parent());
        let second = root.path().join("unified");
        fs::create_dir_all(second.join("pod")).unwrap();
        fs::write(second.join("cgroup.controllers"), "cpu\n").unwrap();
        let frozen = || Freezers::among(std::slice::from_ref(&second)).of_groups(groups);
        assert_eq!(frozen(), None);
        fs::write(second.join("pod/cgroup.freeze"), "1\n").unwrap();
        assert_eq!(frozen(), Some(second.join("pod")));
    }
}
