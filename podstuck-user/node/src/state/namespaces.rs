//! Mount namespaces: those that a process is in, and those that only a file keeps alive.
//!
//! A namespace lives while a process is in it, while its `nsfs` file is mounted somewhere (`snap`
//! and `unshare --mount=FILE` do that), or while that file is open. All its mounts live as long.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use podstuck_confine::proc;
pub(super) use podstuck_confine::proc::mount_namespace as number;
use podstuck_model::mounts::{Mounts, NodeMounts};

/// Every mount namespace that a process is in, by its inode number, with the processes that are.
/// Threads that have left their process's namespace are not looked for.
pub(crate) fn with_processes() -> BTreeMap<u32, Vec<u32>> {
    let mut namespaces: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for pid in proc::processes() {
        // Reading a link, other than following it, touches no file system but `/proc`.
        if let Some(namespace) = of_process(pid) {
            namespaces.entry(namespace).or_default().push(pid);
        }
    }
    namespaces
}

/// Inode number of a process's mount namespace; `None` when it has ended.
pub fn of_process(pid: u32) -> Option<u32> {
    number(&proc::namespace(Path::new(&format!("/proc/{pid}")), "mnt")?)
}

/// Whether the first process sees these mounts, also where its link may not be read: ids of mounts are unique.
pub(super) fn is_first_process_in(table: &Mounts) -> bool {
    let root = proc::mounts(1).and_then(|first| first.all.first().map(|mount| mount.id));
    root.is_some_and(|root| table.by_id(root).is_some())
}

/// The namespace that we are in, if the first process is known to be in another.
pub fn own_apart() -> Option<u32> {
    let pid = std::process::id();
    let own = of_process(pid)?;
    let is_hosts = match of_process(1) {
        Some(host) => host == own,
        None => is_first_process_in(&proc::mounts(pid)?),
    };
    (!is_hosts).then_some(own)
}

/// Namespaces whose file is mounted somewhere and that are in no table yet: inode number, a process
/// that sees the file, and where it sees it.
pub fn mounted(node: &NodeMounts) -> BTreeMap<u32, (u32, PathBuf)> {
    let mut pinned = BTreeMap::new();
    for table in node.tables.values() {
        for mount in table.all.iter().filter(|mount| mount.fs_type == "nsfs") {
            if let Some(namespace) = number(&mount.root)
                && !node.tables.contains_key(&namespace)
            {
                pinned.entry(namespace).or_insert_with(|| (table.pid, mount.point.clone()));
            }
        }
    }
    pinned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_in_a_namespace() {
        let own = of_process(std::process::id()).unwrap();
        assert!(with_processes()[&own].contains(&std::process::id()));
        assert_eq!(of_process(u32::MAX >> 1), None);
    }

    #[test]
    fn a_namespace_is_named_by_its_number() {
        assert_eq!(number(Path::new("mnt:[4026531841]")), Some(4_026_531_841));
        for other in ["net:[4026531841]", "mnt:[x]", "/mnt", ""] {
            assert_eq!(number(Path::new(other)), None, "{other}");
        }
    }
}
