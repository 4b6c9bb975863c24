//! The probes' tables of directories that hold targets.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use aya::{
    Ebpf,
    maps::{Array, HashMap, MapData},
};
use podstuck_common::root::{FILTER_WORDS, ROOTS, Root, ViewKey, filter_bit, flag};

/// The slot of the host's root directory.
pub const HOST_INDEX: u32 = ROOTS as u32 - 1;

/// A directory in the probes' cache, and what they keep of it: only to remove it.
type KernelPath = [u64; 2];
type Directory = [u64; 11];
/// A directory that was shown to the probes: inode number, file system, index.
type Shown = [u64; 3];

/// The probes' tables of roots.
pub struct RootTables {
    table: Array<MapData, Root>,
    views: HashMap<MapData, ViewKey, u32>,
    known: HashMap<MapData, u32, u8>,
    filter: Array<MapData, u64>,
    directories: HashMap<MapData, KernelPath, Directory>,
    failures: Array<MapData, u64>,
    shown: HashMap<MapData, u64, Shown>,
    written: BTreeMap<ViewKey, u32>,
    looked_at: BTreeSet<u32>,
}

impl RootTables {
    /// Takes the tables out of the loaded probes. They know the host's root directory already.
    ///
    /// # Errors
    /// Fails when this build has no such tables.
    pub fn take(ebpf: &mut Ebpf) -> Result<Self> {
        let mut map = |name: &'static str| {
            ebpf.take_map(name).with_context(|| format!("this build has no map `{name}`"))
        };
        let mut tables = Self {
            table: Array::try_from(map("ROOT_TABLE")?).context("map `ROOT_TABLE`")?,
            views: HashMap::try_from(map("VIEWS")?).context("map `VIEWS`")?,
            known: HashMap::try_from(map("KNOWN_VIEWS")?).context("map `KNOWN_VIEWS`")?,
            filter: Array::try_from(map("VIEW_FILTER")?).context("map `VIEW_FILTER`")?,
            directories: HashMap::try_from(map("DIRECTORIES")?).context("map `DIRECTORIES`")?,
            failures: Array::try_from(map("FAILURES")?).context("map `FAILURES`")?,
            shown: HashMap::try_from(map("SHOWN")?).context("map `SHOWN`")?,
            written: BTreeMap::new(),
            looked_at: BTreeSet::new(),
        };
        tables.set(HOST_INDEX, Root { path: 0, depth: 0, flags: flag::HOST })?;
        Ok(tables)
    }

    /// Writes the entry of the directory with this index.
    ///
    /// # Errors
    /// Fails when the kernel refuses the write.
    pub fn set(&mut self, index: u32, root: Root) -> Result<()> {
        self.table.set(index, root, 0).context("writing `ROOT_TABLE`")
    }

    /// Makes the probes forget the directories that were shown by these indexes, which are about to be reused.
    ///
    /// # Errors
    /// Fails when the kernel refuses the write.
    pub fn forget(&mut self, indexes: &[usize]) -> Result<()> {
        for index in indexes {
            self.set(*index as u32, Root::default())?;
        }
        let is_one = |shown: &Shown| indexes.iter().any(|index| *index as u64 == shown[2]);
        let shown: Vec<(u64, Shown)> =
            self.shown.iter().collect::<Result<_, _>>().context("reading `SHOWN`")?;
        for (inode, _) in shown.into_iter().filter(|(_, shown)| is_one(shown)) {
            self.shown.remove(&inode).context("removing from `SHOWN`")?;
        }
        Ok(())
    }

    /// Makes the probes forget what they found out about directories before.
    ///
    /// # Errors
    /// Fails when the kernel refuses it; they forget within a second anyway.
    pub fn forget_directories(&mut self) -> Result<()> {
        let known: Vec<KernelPath> = self.directories.keys().flatten().collect();
        for directory in known {
            // The entry may be gone already.
            let _ = self.directories.remove(&directory);
        }
        // By this number they detect that a private copy is outdated.
        let failures = self.failures.get(&0, 0).context("reading `FAILURES`")?;
        self.failures.set(0, failures + 1, 0).context("writing `FAILURES`")
    }

    /// Writes by which paths the roots are known, by view, and which mount namespaces were scanned.
    ///
    /// # Errors
    /// Fails when the kernel refuses a write; earlier writes stay valid.
    pub fn set_views(
        &mut self,
        views: BTreeMap<ViewKey, u32>,
        looked_at: BTreeSet<u32>,
    ) -> Result<()> {
        // New entries first: a call between the two steps finds all that it found before.
        let mut filter = [0_u64; FILTER_WORDS as usize];
        for key in views.keys() {
            let (word, bit) = filter_bit(key.path);
            filter[word as usize] |= bit;
        }
        for (key, index) in &views {
            if self.written.get(key) != Some(index) {
                self.views.insert(key, index, 0).context("writing `VIEWS`")?;
            }
        }
        for (word, bits) in filter.into_iter().enumerate() {
            self.filter.set(word as u32, bits, 0).context("writing `VIEW_FILTER`")?;
        }
        for view in looked_at.difference(&self.looked_at) {
            self.known.insert(view, 1, 0).context("writing `KNOWN_VIEWS`")?;
        }
        // The number of a namespace may be reused.
        for view in self.looked_at.difference(&looked_at) {
            let _ = self.known.remove(view);
        }
        for key in self.written.keys().filter(|key| !views.contains_key(key)) {
            let _ = self.views.remove(key);
        }
        (self.written, self.looked_at) = (views, looked_at);
        Ok(())
    }
}
