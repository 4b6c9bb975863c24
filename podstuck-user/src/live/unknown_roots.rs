//! Directories in which the node's own processes work on paths that look like pods' directories, and which no kubelet
//! was known to have by its name, its command line or its units. Such a call is reason to check at once whether the
//! directory is kubelet's root. If it is not, or that cannot be determined, a failing call there is reported: a run
//! that has seen one does not end as if nothing were wrong.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Instant,
};

use tokio::task::{JoinSet, spawn_blocking};

use crate::model::{
    call::{Call, Outcome},
    errno::Errno,
    identity::Actor,
    path::{safe, safe_path},
    summary::NotLookedAt,
};
use podstuck_confine::back_off::BackOff;
use podstuck_node::{
    identity::{
        classify::kubelet_root_of,
        target_roots::{TargetRoot, TargetRoots},
    },
    state::examined_root::Candidate,
};
use podstuck_probe::decode::Record;

/// Limit of directories followed. A node has one; later ones are ignored.
const FOLLOWED: usize = 16;
/// Limit of calls kept for each until it was examined.
const KEPT: usize = 64;

/// A directory, in a mount namespace.
type Place = (u32, PathBuf);

/// The result of examining a directory.
pub(super) type Examined = (Place, Result<TargetRoot, String>);

/// The followed directories.
pub(super) struct UnknownRoots {
    host_root: PathBuf,
    /// Whether directories are examined: not when the roots were given.
    takes_new_roots: bool,
    places: BTreeMap<Place, Seen>,
    looks: JoinSet<Examined>,
}

/// The state of a directory.
struct Seen {
    again: BackOff,
    is_asked: bool,
    is_known: bool,
    /// Failed calls, until their owner is known.
    kept: Vec<Record>,
    failed: u64,
    report: Option<NotLookedAt>,
}

impl UnknownRoots {
    /// Follows no directory yet.
    pub(crate) fn new(host_root: PathBuf, takes_new_roots: bool) -> Self {
        Self { host_root, takes_new_roots, places: BTreeMap::new(), looks: JoinSet::new() }
    }

    /// Takes a call of a process of the node whose path looks like a pod's. Returns whether it failed in a directory
    /// that is known by now, and was unknown only to the probes: they learn of it after they are attached. Call it
    /// inside the runtime.
    pub(crate) fn take(&mut self, record: &Record, actor: &Actor, watched: &TargetRoots) -> bool {
        let Some(root) = kubelet_root_of(&record.path()) else { return false };
        let place = (record.head.actor.mnt_ns, root);
        if self.places.len() >= FOLLOWED && !self.places.contains_key(&place) {
            // Directories without failures make room.
            self.places.retain(|_, seen| seen.is_asked || seen.is_known || seen.report.is_some());
            if self.places.len() >= FOLLOWED {
                return false;
            }
        }
        let seen = self.places.entry(place.clone()).or_insert_with(Seen::new);
        if watched.has_pods_of(&place.1, place.0) {
            (seen.is_known, seen.report) = (true, None);
        }
        let has_failed = has_failed(record);
        let seen_is_known = seen.is_known;
        if has_failed && !seen_is_known {
            seen.keep(record, actor, &place.1);
        }
        if self.takes_new_roots
            && !seen.is_asked
            && !seen.is_known
            && seen.again.is_due(Instant::now())
        {
            seen.is_asked = true;
            let candidate =
                Candidate { root: place.1.clone(), pid: record.head.tgid, namespace: place.0 };
            let host_root = self.host_root.clone();
            let look = spawn_blocking(move || candidate.examine(&host_root));
            self.looks.spawn(async move {
                let answer = look.await.unwrap_or_else(|_| Err("it was not examined".into()));
                (place, answer)
            });
        }
        has_failed && seen_is_known
    }

    /// Waits for a result; `None` while no examination is in progress. Safe to cancel.
    pub(crate) async fn next(&mut self) -> Option<Examined> {
        self.looks.join_next().await?.ok()
    }

    /// Whether an examination is in progress.
    pub(super) fn is_looking(&self) -> bool {
        !self.looks.is_empty()
    }

    /// Takes a result: returns the root directory, if it is one, and the calls in it that were not reported yet.
    pub(super) fn examined(
        &mut self,
        (place, answer): Examined,
    ) -> Option<(TargetRoot, Vec<Record>)> {
        let seen = self.places.get_mut(&place)?;
        seen.is_asked = false;
        match answer {
            Ok(root) => {
                tracing::info!("by calls: {root:?}");
                seen.is_known = true;
                seen.report = None;
                Some((root, std::mem::take(&mut seen.kept)))
            }
            Err(why) => {
                tracing::info!("{} is not a kubelet's root directory: {why}", safe_path(&place.1));
                if let Some(report) = &mut seen.report {
                    report.why = Some(safe(why.as_bytes()).into_owned());
                }
                None
            }
        }
    }

    /// Directories with failed calls that are not watched.
    pub(super) fn not_looked_at(&self) -> Vec<NotLookedAt> {
        self.places.values().filter_map(|seen| seen.report.clone()).collect()
    }
}

impl Seen {
    fn new() -> Self {
        let again = BackOff::default();
        Self { again, is_asked: false, is_known: false, kept: Vec::new(), failed: 0, report: None }
    }

    fn keep(&mut self, record: &Record, actor: &Actor, root: &Path) {
        let outcome = Outcome(record.head.errno);
        self.failed += 1 + u64::from(record.head.suppressed);
        if self.kept.len() < KEPT {
            self.kept.push(record.clone());
        }
        let call = Call::from_code(record.head.call).map_or("a call", Call::name);
        let known = self.report.take();
        self.report = Some(NotLookedAt {
            root: safe_path(root).into_owned(),
            process: format!("{} (pid {})", safe(actor.comm.as_bytes()), actor.pid),
            call: format!("{call} {}", outcome.name()),
            path: safe_path(&record.path()).into_owned(),
            failed: self.failed,
            why: known.and_then(|it| it.why),
        });
    }
}

/// As in the probes for a known target: a removal in Go's way begins with EISDIR, and ENOENT means that another
/// process was faster.
fn has_failed(record: &Record) -> bool {
    let outcome = Outcome(record.head.errno);
    outcome != Outcome::OK && !outcome.is(Errno::EISDIR) && !outcome.is(Errno::ENOENT)
}
