//! Mounts as processes see them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

pub use super::mountinfo::{Device, Mount};

/// All mounts of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounts {
    /// In the order of mounting.
    pub all: Vec<Mount>,
    /// The file they were read from.
    pub source: String,
    /// The process whose view it is; 0 for a namespace without one.
    pub pid: u32,
}

impl Mounts {
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

    /// The file system that a path lies on, and where in it, by its text.
    pub fn place(&self, path: &Path) -> Option<(Device, PathBuf)> {
        let mount = self.covering(path)?;
        Some((mount.device, mount.root.join(path.strip_prefix(&mount.point).ok()?)))
    }

    /// The mount that a path lies on, by its text.
    pub fn covering(&self, path: &Path) -> Option<&Mount> {
        let above = self.all.iter().filter(|m| path.starts_with(&m.point));
        // Of equals the last: it covers those before.
        above.max_by_key(|m| m.point.as_os_str().len())
    }
}

/// The mounts of all namespaces of the node, by inode number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMounts {
    /// One table for each; unchanged ones are the same as in the sample before.
    pub tables: BTreeMap<u32, Arc<Mounts>>,
    /// The namespace of the node's first process.
    pub host: Option<u32>,
}

impl NodeMounts {
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
