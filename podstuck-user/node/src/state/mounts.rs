//! The mounts of all namespaces of the node.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    asked::{AsWhom, Asked, from_proc},
    namespaces,
};
use podstuck_confine::{helper::Share, proc};
use podstuck_model::{
    mounts::{Mount, Mounts, NodeMounts},
    query::{ReadMounts, ReadMountsOn},
};

impl Asked for ReadMounts {
    async fn answer(self, _: Share, _: &AsWhom) -> Option<Mounts> {
        from_proc(move || around(&self)).await.flatten()
    }
}

impl Asked for ReadMountsOn {
    async fn answer(self, _: Share, _: &AsWhom) -> Option<Mounts> {
        let read = move || {
            let mut found = of_namespace(self.pid, self.namespace)?;
            found.all = found.on_file(&self.path).into_iter().cloned().collect();
            Some(found)
        };
        from_proc(read).await.flatten()
    }
}

/// The mounts above, at and below a path, and one by its id.
fn around(asked: &ReadMounts) -> Option<Mounts> {
    let ReadMounts { pid, namespace, path, mount_id } = asked;
    let mut found = of_namespace(*pid, *namespace)?;
    let wanted = |mount: &Mount| {
        let on_the_way = mount.point.starts_with(path) || path.starts_with(&mount.point);
        on_the_way || (*mount_id != 0 && mount.id == *mount_id)
    };
    found.all.retain(wanted);
    Some(found)
}

/// The mounts of all these namespaces, with the host's among them. Where the link of the first process
/// may not be read, its table tells: ids of mounts are unique.
pub(super) fn of_node(tables: BTreeMap<u32, Arc<Mounts>>) -> NodeMounts {
    let host = namespaces::of_process(1).or_else(|| {
        let host = tables.iter().find(|(_, table)| namespaces::is_first_process_in(table));
        host.map(|(namespace, _)| *namespace)
    });
    NodeMounts { tables, host }
}

/// Reads all that have a process. Of a namespace's processes the one with the lowest id is asked:
/// usually the first one of a container, which sees the whole of it. (A process in a chroot is shown
/// only what lies below.)
pub(super) fn read_all() -> NodeMounts {
    let tables = namespaces::with_processes().into_iter();
    let tables = tables.filter_map(|(namespace, pids)| {
        let table = pids.into_iter().find_map(proc::mounts)?;
        Some((namespace, Arc::new(table)))
    });
    of_node(tables.collect())
}

/// Mounts of the namespace with this inode number: of `pid` if it still is in there, else of
/// another process that is. `None` when the namespace has no process left that can be read.
pub(crate) fn of_namespace(pid: u32, namespace: u32) -> Option<Mounts> {
    let is_in = |pid: &u32| namespaces::of_process(*pid) == Some(namespace);
    let direct = [pid, std::process::id()].into_iter().filter(is_in).find_map(proc::mounts);
    direct.or_else(|| proc::processes().into_iter().filter(is_in).find_map(proc::mounts))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn own_mounts_are_found_by_namespace() {
        let own = namespaces::of_process(std::process::id()).unwrap();
        let mounts = of_namespace(u32::MAX >> 1, own).unwrap();
        assert!(mounts.at(Path::new("/proc")).count() >= 1);
        let root = mounts.at(Path::new("/")).next().unwrap();
        assert_eq!(mounts.by_id(root.id), Some(root));
        assert!(mounts.below(Path::new("/")).any(|m| m.point == Path::new("/proc")));
        let node = read_all();
        assert!(node.count() >= mounts.all.len());
        assert_eq!(node.tables[&own].by_id(root.id), Some(root));
    }

    #[test]
    fn a_namespace_that_does_not_exist_has_no_process() {
        assert_eq!(of_namespace(1, 1), None);
    }

    #[test]
    fn what_covers_and_what_is_covered() {
        let text = b"1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:9 / /v rw - tmpfs t rw\n\
            3 2 0:10 / /v rw - tmpfs t rw\n4 3 0:11 / /v/x rw - tmpfs t rw\n";
        let mounts = proc::parse_mounts(7, text);
        let id = |mount: Option<&Mount>| mount.map(|m| m.id);
        assert_eq!(id(mounts.top(Path::new("/v"))), Some(3));
        assert_eq!(id(mounts.top(Path::new("/w"))), None);
        assert_eq!(id(mounts.covering(Path::new("/v/y"))), Some(3));
        assert_eq!(id(mounts.covering(Path::new("/vv"))), Some(1));
        assert_eq!(mounts.children(3).map(|m| m.id).collect::<Vec<_>>(), [4]);
    }
}
