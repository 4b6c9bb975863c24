//! Unmounts seen, by path: many causes depend on whether an unmount was attempted.

use std::path::{Path, PathBuf};

use crate::{
    bounded::Bounded,
    model::{call::Outcome, errno::Errno, operation::Operation, path::safe, time::Monotonic},
};

/// Maximum number of stored paths. A node unmounts a handful for each pod.
const PATHS: usize = 4096;

/// The unmount attempts on a path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tried {
    /// Number of calls that succeeded.
    pub(crate) ok: u64,
    /// Number of calls that failed with EBUSY.
    pub(crate) busy: u64,
    /// Number of calls that failed with another errno.
    pub(crate) other: u64,
    /// The last call: time, outcome, caller.
    pub(crate) last: Option<(Monotonic, Outcome, String)>,
    /// The last call that succeeded: time, and the caller's mount namespace.
    pub(crate) last_ok: Option<(Monotonic, u32)>,
}

impl Tried {
    /// Whether there was an attempt.
    pub(crate) fn any(&self) -> bool {
        self.ok + self.busy + self.other > 0
    }

    /// Whether the last successful call was in this mount namespace; `None` if none succeeded.
    pub(crate) fn succeeded_in(&self, namespace: u32) -> Option<bool> {
        self.last_ok.map(|(_, caller)| caller == namespace)
    }
}

/// Unmounts seen since the start.
#[derive(Default)]
pub(crate) struct Unmounts {
    by_path: Bounded<PathBuf, Tried, PATHS>,
}

impl Unmounts {
    /// Adds an unmount.
    pub(crate) fn note(&mut self, op: &Operation) {
        let tried = self.by_path.or_insert_with(key(&op.path).into(), Tried::default);
        match op.outcome {
            Outcome::OK => {
                tried.ok += 1;
                tried.last_ok = Some((op.end, op.mnt_ns));
            }
            outcome if outcome.is(Errno::EBUSY) => tried.busy += 1,
            _ => tried.other += 1,
        }
        let who = format!("{} (pid {})", safe(op.actor.comm.as_bytes()), op.actor.pid);
        tried.last = Some((op.end, op.outcome, who));
    }

    /// Number of dropped paths.
    pub(crate) fn dropped(&self) -> u64 {
        self.by_path.dropped()
    }

    /// The attempts on a path, in any mount namespace and below any prefix.
    pub(crate) fn on(&self, path: &Path) -> Tried {
        self.by_path.get(key(path)).cloned().unwrap_or_default()
    }

    /// The attempts on any of these paths.
    pub(crate) fn on_any_of<'a>(&self, paths: impl Iterator<Item = &'a Path>) -> Tried {
        let mut all = Tried::default();
        for tried in paths.map(|path| self.on(path)) {
            all.ok += tried.ok;
            all.busy += tried.busy;
            all.other += tried.other;
            all.last_ok = all.last_ok.max(tried.last_ok);
            if tried.last.as_ref().map(|last| last.0) > all.last.as_ref().map(|last| last.0) {
                all.last = tried.last;
            }
        }
        all
    }
}

/// A driver in a container may have kubelet's directory under another path: paths agree from the pod's directory on.
fn key(path: &Path) -> &Path {
    let mut rest = path.components();
    while let Some(component) = rest.next() {
        let below = rest.as_path();
        if component.as_os_str() == "pods" && below.components().count() > 1 {
            return below;
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_does_not_matter() {
        let host = key(Path::new("/var/lib/kubelet/pods/u/volumes/p/v"));
        assert_eq!(host, key(Path::new("/csi/pods/u/volumes/p/v")));
        assert_eq!(host, Path::new("u/volumes/p/v"));
        assert_eq!(key(Path::new("/mnt/x")), Path::new("/mnt/x"));
    }
}
