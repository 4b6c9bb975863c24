//! Whether there is room where kubelet and the runtimes live. A full disk rarely keeps anything
//! from being deleted, but those who delete can no longer write down what they do.

use std::{collections::HashSet, ffi::OsString, path::PathBuf};

use super::{Only, Places, views::View};
use crate::{
    identity::on_host,
    model::time::Monotonic,
    state::{
        look::{Answer, Question},
        patient::Patient,
        rooms::Room,
    },
};

/// One look at so many samples: every ten seconds, as a rule.
const EVERY: u32 = 5;

/// Where runtimes live by default, and where they all write.
const RUNTIMES: [&str; 9] = [
    "/var/lib/containerd",
    "/run/containerd",
    "/var/lib/docker",
    "/var/lib/containers/storage",
    "/var/lib/rancher/k3s/agent/containerd",
    "/var/lib/rancher/rke2/agent/containerd",
    "/var/snap/microk8s/common/var/lib/containerd",
    "/run",
    "/var/log",
];

/// A file system that kubelet or a runtime lives on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// The first of their directories on it.
    pub path: PathBuf,
    /// Whether that is one of kubelet's roots.
    pub is_kubelets: bool,
    /// A process that sees it there, and its mount namespace; `None` for the host.
    pub seen_by: Option<(u32, u32)>,
    /// How full it is.
    pub room: Room,
    /// When it was looked at.
    pub at: Monotonic,
}

/// What is kept from one look to the next.
#[derive(Debug, Default)]
pub(super) struct SpaceLook {
    helper: Patient,
    turn: u32,
    last: Vec<Space>,
}

/// A path, whether it is kubelet's, and who sees it there.
type Wanted = (PathBuf, bool, Option<(u32, u32)>);

impl SpaceLook {
    /// All file systems, as they were found at the last look.
    pub(super) fn sample(&mut self, places: &Places, views: &[View]) -> Vec<Space> {
        if matches!(places.only, Only::Below(_)) {
            return Vec::new();
        }
        if self.turn.is_multiple_of(EVERY) {
            self.last = self.look(places, views);
        }
        self.turn = self.turn.wrapping_add(1);
        self.last.clone()
    }

    fn look(&mut self, places: &Places, views: &[View]) -> Vec<Space> {
        let mut wanted: Vec<Wanted> = Vec::new();
        for root in &places.kubelet_roots {
            let seen = views.iter().map(|view| Some((view.pid, view.namespace)));
            wanted.extend([None].into_iter().chain(seen).map(|by| (root.clone(), true, by)));
        }
        wanted.extend(RUNTIMES.map(|path| (path.into(), false, None)));
        let asked = wanted.iter().map(|(path, _, by)| match by {
            Some((pid, _)) => (Some(*pid), path.into()),
            None => (None, OsString::from(on_host(&places.host_root, path))),
        });
        let answers = match self.helper.ask(&Question::Rooms { places: asked.collect() }) {
            Ok(Answer::Rooms(answers)) => answers,
            Ok(_) => return Vec::new(),
            Err(error) => {
                tracing::info!("how full the file systems are is not known: {error}");
                return Vec::new();
            }
        };
        let at = Monotonic::now();
        let found =
            wanted.into_iter().zip(answers).filter_map(|((path, is_kubelets, by), room)| {
                Some(Space { path, is_kubelets, seen_by: by, room: room?, at })
            });
        let mut seen = HashSet::new();
        found.filter(|space| seen.insert(space.room.device)).collect()
    }
}

impl Space {
    /// Whether nothing can be written any more, and of what there is none left.
    pub fn exhausted(&self) -> Option<&'static str> {
        let Room { bytes, available, inodes, inodes_available, read_only, .. } = self.room;
        if read_only {
            // An image is full by nature, and nobody writes there.
            return None;
        }
        // A thousandth, and on a large disk what a few log lines need.
        if bytes > 0 && available <= (bytes / 1000).min(ROOM_FOR_A_LOG) {
            Some("blocks")
        } else if inodes > 0 && inodes_available <= (inodes / 1000).min(FEW_FILES) {
            Some("inodes")
        } else {
            None
        }
    }
}

/// Far below where kubelet begins to evict pods (10 % of its file system).
const ROOM_FOR_A_LOG: u64 = 4 << 20;
/// The same for inodes.
const FEW_FILES: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn exhausted(bytes: u64, available: u64, inodes: u64, left: u64) -> Option<&'static str> {
        exhausted_if(false, bytes, available, inodes, left)
    }

    fn exhausted_if(
        read_only: bool,
        bytes: u64,
        available: u64,
        inodes: u64,
        left: u64,
    ) -> Option<&'static str> {
        let room = Room {
            device: 1,
            bytes,
            free: available,
            available,
            inodes,
            inodes_available: left,
            read_only,
        };
        let path = "/k".into();
        let at = Monotonic(0);
        Space { path, is_kubelets: true, seen_by: None, room, at }.exhausted()
    }

    #[test]
    fn both_blocks_and_inodes_may_be_used_up() {
        assert_eq!(exhausted(1 << 40, 100 << 20, 1 << 20, 1 << 19), None);
        assert_eq!(exhausted(1 << 40, 1 << 20, 1 << 20, 1 << 19), Some("blocks"));
        assert_eq!(exhausted(2 << 20, 0, 0, 0), Some("blocks"));
        assert_eq!(exhausted(2 << 20, 1 << 19, 0, 0), None, "made as they are needed");
        assert_eq!(exhausted(1 << 30, 1 << 29, 65536, 3), Some("inodes"));
        assert_eq!(exhausted(0, 0, 0, 0), None, "procfs and the like have none");
    }

    #[test]
    fn an_image_is_full_by_nature() {
        assert_eq!(exhausted_if(false, 2 << 20, 0, 100, 0), Some("blocks"));
        assert_eq!(exhausted_if(true, 2 << 20, 0, 100, 0), None);
    }
}
