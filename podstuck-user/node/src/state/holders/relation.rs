//! Which mounts of the node matter for a question, and what it means that one of them is used.
//!
//! `umount2` without flags fails with EBUSY when the mount has a child, when a process uses it, or
//! when a process uses a copy that would be unmounted with it (`propagate_mount_busy` in
//! fs/pnode.c). Those copies are found from the *parent*: on every mount that receives from the
//! parent's peer group, what is mounted at the same directory. A copy that has children of its own
//! is skipped and left behind, unless its only child covers it. All other mounts of the file system
//! keep nothing but its superblock alive.

use std::{
    collections::{HashMap, HashSet},
    ops::Deref,
    path::{Path, PathBuf},
    rc::Rc,
};

use super::detached;
use podstuck_model::{
    holder::{HeldMount, Through},
    mounts::{Device, Mount, Mounts, NodeMounts},
    path::JsonPath,
};

/// A mount that matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Relevant {
    pub(super) through: Through,
    pub(super) namespace: u32,
    pub(super) point: PathBuf,
    /// A process that sees it there.
    pub(super) pid: u32,
    /// Whether its use makes the unmount fail; `None` when no unmount was asked about.
    pub(super) blocks: Option<bool>,
}

/// What is looked for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) relevant: HashMap<u32, Relevant>,
    pub(super) device: Device,
    /// Only this file, and not everything on the mounts.
    pub(super) inode: Option<u64>,
    /// The mount whose unmount was asked about, with its namespace.
    pub(super) mount: Option<(u32, u32)>,
    /// All mounts of the node: one that is not among them is detached.
    known: Rc<HashSet<u32>>,
}

/// The mounts of a node, with their ids, which all that is wanted there shares.
pub(super) struct Node {
    mounts: NodeMounts,
    ids: Rc<HashSet<u32>>,
}

impl Deref for Node {
    type Target = NodeMounts;

    fn deref(&self) -> &NodeMounts {
        &self.mounts
    }
}

impl From<NodeMounts> for Node {
    fn from(mounts: NodeMounts) -> Self {
        let ids = Rc::new(mounts.all().map(|(_, _, mount)| mount.id).collect());
        Self { mounts, ids }
    }
}

/// Something that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) through: Through,
    pub(super) explains: Option<bool>,
    pub(super) mount: HeldMount,
}

impl Wanted {
    /// The holders of a mount, given by its namespace and id; `None` when it is not there.
    pub(super) fn mount(node: &Node, namespace: u32, id: u32) -> Option<Self> {
        let table = node.tables.get(&namespace)?;
        let mount = table.by_id(id)?;
        let mut wanted = Self::new(node, mount.device);
        wanted.mount = Some((namespace, id));
        wanted.add(namespace, table, mount, Through::Itself, Some(true));
        wanted.add_copies(node, table, mount);
        // Where only a part of a file system is mounted, its other mounts belong to other users of it.
        if mount.root == Path::new("/") {
            wanted.add_device(node, Through::OtherMount, Some(false));
        }
        Some(wanted)
    }

    /// The holders of a device.
    pub(super) fn device(node: &Node, device: Device) -> Self {
        let mut wanted = Self::new(node, device);
        wanted.add_device(node, Through::Itself, None);
        wanted
    }

    /// The holders of a file that lies on this mount.
    pub(super) fn file(node: &Node, device: Device, inode: u64, mount: u32) -> Self {
        let mut wanted = Self::new(node, device);
        wanted.inode = Some(inode);
        if let Some((namespace, table, mount)) = node.all().find(|(_, _, m)| m.id == mount) {
            wanted.add(namespace, table, mount, Through::Itself, None);
        }
        wanted.add_device(node, Through::OtherMount, None);
        wanted
    }

    fn new(node: &Node, device: Device) -> Self {
        let known = node.ids.clone();
        Self { relevant: HashMap::new(), device, inode: None, mount: None, known }
    }

    /// How a process that uses this mount blocks the unmount, if it does. The device is needed only for a
    /// mount that is in no table.
    pub(super) fn hit(
        &self,
        mount: u32,
        device: Option<Device>,
        inode: Option<u64>,
    ) -> Option<Hit> {
        if self.inode.is_some() && self.inode != inode {
            return None;
        }
        if let Some(found_on) = self.relevant.get(&mount) {
            return Some(found_on.hit(mount));
        }
        if self.known.contains(&mount) || device != Some(self.device) {
            return None;
        }
        let point = JsonPath(PathBuf::new());
        Some(Hit {
            through: Through::Detached,
            explains: self.mount.map(|_| false),
            mount: HeldMount { id: mount, namespace: None, point, detached: None },
        })
    }

    /// Whether a mount is in no table.
    pub(super) fn is_unknown(&self, mount: u32) -> bool {
        !self.known.contains(&mount)
    }

    fn add(
        &mut self,
        namespace: u32,
        table: &Mounts,
        mount: &Mount,
        through: Through,
        blocks: Option<bool>,
    ) {
        let point = mount.point.clone();
        let found_on = Relevant { through, namespace, point, pid: table.pid, blocks };
        self.relevant.entry(mount.id).or_insert(found_on);
    }

    fn add_device(&mut self, node: &NodeMounts, through: Through, blocks: Option<bool>) {
        for (namespace, table, mount) in node.all() {
            if mount.device == self.device {
                self.add(namespace, table, mount, through, blocks);
            }
        }
    }

    fn add_copies(&mut self, node: &NodeMounts, table: &Mounts, mount: &Mount) {
        let Some(parent) = table.by_id(mount.parent) else { return };
        let (Some(group), Some(place)) = (parent.shared, place(parent, mount)) else { return };
        let groups = receiving(node, group);
        let receives =
            |m: &Mount| [m.shared, m.master].iter().flatten().any(|g| groups.contains(g));
        for (namespace, table) in &node.tables {
            let parents: HashMap<u32, &Mount> =
                table.all.iter().filter(|m| receives(m)).map(|m| (m.id, m)).collect();
            for copy in &table.all {
                let same = parents.get(&copy.parent).and_then(|parent| self::place(parent, copy));
                if copy.id != mount.id && same.as_ref() == Some(&place) {
                    let blocks = goes_along(table, copy);
                    self.add(*namespace, table, copy, Through::PropagatedCopy, Some(blocks));
                }
            }
        }
    }
}

impl Relevant {
    pub(super) fn hit(&self, id: u32) -> Hit {
        let point = JsonPath(self.point.clone());
        let mount = HeldMount { id, namespace: Some(self.namespace), point, detached: None };
        Hit { through: self.through, explains: self.blocks, mount }
    }
}

impl Hit {
    /// Adds what a detached mount was mounted from, by a link of `/proc` that leads to it.
    pub(super) fn named(mut self, link: &Path) -> Self {
        if self.through == Through::Detached {
            self.mount.detached = Some(detached::seen_through(link, self.mount.id));
        }
        self
    }
}

/// All peer groups that a mount below the first is propagated to: slaves may be peers of others,
/// which have slaves again.
fn receiving(node: &NodeMounts, group: u32) -> HashSet<u32> {
    let mut groups = HashSet::from([group]);
    loop {
        let slaves = node.all().filter(|(_, _, m)| m.master.is_some_and(|g| groups.contains(&g)));
        let further: Vec<u32> = slaves.filter_map(|(_, _, m)| m.shared).collect();
        let before = groups.len();
        groups.extend(further);
        if groups.len() == before {
            return groups;
        }
    }
}

/// The directory on the parent's file system that something is mounted on: superblock and path.
fn place(parent: &Mount, mount: &Mount) -> Option<(Device, PathBuf)> {
    let relative = mount.point.strip_prefix(&parent.point).ok()?;
    Some((parent.device, parent.root.join(relative)))
}

/// Whether an unmount takes this copy along.
fn goes_along(table: &Mounts, copy: &Mount) -> bool {
    let mut children = table.children(copy.id);
    match (children.next(), children.next()) {
        (None, _) => true,
        (Some(only), None) => only.point == copy.point,
        (Some(_), Some(_)) => false,
    }
}

/// Everything that is mounted on a mount, and on that, from the top down.
pub(super) fn descendants(table: &Mounts, id: u32) -> Vec<&Mount> {
    let mut found: Vec<&Mount> = table.children(id).collect();
    let mut at = 0;
    while let Some(next) = found.get(at).map(|mount| mount.id) {
        found.extend(table.children(next));
        at += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Namespace 1 is the node's; 2 has a slave of it, 3 a private copy, 4 a slave with a child.
    fn node() -> Node {
        let tables = [
            "1 0 8:1 / / rw shared:1 - ext4 /dev/a rw\n\
             2 1 0:9 / /pods/v rw shared:2 - tmpfs t rw\n\
             3 2 0:10 / /pods/v/x rw - tmpfs t rw\n\
             4 3 0:11 / /pods/v/x/y rw - tmpfs t rw",
            "20 0 0:50 / / rw - overlay o rw\n21 20 8:1 / /host rw master:1 - ext4 /dev/a rw\n\
             22 21 0:9 / /host/pods/v rw master:2 - tmpfs t rw",
            "30 0 8:1 / / rw - ext4 /dev/a rw\n31 30 0:9 / /pods/v rw - tmpfs t rw",
            "40 0 8:1 /pods /p rw shared:7 master:1 - ext4 /dev/a rw\n\
             41 40 0:9 / /p/v rw master:2 - tmpfs t rw\n42 41 0:12 / /p/v/z rw - tmpfs t rw",
            "50 0 8:1 /pods/v /w rw master:7 - ext4 /dev/a rw\n51 50 0:9 / /w rw - tmpfs t rw",
        ];
        let tables = tables.iter().zip(1..).map(|(text, namespace)| {
            (
                namespace,
                Arc::new(podstuck_confine::proc::parse_mounts(namespace * 100, text.as_bytes())),
            )
        });
        NodeMounts { tables: tables.collect(), host: Some(1) }.into()
    }

    fn through(wanted: &Wanted, mount: u32) -> Option<(Through, Option<bool>)> {
        wanted.hit(mount, None, None).map(|hit| (hit.through, hit.explains))
    }

    #[test]
    fn a_copy_blocks_when_the_unmount_reaches_it() {
        let wanted = Wanted::mount(&node(), 1, 2).unwrap();
        assert_eq!(through(&wanted, 2), Some((Through::Itself, Some(true))));
        assert_eq!(through(&wanted, 22), Some((Through::PropagatedCopy, Some(true))));
        assert_eq!(through(&wanted, 31), Some((Through::OtherMount, Some(false))));
        assert_eq!(through(&wanted, 41), Some((Through::PropagatedCopy, Some(false))));
        // A slave of a slave, which sees the directory itself.
        assert_eq!(through(&wanted, 51), Some((Through::PropagatedCopy, Some(true))));
        assert_eq!(through(&wanted, 3), None, "another file system");
    }

    #[test]
    fn a_mount_that_is_in_no_table_is_recognised_by_its_device() {
        let wanted = Wanted::mount(&node(), 1, 2).unwrap();
        let own = Device { major: 0, minor: 9 };
        let hit = wanted.hit(999, Some(own), None).unwrap();
        assert_eq!((hit.through, hit.explains), (Through::Detached, Some(false)));
        assert_eq!(wanted.hit(999, Some(Device { major: 0, minor: 8 }), None), None);
        let device = Wanted::device(&node(), own);
        assert_eq!(device.relevant.len(), 5);
        assert_eq!(through(&device, 31), Some((Through::Itself, None)));
    }

    #[test]
    fn a_file_is_recognised_by_its_inode() {
        let wanted = Wanted::file(&node(), Device { major: 0, minor: 9 }, 77, 2);
        assert!(wanted.hit(2, None, Some(77)).is_some_and(|hit| hit.through == Through::Itself));
        assert!(
            wanted.hit(31, None, Some(77)).is_some_and(|hit| hit.through == Through::OtherMount)
        );
        assert_eq!(wanted.hit(2, None, Some(78)), None);
        assert_eq!(wanted.hit(2, None, None), None);
    }

    #[test]
    fn a_part_of_a_file_system_does_not_pin_the_rest() {
        let wanted = Wanted::mount(&node(), 4, 40).unwrap();
        assert_eq!(wanted.relevant.len(), 1, "{:?}", wanted.relevant);
    }

    #[test]
    fn all_that_is_mounted_on_it_from_the_top_down() {
        let node = node();
        let ids: Vec<u32> = descendants(&node.tables[&1], 2).iter().map(|m| m.id).collect();
        assert_eq!(ids, [3, 4]);
    }
}
