//! The freezer of version 1 (kernel/cgroup/legacy_freezer.c). A process in a frozen group does not
//! even take SIGKILL; with version 2 it does.

use std::path::{Path, PathBuf};

use super::hierarchies::below;
use podstuck_confine::proc;

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

/// The nearest group, from one up, of which a file says 1 (legacy_freezer.c; cgroup-v2.rst).
pub(super) fn own_or_above(tree: &Path, group: &Path, file: &str) -> Option<PathBuf> {
    let ancestors = group.ancestors().take_while(|above| above.starts_with(tree));
    let mut frozen = ancestors.filter(|above| read(above, file).as_deref() == Some("1"));
    frozen.next().map(Path::to_owned)
}

pub(super) fn read(group: &Path, name: &str) -> Option<String> {
    Some(proc::utf8(&group.join(name))?.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

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
}
