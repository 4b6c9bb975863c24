//! The freezer of version 1 (kernel/cgroup/legacy_freezer.c). A process in a frozen group does not
//! even take SIGKILL; with version 2 it does.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::hierarchies::below;

/// The group that has to be thawed so that the processes of a group run: itself, the nearest one
/// above, or one directly below. `None` when they run.
pub(super) fn frozen(tree: &Path, group: &Path) -> Option<PathBuf> {
    let group = tree.join(group);
    let state = |group: &Path| read(group, "freezer.state");
    let is_frozen = |group: &Path| matches!(state(group).as_deref(), Some("FROZEN" | "FREEZING"));
    if is_frozen(&group) {
        let ancestors = group.ancestors().take_while(|above| above.starts_with(tree));
        let mut frozen =
            ancestors.filter(|above| read(above, "freezer.self_freezing").as_deref() == Some("1"));
        return Some(frozen.next().map_or(group.clone(), Path::to_owned));
    }
    below(&group).find(|container| is_frozen(container))
}

fn read(group: &Path, name: &str) -> Option<String> {
    Some(fs::read_to_string(group.join(name)).ok()?.trim_end().to_owned())
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
}
