//! Mount tables.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

pub use super::mountinfo::{Device, Mount};
use super::path::in_run;

/// The mount table of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounts {
    /// In mount order.
    pub all: Vec<Mount>,
    /// The file that they were read from.
    pub source: String,
    /// The process that the table was read from; 0 for a namespace without one.
    pub pid: u32,
}

impl Mounts {
    /// Mounts at a path, the topmost last.
    pub fn at<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a Mount> {
        self.all.iter().filter(move |m| m.point == path)
    }

    /// Mounts below a path.
    pub fn below<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a Mount> {
        self.all.iter().filter(move |m| m.point != path && m.point.starts_with(path))
    }

    /// The mount with an id.
    pub fn by_id(&self, id: u32) -> Option<&Mount> {
        self.all.iter().find(|m| m.id == id)
    }

    /// The mount that an unmount of this path would remove: the one at the path that no other covers.
    pub fn top<'a>(&'a self, path: &'a Path) -> Option<&'a Mount> {
        let here: Vec<&Mount> = self.at(path).collect();
        let covered = |mount: &Mount| here.iter().any(|other| other.parent == mount.id);
        here.iter().rev().find(|mount| !covered(mount)).copied()
    }

    /// The mounts whose parent is this one.
    pub fn children(&self, id: u32) -> impl Iterator<Item = &Mount> {
        self.all.iter().filter(move |m| m.parent == id && m.id != id)
    }

    /// The mounts on the file or directory that a path names, whatever path leads to it, the topmost last. The path
    /// may begin with symbolic links, which mount tables do not contain: its last three components count, and
    /// /var/run is taken as /run (Filesystem Hierarchy Standard 3.0, section 5.13). While one of these mounts
    /// exists, no process in this namespace can remove the file (`may_delete` and `is_local_mountpoint` in
    /// fs/namei.c).
    pub fn on_file(&self, path: &Path) -> Vec<&Mount> {
        let by_id: BTreeMap<u32, &Mount> = self.all.iter().map(|mount| (mount.id, mount)).collect();
        let place = |mount: &Mount| {
            let above = by_id.get(&mount.parent)?;
            let below = mount.point.strip_prefix(&above.point).ok()?;
            // A mount stacked on another mount covers no file of its own.
            (mount.point != above.point).then(|| (above.device, above.root.join(below)))
        };
        let tail = |path: &Path| -> Vec<_> {
            path.components().rev().take(3).map(|name| name.as_os_str().to_owned()).collect()
        };
        let wanted = tail(path);
        let named = self.all.iter().filter(|mount| tail(&mount.point) == wanted);
        let mut places: BTreeSet<_> = named.filter_map(place).collect();
        for path in [path, &in_run(path)] {
            let above = path.parent().and_then(|above| self.place(above));
            let own = above.zip(path.file_name()).map(|((on, at), name)| (on, at.join(name)));
            places.extend(own);
        }
        let mut found: Vec<&Mount> = Vec::new();
        for mount in &self.all {
            let covers = |other: &&Mount| other.id == mount.parent && other.point == mount.point;
            if place(mount).is_some_and(|place| places.contains(&place)) || found.iter().any(covers)
            {
                found.push(mount);
            }
        }
        found
    }

    /// The file system that contains a path, and the path within it, by text.
    pub fn place(&self, path: &Path) -> Option<(Device, PathBuf)> {
        let mount = self.covering(path)?;
        Some((mount.device, mount.root.join(path.strip_prefix(&mount.point).ok()?)))
    }

    /// The mount that contains a path, by text.
    pub fn covering(&self, path: &Path) -> Option<&Mount> {
        let above = self.all.iter().filter(|m| path.starts_with(&m.point));
        // Of several at one path, the last: it covers the others.
        above.max_by_key(|m| m.point.as_os_str().len())
    }
}

/// The mount tables of all namespaces of the node, by inode number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMounts {
    /// The tables; unchanged ones are shared with the previous sample.
    pub tables: BTreeMap<u32, Arc<Mounts>>,
    /// The mount namespace of the node's init process.
    pub host: Option<u32>,
}

impl NodeMounts {
    /// Number of mounts.
    pub fn count(&self) -> usize {
        self.tables.values().map(|table| table.all.len()).sum()
    }

    /// All mounts, each with its namespace and table.
    pub fn all(&self) -> impl Iterator<Item = (u32, &Mounts, &Mount)> {
        self.tables
            .iter()
            .flat_map(|(namespace, table)| table.all.iter().map(|m| (*namespace, &**table, m)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mountinfo;

    fn mounts(text: &str) -> Mounts {
        let all = mountinfo::parse(text.as_bytes());
        Mounts { all, source: "/proc/7/mountinfo".into(), pid: 7 }
    }

    /// The file of a network namespace below /run, which is a file system of its own, and by a second path.
    #[test]
    fn what_lies_on_a_file_is_found_by_every_way_to_it() {
        let table = mounts(
            "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:20 / /run rw - tmpfs tmpfs rw\n\
             3 1 0:20 / /mnt/host-run rw - tmpfs tmpfs rw\n\
             4 2 0:4 net:[4026532001] /run/netns/cni-a rw - nsfs nsfs rw\n\
             5 3 0:4 net:[4026532001] /mnt/host-run/netns/cni-a rw - nsfs nsfs rw\n\
             6 2 0:4 net:[4026532002] /run/netns/cni-b rw - nsfs nsfs rw\n\
             7 4 0:4 net:[4026532001] /run/netns/cni-a rw - nsfs nsfs rw\n\
             8 1 8:1 /elsewhere /srv/run rw - ext4 /dev/a rw\n\
             9 8 0:4 net:[4026532003] /srv/run/netns/cni-c rw - nsfs nsfs rw\n",
        );
        let on = |path: &str| -> Vec<u32> {
            table.on_file(Path::new(path)).into_iter().map(|mount| mount.id).collect()
        };
        assert_eq!(on("/var/run/netns/cni-a"), [4, 5, 7], "/var/run is a link to /run");
        assert_eq!(on("/run/netns/cni-b"), [6]);
        assert_eq!(on("/run/netns/cni-none"), [0; 0]);
        assert_eq!(on("/netns/cni-a"), [0; 0], "another place of the same name");
        let left = mounts(
            "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:20 / /run rw - tmpfs tmpfs rw\n\
             3 1 0:20 /netns /srv/ns rw - tmpfs tmpfs rw\n4 3 0:4 net:[1] /srv/ns/cni-a rw - nsfs nsfs rw\n",
        );
        let found = |path: &str| left.on_file(Path::new(path)).len();
        assert_eq!(
            ["/run/netns/cni-a", "/var/run/netns/cni-a", "/run/netns/cni-b"].map(found),
            [1, 1, 0]
        );
    }

    /// The same name on another file system is another file.
    #[test]
    fn a_name_alone_is_no_file() {
        let table = mounts(
            "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:20 / /run rw - tmpfs tmpfs rw\n\
             3 1 0:21 / /mnt/run rw - tmpfs tmpfs rw\n4 2 0:4 net:[1] /run/netns/cni-a rw - nsfs nsfs rw\n\
             5 3 0:4 net:[1] /mnt/run/netns/other rw - nsfs nsfs rw\n",
        );
        let found = table.on_file(Path::new("/run/netns/cni-a"));
        assert_eq!(found.iter().map(|mount| mount.id).collect::<Vec<_>>(), [4]);
    }
}
