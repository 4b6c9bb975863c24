//! Target roots: directories that contain targets, which are kubelets' roots and runtimes' data directories. A path
//! belongs to a target only if it leads through one of them; the rest of its text proves nothing.

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

/// The contents of a target root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Holds {
    /// `pods/<uid>`: kubelet's root.
    Pods,
    /// `volumes/<name>`, `overlay2/<layer>`, `snapshots/<number>`: the data of Docker, of containers-storage and
    /// of snapshotters that run by themselves.
    Data,
    /// The same one level further down: containerd's root and state, in which each plugin has a directory.
    PluginData,
}

/// A directory that contains targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRoot {
    /// Its path as it was given or found.
    pub path: PathBuf,
    /// Its path without symbolic links, once it was shown to the probes.
    pub canonical: Option<PathBuf>,
    /// Its contents.
    pub holds: Holds,
    /// The process whose root directory the path is relative to, and its mount namespace; `None` for the host.
    pub seen_by: Option<(u32, u32)>,
}

impl TargetRoot {
    /// A target root by the host's path.
    pub fn of_host(path: impl Into<PathBuf>, holds: Holds) -> Self {
        Self { path: normalise(&path.into()), canonical: None, holds, seen_by: None }
    }

    /// The same, by the path of a process in this mount namespace.
    pub fn seen_by(self, pid: u32, namespace: u32) -> Self {
        Self { seen_by: Some((pid, namespace)), ..self }
    }

    /// The process whose root directory the path is relative to.
    pub fn process(&self) -> Option<u32> {
        self.seen_by.map(|(pid, _)| pid)
    }

    /// The path that its targets' names begin with.
    pub fn name(&self) -> &Path {
        self.canonical.as_deref().unwrap_or(&self.path)
    }

    fn is_at(&self, path: &Path) -> bool {
        self.path == path || self.canonical.as_deref() == Some(path)
    }

    fn view(&self) -> u32 {
        self.seen_by.map_or(HOST_VIEW, |(_, namespace)| namespace)
    }

    /// Its entry in the probes' table.
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

/// All known target roots.
#[derive(Debug, Default)]
pub struct TargetRoots {
    all: Vec<TargetRoot>,
    /// Their other paths, by view.
    views: HashMap<u32, Vec<(PathBuf, usize)>>,
    /// The only directory that is watched, if there is one.
    wanted: Option<PathBuf>,
    /// Nothing can be proven on this kernel: the text of a path is believed, as the probes do.
    by_text: bool,
    /// Indexes that may be reused.
    gone: Vec<usize>,
    dropped: u64,
}

impl TargetRoots {
    /// Without any root.
    pub fn new(wanted: Option<PathBuf>) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Sets whether nothing can be proven on this kernel.
    pub fn believe_text(&mut self, by_text: bool) {
        self.by_text = by_text;
    }

    /// Adds a root; returns whether it is new.
    pub fn add(&mut self, root: TargetRoot) -> bool {
        let same = |known: &TargetRoot| {
            (known.view(), known.holds) == (root.view(), root.holds) && known.is_at(&root.path)
        };
        if let Some(known) = self.all.iter_mut().find(|known| same(known)) {
            // The process that it was found by may have ended.
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

    /// Whether the probes' table is full; one of its slots is for the host's root directory.
    fn is_full(&self) -> bool {
        self.all.len() + 1 >= ROOTS
    }

    /// If the table is full, finds the roots whose mount namespace is not among these, and returns their indexes for reuse:
    /// the probes must forget what they were shown for them.
    pub fn make_room(&mut self, namespaces: impl Fn(u32) -> bool) -> &[usize] {
        if self.is_full() {
            let is_gone = |root: &TargetRoot| root.seen_by.is_some_and(|(_, own)| !namespaces(own));
            let all = self.all.iter().enumerate();
            self.gone = all.filter(|(_, root)| is_gone(root)).map(|(index, _)| index).collect();
        }
        &self.gone
    }

    /// All roots; the position is the index in the probes' table.
    pub fn all(&self) -> &[TargetRoot] {
        &self.all
    }

    /// Whether this directory, by the path of a process in this mount namespace, is a known kubelet's root directory.
    pub fn has_pods_of(&self, root: &Path, namespace: u32) -> bool {
        let mut with_pods = self.all.iter().filter(|it| it.holds == Holds::Pods);
        with_pods.any(|it| [HOST_VIEW, namespace].contains(&it.view()) && it.is_at(root))
    }

    /// Sets the roots' paths in all views.
    pub fn set_views(&mut self, views: HashMap<u32, Vec<(PathBuf, usize)>>) {
        self.views = views;
    }

    /// Sets the path of a root without symbolic links.
    pub fn found(&mut self, index: usize, canonical: PathBuf) {
        if let Some(root) = self.all.get_mut(index) {
            root.canonical = Some(canonical);
        }
    }

    /// Rank among roots that are the same directory: the highest counts. The probes know the roots that were shown to
    /// them, and keep the first.
    pub fn rank(&self, index: usize) -> impl Ord + use<> {
        let is_shown = self.all.get(index).is_some_and(|root| root.canonical.is_some());
        (is_shown, Reverse(index))
    }

    /// The entries for the probes' table, by index.
    pub fn table(&self) -> impl Iterator<Item = Root> {
        self.all.iter().map(|root| root.root(self.wanted.as_deref()))
    }

    /// Number of roots that did not fit into the table.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The paths of a target's root for daemons that were given another path of the directory, such as a symbolic link.
    pub(crate) fn as_given<'a>(&'a self, root: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
        let given = self.all.iter().filter_map(|known| {
            Some(known.path.join(root.strip_prefix(known.canonical.as_ref()?).ok()?))
        });
        [root.to_owned()].into_iter().chain(given)
    }

    /// Whether the roots' paths in this view are known.
    pub fn has_view(&self, view: u32) -> bool {
        self.views.contains_key(&view)
    }

    /// The target of a path of the host, or of a kubelet with another mount namespace: its root, and the path's trail.
    pub(crate) fn locate(&self, path: &Path) -> Option<(PathBuf, Trail)> {
        self.longest(path, HOST_VIEW, |_| true)
    }

    /// The same for a path in a view.
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
        // The longest prefix counts: a nested node's own root is below the outer node's.
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

    /// The root of the target with this id, by a path in it in any view.
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
