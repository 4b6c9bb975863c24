//! Whether there is room where kubelet and the runtimes live. A full disk rarely keeps anything
//! from being deleted, but those who delete can no longer write down what they do.

use std::{
    collections::HashSet,
    ffi::OsString,
    path::{Path, PathBuf},
};

use super::{
    Only, Places,
    views::{View, mounts_of},
};
use crate::{
    identity::{
        on_host,
        target_roots::{Holds, TargetRoot},
    },
    state::{
        seen_by::{Place, shown},
        space::MeasureSpace,
    },
};
use podstuck_confine::{alive, helper};
use podstuck_model::{degraded::Feed, space::Space};

/// Number of samples per read: every ten seconds, as a rule.
const EVERY: u32 = 5;

/// Default directories of runtimes, and those that all of them write to. Configured directories are added.
const RUNTIMES: [&str; 10] = [
    "/var/lib/containerd",
    "/run/containerd",
    "/var/lib/docker",
    "/var/lib/containers/storage",
    "/var/lib/rancher/k3s/agent/containerd",
    "/var/lib/rancher/rke2/agent/containerd",
    "/var/snap/microk8s/common/var/lib/containerd",
    "/var/lib/k0s/containerd",
    "/run",
    "/var/log",
];

/// More of those than there are on a node.
const MOST: usize = 32;

/// The state that is kept from one read to the next.
#[derive(Debug, Default)]
pub(super) struct SpaceCollector {
    turn: u32,
    last: Vec<Space>,
}

/// A path, whether it is kubelet's, and who sees it there.
type Wanted = (PathBuf, bool, Option<(u32, u32)>);

impl SpaceCollector {
    /// All file systems, as they were found at the last read.
    pub(super) fn sample(
        &mut self,
        places: &Places,
        roots: &[TargetRoot],
        views: &[View],
    ) -> Vec<Space> {
        if matches!(places.only, Only::Below(_)) {
            return Vec::new();
        }
        if self.turn.is_multiple_of(EVERY) {
            self.last = Self::look(places, roots, views);
        }
        self.turn = self.turn.wrapping_add(1);
        self.last.clone()
    }

    fn look(places: &Places, roots: &[TargetRoot], views: &[View]) -> Vec<Space> {
        let wanted = wanted(places, roots, views);
        let place = |(path, _, by): &Wanted| match by {
            Some((pid, _)) => (Some(*pid), path.into()),
            None => (None, OsString::from(on_host(&places.host_root, path))),
        };
        let asked: Vec<Place> = wanted.iter().map(place).collect();
        let looks = asked.iter().map(|(pid, path)| (mounts_of(*pid, views), Path::new(path)));
        let is_left_out = alive::left_out(Feed::Space, looks);
        let all = wanted.into_iter().zip(asked).zip(is_left_out).enumerate();
        let alive = all.filter(|(_, (_, is_left_out))| !is_left_out);
        let alive: Vec<(usize, (Wanted, Place))> =
            alive.map(|(at, (look, _))| (at, look)).collect();
        let (mut found, at) = (Vec::new(), podstuck_confine::clock::now());
        helper::ask_each(
            alive,
            |(_, (_, place))| shown(place),
            |(_, (_, (pid, path)))| (pid.unwrap_or_else(std::process::id), path.into()),
            |left| MeasureSpace {
                places: left.iter().map(|(_, (_, place))| place.clone()).collect(),
            },
            |(turn, ((path, is_kubelets, seen_by), (_, named))), capacity| {
                let failed = capacity.as_ref().err().map(ToString::to_string);
                alive::looked(Feed::Space, Path::new(&named), failed.as_deref());
                if let Ok(Some(capacity)) = capacity {
                    found.push((turn, Space { path, is_kubelets, seen_by, capacity, at }));
                }
            },
        );
        // The best names first, in whichever order they have answered.
        found.sort_by_key(|(turn, _)| *turn);
        let mut seen = HashSet::new();
        let found = found.into_iter().map(|(_, space)| space);
        found.filter(|space| seen.insert(space.capacity.device)).collect()
    }
}

/// Each place once; the best names first.
fn wanted(places: &Places, roots: &[TargetRoot], views: &[View]) -> Vec<Wanted> {
    let mut wanted: Vec<Wanted> = Vec::new();
    for root in &places.kubelet_roots {
        let seen = views.iter().map(|view| Some((view.pid, view.namespace)));
        wanted.extend([None].into_iter().chain(seen).map(|by| (root.clone(), true, by)));
    }
    wanted.extend(RUNTIMES.map(|path| (path.into(), false, None)));
    // A kubelet's are above.
    let of_runtimes = roots.iter().filter(|root| root.holds != Holds::Pods).take(MOST);
    wanted.extend(of_runtimes.map(|root| (root.path.clone(), false, root.seen_by)));
    let mut known = HashSet::new();
    wanted.retain(|(path, _, by)| known.insert((path.clone(), *by)));
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use podstuck_model::{space::Capacity, time::Monotonic};

    #[test]
    fn a_configured_data_root_is_read() {
        let places = Places {
            host_root: "/".into(),
            kubelet_roots: vec!["/k".into()],
            takes_new_roots: false,
            asked: Vec::new(),
            data_roots: Vec::new(),
            only: Only::All,
        };
        let roots = [
            TargetRoot::of_host("/k", Holds::Pods),
            TargetRoot::of_host("/data/docker", Holds::Data),
            TargetRoot::of_host("/var/lib/containerd", Holds::PluginData),
            TargetRoot::of_host("/data/docker", Holds::Data).seen_by(7, 8),
        ];
        let wanted = wanted(&places, &roots, &[]);
        let found: Vec<_> = wanted.iter().map(|(path, is, by)| (path.to_str(), *is, *by)).collect();
        assert_eq!(found.first(), Some(&(Some("/k"), true, None)));
        let added = [None, Some((7, 8))].map(|by| (Some("/data/docker"), false, by));
        assert_eq!(found[1 + RUNTIMES.len()..], added);
    }

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
        let capacity = Capacity {
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
        Space { path, is_kubelets: true, seen_by: None, capacity, at }.exhausted()
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
