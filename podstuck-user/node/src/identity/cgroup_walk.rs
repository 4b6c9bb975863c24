//! Searches for the control group of a pod.

use std::{
    collections::{HashMap, VecDeque},
    fs,
    path::{Path, PathBuf},
};

use super::cgroup::{is_users, pod_uid};

/// Most directories that are read: several times what a full node has, even with a tree per controller.
const MOST: usize = 50_000;
/// Greatest depth. kubelet's groups are at most four levels below their root; nested nodes and version 1 add some.
const DEEPEST: usize = 12;

/// The first directory found that is the pod's group. Pods' groups are not entered, so groups that a container creates
/// can neither prolong the search nor mislead it.
pub(super) fn find_pod_cgroup(root: &Path, uid: &str) -> Option<PathBuf> {
    let mut wanted = None;
    walk(root, |found, group| {
        if found == uid {
            wanted = Some(group);
        }
        wanted.is_none()
    });
    wanted
}

/// The groups of all pods, by UID.
pub(crate) fn pod_cgroups(root: &Path) -> HashMap<String, Vec<PathBuf>> {
    let mut groups: HashMap<String, Vec<PathBuf>> = HashMap::new();
    walk(root, |uid, group| {
        groups.entry(uid).or_default().push(group);
        true
    });
    groups
}

/// Calls `go_on` with each pod's UID and group until it returns `false`.
fn walk(root: &Path, mut go_on: impl FnMut(String, PathBuf) -> bool) {
    let mut queue = VecDeque::from([(root.to_owned(), 0)]);
    let mut seen = 0;
    while let Some((dir, depth)) = queue.pop_front() {
        // Groups come and go while they are read.
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            seen += 1;
            if seen > MOST {
                tracing::warn!("stopped after {MOST} control groups below {}", root.display());
                return;
            }
            let name = entry.file_name();
            let pod = name.to_str().and_then(pod_uid);
            let is_users = name.to_str().is_some_and(is_users);
            let enter = pod.is_none() && !is_users && depth + 1 < DEEPEST;
            if pod.is_some_and(|uid| !go_on(uid, entry.path())) {
                return;
            }
            if enter {
                queue.push_back((entry.path(), depth + 1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
    const STATIC: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn both_drivers_groups_are_found() {
        let root = tempfile::tempdir().unwrap();
        let slice = root.path().join(format!(
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice",
            UID.replace('-', "_")
        ));
        fs::create_dir_all(&slice).unwrap();
        let plain = root.path().join(format!("memory/kubepods/pod{STATIC}"));
        fs::create_dir_all(&plain).unwrap();
        assert_eq!(find_pod_cgroup(root.path(), UID), Some(slice));
        assert_eq!(find_pod_cgroup(root.path(), STATIC), Some(plain));
        assert_eq!(find_pod_cgroup(root.path(), &UID.replace('0', "1")), None);
    }

    #[test]
    fn a_container_cannot_pretend_to_be_a_pod() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join(format!("kubepods/pod{STATIC}/c/pod{UID}"))).unwrap();
        let user = root.path().join("user.slice/user-9.slice/user@9.service");
        fs::create_dir_all(user.join(format!("kubepods/pod{UID}"))).unwrap();
        fs::write(root.path().join(format!("pod{UID}")), "").unwrap();
        assert_eq!(find_pod_cgroup(root.path(), UID), None);
    }

    #[test]
    fn a_missing_root_finds_nothing() {
        assert_eq!(find_pod_cgroup(Path::new("/nonexistent"), UID), None);
    }
}
