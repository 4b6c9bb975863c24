//! Mounts as processes see them. `/proc/PID/mountinfo` is text that the kernel keeps; reading it
//! touches no file system.
//!
//! No descriptor of it is kept: an open one keeps the whole namespace alive, with every mount in
//! it, also after its last process (`proc_mounts_open` in fs/proc_namespace.c takes a reference).

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use super::{mountinfo, namespaces};

pub use super::mountinfo::{Device, Mount};

/// All mounts of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    /// In the order of mounting.
    pub all: Vec<Mount>,
    /// The file they were read from.
    pub source: String,
    /// The process whose view it is; 0 for a namespace without one.
    pub pid: u32,
}

impl Mounts {
    /// From the text of a process's table.
    pub(crate) fn parse(pid: u32, text: &[u8]) -> Self {
        Self { all: mountinfo::parse(text), source: table_of(pid), pid }
    }

    /// Mounts exactly at a path, the uppermost last.
    pub fn at<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a Mount> {
        self.all.iter().filter(move |m| m.point == path)
    }

    /// Mounts somewhere below a path.
    pub fn below<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a Mount> {
        self.all.iter().filter(move |m| m.point != path && m.point.starts_with(path))
    }

    /// The mount of an id.
    pub fn by_id(&self, id: u32) -> Option<&Mount> {
        self.all.iter().find(|m| m.id == id)
    }

    /// The mount that an unmount of this path would take away: of those at the path, the one that
    /// no other covers.
    pub fn top<'a>(&'a self, path: &'a Path) -> Option<&'a Mount> {
        let here: Vec<&Mount> = self.at(path).collect();
        let covered = |mount: &Mount| here.iter().any(|other| other.parent == mount.id);
        here.iter().rev().find(|mount| !covered(mount)).copied()
    }

    /// The mounts that are mounted on this one.
    pub fn children(&self, id: u32) -> impl Iterator<Item = &Mount> {
        self.all.iter().filter(move |m| m.parent == id && m.id != id)
    }

    /// The mount that a path lies on, by its text.
    pub fn covering(&self, path: &Path) -> Option<&Mount> {
        let above = self.all.iter().filter(|m| path.starts_with(&m.point));
        // Of equals the last: it covers those before.
        above.max_by_key(|m| m.point.as_os_str().len())
    }
}

/// The mounts of all namespaces of the node, by inode number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeMounts {
    /// One table for each; unchanged ones are the same as in the sample before.
    pub tables: BTreeMap<u32, Arc<Mounts>>,
}

impl NodeMounts {
    /// Reads all that have a process. Of a namespace's processes the one with the lowest id is
    /// asked: usually the first one of a container, which sees the whole of it. (A process in a
    /// chroot is shown only what lies below.)
    pub fn read() -> Self {
        let tables = namespaces::with_processes().into_iter();
        let tables = tables.filter_map(|(namespace, pids)| {
            let table = pids.into_iter().find_map(of_process)?;
            Some((namespace, Arc::new(table)))
        });
        Self { tables: tables.collect() }
    }

    /// How many mounts there are.
    pub fn count(&self) -> usize {
        self.tables.values().map(|table| table.all.len()).sum()
    }

    /// Every mount with the namespace that it is in.
    pub fn all(&self) -> impl Iterator<Item = (u32, &Mounts, &Mount)> {
        self.tables
            .iter()
            .flat_map(|(namespace, table)| table.all.iter().map(|m| (*namespace, &**table, m)))
    }
}

/// Mounts of the namespace with this inode number: of `pid` if it still is in there, else of
/// another process that is. `None` when the namespace has no process left that can be read.
pub fn of_namespace(pid: u32, namespace: u32) -> Option<Mounts> {
    let is_in = |pid: &u32| namespaces::of_process(*pid) == Some(namespace);
    let direct = [pid, std::process::id()].into_iter().filter(is_in).find_map(of_process);
    direct.or_else(|| namespaces::processes().into_iter().filter(is_in).find_map(of_process))
}

/// Mounts that a process sees.
pub(super) fn of_process(pid: u32) -> Option<Mounts> {
    let text = fs::read(table_of(pid)).ok()?;
    Some(Mounts::parse(pid, &text))
}

/// A path as the kernel writes it into its tables, with odd bytes as `\\ooo`.
pub(super) fn unescaped(field: &[u8]) -> std::path::PathBuf {
    mountinfo::unescape(field)
}

/// The file with a process's mounts.
pub(super) fn table_of(pid: u32) -> String {
    format!("/proc/{pid}/mountinfo")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_mounts_are_found_by_namespace() {
        let own = namespaces::of_process(std::process::id()).unwrap();
        let mounts = of_namespace(u32::MAX >> 1, own).unwrap();
        assert!(mounts.at(Path::new("/proc")).count() >= 1);
        let root = mounts.at(Path::new("/")).next().unwrap();
        assert_eq!(mounts.by_id(root.id), Some(root));
        assert!(mounts.below(Path::new("/")).any(|m| m.point == Path::new("/proc")));
        let node = NodeMounts::read();
        assert!(node.count() >= mounts.all.len());
        assert_eq!(node.tables[&own].by_id(root.id), Some(root));
    }

    #[test]
    fn nobody_lives_in_a_namespace_that_does_not_exist() {
        assert_eq!(of_namespace(1, 1), None);
    }

    #[test]
    fn what_covers_and_what_is_covered() {
        let text = b"1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:9 / /v rw - tmpfs t rw\n\
            3 2 0:10 / /v rw - tmpfs t rw\n4 3 0:11 / /v/x rw - tmpfs t rw\n";
        let mounts = Mounts::parse(7, text);
        let id = |mount: Option<&Mount>| mount.map(|m| m.id);
        assert_eq!(id(mounts.top(Path::new("/v"))), Some(3));
        assert_eq!(id(mounts.top(Path::new("/w"))), None);
        assert_eq!(id(mounts.covering(Path::new("/v/y"))), Some(3));
        assert_eq!(id(mounts.covering(Path::new("/vv"))), Some(1));
        assert_eq!(mounts.children(3).map(|m| m.id).collect::<Vec<_>>(), [4]);
    }
}
