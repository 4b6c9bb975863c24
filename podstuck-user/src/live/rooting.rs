//! Keeps the probes' and the names' tables of target directories up to date.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use podstuck_common::{component::path_hash, root::ViewKey};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::model::{
    mounts::{Mounts, NodeMounts},
    path::safe_path,
};
use podstuck_node::{
    identity::{
        root_views::{self, Views},
        target_roots::{TargetRoot, TargetRoots},
    },
    state::{
        sample::Look,
        show_roots::{Found, Sought, show_roots},
    },
};
use podstuck_probe::kernel::roots::{HOST_INDEX, RootTables};

/// Interval between showings of the directories: one that the kernel has evicted gets another inode in memory.
const SHOW_EVERY: Duration = Duration::from_secs(10);
/// First interval after a directory did not answer; it doubles each time.
const SHOW_AGAIN: Duration = Duration::from_secs(2);

/// The state of the probes' tables.
pub(super) struct Rooting {
    host_root: PathBuf,
    secret: u64,
    /// `None` without probes.
    tables: Option<RootTables>,
    looked_at: Vec<(u32, Arc<Mounts>)>,
    shown: Instant,
    /// Number of consecutive showings in which a directory did not answer.
    unanswered: u32,
    asked: Option<JoinHandle<Found>>,
    /// Whether a directory was learnt and not shown yet.
    has_learnt: bool,
    /// The mounts of the last sample.
    mounts: NodeMounts,
}

impl Rooting {
    /// Shows the known directories. Takes two seconds when one does not answer.
    pub(crate) fn start(
        host_root: &Path,
        secret: u64,
        tables: Option<RootTables>,
        roots: &mut TargetRoots,
    ) -> Self {
        let (host_root, shown) = (host_root.to_owned(), Instant::now());
        let looked_at = Vec::new();
        let mut rooting = Self {
            host_root,
            secret,
            tables,
            looked_at,
            shown,
            unanswered: 0,
            asked: None,
            has_learnt: false,
            mounts: NodeMounts::default(),
        };
        let found = show_roots(&rooting.host_root, secret, sought(roots));
        rooting.shown(found, roots);
        rooting.forget_directories();
        let views = root_views::of_node(roots, &NodeMounts::default());
        rooting.tell_views(roots, &views, BTreeSet::new());
        rooting
    }

    /// Takes a sample of the node. Call it inside the runtime.
    pub(crate) fn look(&mut self, look: &Look, roots: &mut TargetRoots) {
        let tables = &look.trees.mounts().tables;
        // A showing in progress uses the current indexes.
        let is_shown_now = self.asked.is_some();
        self.forget(roots.make_room(|own| is_shown_now || tables.contains_key(&own)));
        let mut is_new = false;
        for root in look.roots.iter() {
            is_new |= roots.add(root.clone());
        }
        let mut known = self.looked_at.iter().zip(tables);
        let is_same = self.looked_at.len() == tables.len()
            && known.all(|(known, (view, table))| known.0 == *view && Arc::ptr_eq(&known.1, table));
        if is_new || !is_same {
            self.see(look.trees.mounts(), roots);
        }
        self.mounts = look.trees.mounts().clone();
        if self.asked.is_none() && (is_new || self.shown.elapsed() >= every(self.unanswered)) {
            self.show(roots);
        }
    }

    /// Takes a directory that was found by a call, and shows it at once. Call it inside the runtime.
    pub(crate) fn learn(&mut self, root: TargetRoot, roots: &mut TargetRoots) {
        if !roots.add(root) {
            return;
        }
        let mounts = self.mounts.clone();
        self.see(&mounts, roots);
        self.has_learnt = true;
        // A showing in progress does not include it.
        if self.asked.is_none() {
            self.show(roots);
        }
    }

    fn show(&mut self, roots: &TargetRoots) {
        self.shown = Instant::now();
        let (host_root, secret, sought) = (self.host_root.clone(), self.secret, sought(roots));
        self.asked = Some(spawn_blocking(move || show_roots(&host_root, secret, sought)));
    }

    /// Waits for the end of a showing; for ever while none is in progress. Safe to cancel.
    pub(crate) async fn next(&mut self) -> Found {
        let Some(asked) = &mut self.asked else { return pending().await };
        // A thread that has died has shown nothing.
        let shown = asked.await.unwrap_or_default();
        self.asked = None;
        shown
    }

    /// Takes the result of a showing.
    pub(crate) fn shown(&mut self, found: Found, roots: &mut TargetRoots) {
        let is_without_one = self.has_learnt && found.paths.len() <= roots.all().len();
        let mut has_moved = std::mem::take(&mut self.has_learnt);
        self.unanswered = if found.is_all { 0 } else { self.unanswered.saturating_add(1) };
        for (index, canonical) in found.paths.into_iter().skip(1).enumerate() {
            if let Some(canonical) = canonical.filter(|_| index < roots.all().len()) {
                let root = &roots.all()[index];
                if root.canonical.as_ref() != Some(&canonical) {
                    has_moved = true;
                    tracing::info!("{:?} in {}", root.holds, safe_path(&canonical));
                }
                roots.found(index, canonical);
            }
        }
        if let Some(tables) = &mut self.tables {
            for (index, root) in roots.table().enumerate() {
                let set = tables.set(index as u32, root);
                set.unwrap_or_else(|error| tracing::warn!("{error:#}"));
            }
        }
        if has_moved {
            self.forget_directories();
            // The next sample updates them.
            self.looked_at.clear();
        }
        if is_without_one {
            self.has_learnt = true;
            self.show(roots);
        }
    }

    /// Removes gone directories, so that others can have their indexes.
    fn forget(&mut self, gone: &[usize]) {
        if let Some(tables) = self.tables.as_mut().filter(|_| !gone.is_empty()) {
            let forgotten = tables.forget(gone);
            forgotten.unwrap_or_else(|error| tracing::warn!("{error:#}"));
        }
    }

    /// Calls before the showing were read with an unknown directory.
    fn forget_directories(&mut self) {
        if let Some(tables) = &mut self.tables {
            let forgotten = tables.forget_directories();
            forgotten.unwrap_or_else(|error| tracing::warn!("{error:#}"));
        }
    }

    fn see(&mut self, mounts: &NodeMounts, roots: &mut TargetRoots) {
        let views = root_views::of_node(roots, mounts);
        self.tell_views(roots, &views, mounts.tables.keys().copied().collect());
        self.looked_at = mounts.tables.iter().map(|(view, table)| (*view, table.clone())).collect();
        roots.set_views(views);
    }

    fn tell_views(&mut self, roots: &TargetRoots, views: &Views, looked_at: BTreeSet<u32>) {
        let Some(tables) = &mut self.tables else { return };
        let keys = by_path(roots, views);
        tables.set_views(keys, looked_at).unwrap_or_else(|error| tracing::warn!("{error:#}"));
    }
}

/// One index for each path: the probes know one directory by several indexes while two kubelets share it, and the
/// entry of an index is written only after it was shown.
fn by_path(roots: &TargetRoots, views: &Views) -> BTreeMap<ViewKey, u32> {
    let mut keys = BTreeMap::new();
    for (view, paths) in views {
        for (path, index) in paths {
            let path = path_hash(path.as_os_str().as_encoded_bytes());
            let known = keys.entry(ViewKey { path, view: *view, reserved: 0 }).or_insert(*index);
            if roots.rank(*index) > roots.rank(*known) {
                *known = *index;
            }
        }
    }
    keys.into_iter().map(|(key, index)| (key, index as u32)).collect()
}

fn every(unanswered: u32) -> Duration {
    let doubled = unanswered.checked_sub(1).map(|times| 2_u32.saturating_pow(times));
    doubled.map_or(SHOW_EVERY, |times| SHOW_AGAIN.saturating_mul(times).min(SHOW_EVERY))
}

/// The host's root directory, without which no path is known to be the host's, and all target directories in the
/// order of their index.
fn sought(roots: &TargetRoots) -> Vec<Sought> {
    let all = roots.all().iter().zip(0..).map(|(root, index)| Sought {
        pid: root.process(),
        path: root.path.clone().into(),
        index: Some(index),
    });
    let host = Sought { pid: None, path: "/".into(), index: Some(HOST_INDEX) };
    [host].into_iter().chain(all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use podstuck_node::identity::target_roots::{Holds, TargetRoot};

    #[test]
    fn a_directory_of_two_kubelets_keeps_the_index_that_the_probes_know() {
        let mut roots = TargetRoots::new(None);
        let root = TargetRoot::of_host("/var/lib/kubelet", Holds::Pods);
        roots.add(root.clone());
        roots.add(root.seen_by(70, 2));
        let views: Views =
            [(2, vec![("/var/lib/kubelet".into(), 1), ("/var/lib/kubelet".into(), 0)])].into();
        let index = |roots: &TargetRoots| by_path(roots, &views).into_values().collect::<Vec<_>>();
        assert_eq!(index(&roots), [0]);
        roots.found(1, "/var/lib/kubelet".into());
        assert_eq!(index(&roots), [1], "only that one was shown");
        roots.found(0, "/var/lib/kubelet".into());
        assert_eq!(index(&roots), [0]);
    }

    #[test]
    fn a_silent_directory_is_shown_again_soon_and_then_less_often() {
        let seconds = [0, 1, 2, 3, 4, 40].map(|unanswered| every(unanswered).as_secs());
        assert_eq!(seconds, [10, 2, 4, 8, 10, 10]);
    }
}
