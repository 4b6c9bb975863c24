//! What is asked about the mounts of volumes, and what came of it.

use std::{collections::BTreeMap, time::Duration};

use nix::errno::Errno;

use crate::{
    causes::shared::holders,
    model::{
        holder::{About, Snapshot},
        hung::MountPoint,
        mounted::Mounted,
        node::VolumeState,
        path::JsonPath,
        time::Monotonic,
    },
    query::{Query, Wants},
    tracker::TrackerId,
};

/// A server may end later.
const ASKED_AGAIN: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(super) struct Questions {
    /// By the id of the mount: FUSE file systems that were asked, when, and whether they have no server.
    fuse: BTreeMap<u32, (Monotonic, bool)>,
    /// By the id of the mount: who holds it was asked, and nobody was found then.
    held: BTreeMap<u32, Option<Monotonic>>,
}

impl Questions {
    /// Forgets those about mounts that are gone.
    pub(super) fn keep(&mut self, is_there: impl Fn(u32) -> bool) {
        self.fuse.retain(|id, _| is_there(*id));
        self.held.retain(|id, _| is_there(*id));
    }

    /// Asks whether the servers of a CSI driver's FUSE file systems are there.
    pub(super) fn about_servers(&mut self, volume: &VolumeState, at: Monotonic) -> Option<Query> {
        let mount = volume.mounts.iter().find(|mount| mount.is_fuse && volume.csi.is_some())?;
        let due = |(asked, _): &(Monotonic, bool)| at.since(*asked) >= ASKED_AGAIN;
        if !self.fuse.get(&mount.id).is_none_or(due) {
            return None;
        }
        self.fuse.entry(mount.id).or_insert((at, false)).0 = at;
        let wants = Wants::FuseMounts { pid: mount.pid, path: mount.point.clone() };
        Some(query(volume.target_id, mount, wants))
    }

    /// Takes note of which of these mounts have no server.
    pub(super) fn servers(&mut self, query: &Query, looked: &[(MountPoint, i32)], mounts: &[u32]) {
        let dead = looked
            .iter()
            .any(|(mount, errno)| mount.point == query.path && *errno == Errno::ENOTCONN as i32);
        for id in mounts {
            if let Some(known) = self.fuse.get_mut(id) {
                known.1 = dead;
            }
        }
    }

    pub(super) fn has_no_server(&self, volume: &VolumeState) -> bool {
        let mut mounts = volume.mounts.iter();
        mounts.any(|mount| self.fuse.get(&mount.id).is_some_and(|(_, dead)| *dead))
    }

    /// Asks once who would make an unmount fail.
    pub(super) fn about_holders(&mut self, target_id: u64, mount: &Mounted) -> Option<Query> {
        if self.held.contains_key(&mount.id) {
            return None;
        }
        self.held.insert(mount.id, None);
        let path = JsonPath(mount.point.clone());
        let about = About::Mount { pid: mount.pid, namespace: mount.namespace, path };
        Some(query(target_id, mount, Wants::Holders(about)))
    }

    /// Takes note that nobody would, if everything was looked at.
    pub(super) fn holders(&mut self, query: &Query, taken: &Snapshot) {
        let Ok(subject) = &taken.subject else { return };
        let is_free = taken.unseen.is_empty() && holders::culprits(taken).next().is_none();
        let asked = subject.mount_id.and_then(|id| self.held.get_mut(&id));
        if let Some(held) = asked.filter(|_| is_free && subject.path.0 == query.path) {
            *held = Some(taken.at);
        }
    }

    /// When nobody held the volume's only mount.
    pub(super) fn unheld(&self, volume: &VolumeState) -> Option<Monotonic> {
        match volume.mounts.as_slice() {
            [mount] => self.held.get(&mount.id).copied().flatten(),
            _ => None,
        }
    }
}

fn query(target_id: u64, mount: &Mounted, wants: Wants) -> Query {
    Query { tracker: TrackerId::NotAttempted, target_id, path: mount.point.clone(), wants }
}
