//! Directories that hold targets: kubelets' roots, and where runtimes keep their data. A path belongs to a
//! target only if it leads through one of them; what it reads like otherwise says nothing.

use std::{
    cmp::Reverse,
    collections::HashMap,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use podstuck_common::{
    component::path_hash,
    root::{HOST_VIEW, ROOTS, Root, flag},
    trail::Trail,
};
use serde::{Deserialize, Serialize};

use super::layout::{PROVING, continue_to, names, normalise, target_root};

/// What lies in such a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Holds {
    /// `pods/<uid>`: kubelet's root.
    Pods,
    /// `volumes/<name>`, `overlay2/<layer>`, `snapshots/<number>`: the data of Docker, of containers-storage and
    /// of snapshotters that run by themselves.
    Data,
    /// One level further down: containerd's root and state, in which each plugin has a directory.
    PluginData,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRoot {
    /// As it was given or found.
    pub path: PathBuf,
    /// Without symbolic links, once it was shown to the probes.
    pub canonical: Option<PathBuf>,
    /// What is in it.
    pub holds: Holds,
    /// A process in whose root directory the path is to be understood, and its mount namespace; `None` for
    /// the host's.
    pub seen_by: Option<(u32, u32)>,
}

impl TargetRoot {
    /// One of the host's.
    pub fn of_host(path: impl Into<PathBuf>, holds: Holds) -> Self {
        Self { path: normalise(&path.into()), canonical: None, holds, seen_by: None }
    }

    /// As a process in this mount namespace sees it.
    pub fn seen_by(self, pid: u32, namespace: u32) -> Self {
        Self { seen_by: Some((pid, namespace)), ..self }
    }

    /// The process in whose root directory its path is to be understood.
    pub fn process(&self) -> Option<u32> {
        self.seen_by.map(|(pid, _)| pid)
    }

    /// The path that the names of its targets begin with.
    pub fn name(&self) -> &Path {
        self.canonical.as_deref().unwrap_or(&self.path)
    }

    fn view(&self) -> u32 {
        self.seen_by.map_or(HOST_VIEW, |(_, namespace)| namespace)
    }

    /// As the probes know it.
    fn root(&self, wanted: Option<&Path>) -> Root {
        let (depth, pods) = match self.holds {
            Holds::Pods => (1, flag::PODS),
            Holds::Data => (1, 0),
            Holds::PluginData => (2, 0),
        };
        let is_wanted = wanted.is_some_and(|wanted| self.name().starts_with(wanted));
        let wanted = if is_wanted { flag::WANTED } else { 0 };
        let path = path_hash(self.name().as_os_str().as_bytes());
        Root { path, depth, flags: flag::HOLDS | pods | wanted }
    }
}

/// All that are known.
#[derive(Debug, Default)]
pub struct TargetRoots {
    all: Vec<TargetRoot>,
    /// By what else they are known, by view.
    views: HashMap<u32, Vec<(PathBuf, usize)>>,
    /// The only wanted directory.
    wanted: Option<PathBuf>,
    /// Nothing can be proven on this kernel: what a path reads like is believed, as the probes do.
    by_text: bool,
    /// Indexes of those that may make room.
    gone: Vec<usize>,
    dropped: u64,
}

impl TargetRoots {
    /// Knows none yet.
    pub fn new(wanted: Option<PathBuf>) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Whether nothing can be proven on this kernel.
    pub fn believe_text(&mut self, by_text: bool) {
        self.by_text = by_text;
    }

    /// Takes one; whether it is new.
    pub fn add(&mut self, root: TargetRoot) -> bool {
        let same = |known: &TargetRoot| {
            (known.view(), known.holds) == (root.view(), root.holds)
                && (known.path == root.path || known.canonical.as_ref() == Some(&root.path))
        };
        if let Some(known) = self.all.iter_mut().find(|known| same(known)) {
            // The process by which it was found may have ended.
            known.seen_by = root.seen_by;
            return false;
        }
        if !self.is_full() {
            self.all.push(root);
        } else if let Some(index) = self.gone.pop() {
            self.all[index] = root;
        } else {
            self.dropped += 1;
            return false;
        }
        true
    }

    /// One slot of the probes' table is for the host's root directory.
    fn is_full(&self) -> bool {
        self.all.len() + 1 >= ROOTS
    }

    /// Where there is no room left, those that are seen in none of these mount namespaces make room. Their
    /// indexes: the probes must forget what they were shown by them.
    pub fn make_room(&mut self, namespaces: impl Fn(u32) -> bool) -> &[usize] {
        if self.is_full() {
            let is_gone = |root: &TargetRoot| root.seen_by.is_some_and(|(_, own)| !namespaces(own));
            let all = self.all.iter().enumerate();
            self.gone = all.filter(|(_, root)| is_gone(root)).map(|(index, _)| index).collect();
        }
        &self.gone
    }

    /// All of them; where one stands is its index in the probes' table.
    pub fn all(&self) -> &[TargetRoot] {
        &self.all
    }

    /// The paths of these in all views.
    pub fn set_views(&mut self, views: HashMap<u32, Vec<(PathBuf, usize)>>) {
        self.views = views;
    }

    /// This is where one of them is.
    pub fn found(&mut self, index: usize, canonical: PathBuf) {
        if let Some(root) = self.all.get_mut(index) {
            root.canonical = Some(canonical);
        }
    }

    /// Which of several that are one directory counts: the highest. The probes know what was shown to them, and
    /// keep the first.
    pub fn rank(&self, index: usize) -> impl Ord + use<> {
        let is_shown = self.all.get(index).is_some_and(|root| root.canonical.is_some());
        (is_shown, Reverse(index))
    }

    /// As the probes know them, by index.
    pub fn table(&self) -> impl Iterator<Item = Root> {
        self.all.iter().map(|root| root.root(self.wanted.as_deref()))
    }

    /// How many there was no space for.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// By which paths those may know the root of a target who named the directory that it lies in.
    pub(crate) fn as_given<'a>(&'a self, root: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
        let given = self.all.iter().filter_map(|known| {
            Some(known.path.join(root.strip_prefix(known.canonical.as_ref()?).ok()?))
        });
        [root.to_owned()].into_iter().chain(given)
    }

    /// Whether it is known by which paths they are reached in this view.
    pub fn has_view(&self, view: u32) -> bool {
        self.views.contains_key(&view)
    }

    /// The target that a path of the host lies in, or of a kubelet that sees others: its root, and where the
    /// path stands in it.
    pub(crate) fn locate(&self, path: &Path) -> Option<(PathBuf, Trail)> {
        self.longest(path, HOST_VIEW, |_| true)
    }

    /// The same of a path in a view.
    pub(crate) fn locate_in(&self, view: u32, path: &Path) -> Option<(PathBuf, Trail)> {
        self.longest(path, view, |root| root.view() == view)
    }

    fn longest(
        &self,
        path: &Path,
        view: u32,
        is_seen: impl Fn(&TargetRoot) -> bool,
    ) -> Option<(PathBuf, Trail)> {
        if self.by_text {
            return target_root(path);
        }
        let path = normalise(path);
        let own = self.all.iter().enumerate().filter(|(_, root)| is_seen(root));
        let own = own.flat_map(|(at, root)| [(root.name(), at), (root.path.as_path(), at)]);
        let other = self.views.get(&view).into_iter().flatten();
        let all = own.chain(other.map(|(path, at)| (path.as_path(), *at)));
        let above = all.filter(|(root, _)| path.starts_with(root));
        // The way through a nested node's own root is longer.
        let (prefix, at) =
            above.max_by_key(|(root, at)| (root.components().count(), self.rank(*at)))?;
        let rest = path.strip_prefix(prefix).ok()?;
        self.below(self.all.get(at)?, &names(rest))
    }

    /// Whether the root of a target is a directory in `volumes` of a runtime's data.
    pub(crate) fn is_volume(&self, root: &Path) -> bool {
        let above = root.parent().filter(|above| above.ends_with("volumes"));
        let Some(data) = above.and_then(Path::parent) else { return false };
        let is_data = |known: &TargetRoot| known.holds == Holds::Data && known.name() == data;
        self.all.iter().any(is_data)
    }

    /// The root of the target with this id, which this path of some view lies in.
    pub fn find(&self, id: u64, path: &Path) -> Option<PathBuf> {
        if self.by_text {
            return target_root(path).filter(|(_, trail)| trail.target == id).map(|(root, _)| root);
        }
        let path = normalise(path);
        let names = names(&path);
        let starts = (0..=names.len()).rev();
        let below = starts.flat_map(|at| self.all.iter().map(move |root| (root, at)));
        let mut found = below.filter_map(|(root, at)| self.below(root, names.get(at..)?));
        found.find(|(_, trail)| trail.target == id).map(|(root, _)| root)
    }

    fn below(&self, root: &TargetRoot, names: &[&std::ffi::OsStr]) -> Option<(PathBuf, Trail)> {
        let mut trail = Trail::default();
        trail.enter(&root.root(self.wanted.as_deref()));
        continue_to(&PROVING, trail, root.name(), names)
    }
}

#[cfg(test)]
#[path = "target_roots_tests.rs"]
mod tests;
