//! The rule that finds the target of a call in its path, one component at a time.
//!
//! A *trail* is what is known after reading a path from its root down to some directory. The
//! probes keep one per directory and go on from there, so a bare name below a file descriptor and
//! an absolute path end in the same target. A target is named by the rolling hash of the path of
//! its root directory: user space learns the text that belongs to it from the first record.

use crate::{
    component::mix,
    config::{Config, Marker},
};

/// Looking for a marker.
pub const SEARCHING: u8 = 0;
/// A marker was seen; the next component must be a pod UID.
pub const WANTS_POD: u8 = 1;
/// Inside a target root's path, `left` components before its end.
pub const TAKING: u8 = 2;
/// At or below a target root: everything further down belongs to it.
pub const INSIDE: u8 = 3;

/// What is known of a path down to one directory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trail {
    /// Rolling hash of all components so far.
    pub path: u64,
    /// Hash of the pod UID's component, 0 without one.
    pub pod: u64,
    /// The target: hash of its root's path, 0 when there is none (yet).
    pub target: u64,
    /// [`SEARCHING`] to [`INSIDE`].
    pub stage: u8,
    /// Components still missing to a target root, in [`TAKING`].
    pub left: u8,
    /// How many levels below the target's root the deepest mount was crossed on the way here: 0
    /// when none, or only one at the root itself.
    pub mount_depth: u8,
    /// Levels below the target's root, at most 255.
    pub depth: u8,
    /// 1 when the only wanted directory was passed.
    pub wanted: u8,
    /// 1 when the path was longer than the walk goes: the target is unknown, not absent.
    pub cut: u8,
    /// 1 when the component just taken is the root of the target itself.
    pub at_root: u8,
    /// Padding, always 0.
    pub reserved: u8,
}

impl Trail {
    /// Takes the next component; `mounted` says that a mount sits on it.
    #[inline(always)]
    pub fn step(&mut self, config: &Config, hash: u64, len: u32, mounted: bool) {
        self.path = mix(self.path, hash);
        self.at_root = 0;
        if config.only_path != 0 && self.path == config.only_path {
            self.wanted = 1;
        }
        if self.stage == INSIDE {
            self.depth = self.depth.saturating_add(1);
            if mounted {
                self.mount_here();
            }
            return;
        }
        if self.stage == WANTS_POD {
            if len == 36 || len == 32 {
                self.pod = hash;
                // Files beside the volumes, such as `etc-hosts`, belong to the pod itself.
                self.target = self.path;
                self.stage = TAKING;
                return;
            }
            self.stage = SEARCHING;
        }
        if self.stage == TAKING {
            self.left -= 1;
            if self.left == 0 {
                self.target = self.path;
                self.stage = INSIDE;
                self.at_root = 1;
            }
            return;
        }
        let Some(marker) = find(&config.markers, hash) else { return };
        self.stage = if marker.pod != 0 { WANTS_POD } else { TAKING };
        self.left = marker.take as u8;
    }

    /// A mount sits on the component just taken.
    #[inline(always)]
    pub fn mount_here(&mut self) {
        if self.stage == INSIDE {
            self.mount_depth = self.depth;
        }
    }

    /// Whether a component more can change the target.
    #[inline(always)]
    pub const fn settled(&self) -> bool {
        self.stage == INSIDE
    }
}

#[inline(always)]
fn find(markers: &[Marker], hash: u64) -> Option<&Marker> {
    markers.iter().find(|m| m.hash == hash)
}

const _: () = assert!(size_of::<Trail>() == 32);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        component::{components, name_hash, path_hash},
        config::MARKERS,
    };

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    fn config() -> Config {
        let mut markers = [Marker::default(); MARKERS];
        markers[0] = Marker { hash: name_hash(b"pods"), take: 3, pod: 1 };
        markers[1] = Marker { hash: name_hash(b"snapshots"), take: 1, pod: 0 };
        Config { slow_ns: 0, only_pod: 0, only_path: 0, own_tgid: 0, reserved: 0, markers }
    }

    fn trail(path: &str) -> Trail {
        let mut trail = Trail::default();
        for name in components(path.as_bytes()) {
            trail.step(&config(), name_hash(name), name.len() as u32, false);
        }
        trail
    }

    #[test]
    fn a_volume_and_all_below_it_share_a_target() {
        let root = trail(&format!("/k/pods/{UID}/volumes/kubernetes.io~empty-dir/data"));
        let deep = trail(&format!("/k/pods/{UID}/volumes/kubernetes.io~empty-dir/data/a/b"));
        assert_eq!((root.stage, root.at_root), (INSIDE, 1));
        assert_eq!((deep.target, deep.depth, deep.at_root), (root.target, 2, 0));
        assert_eq!(root.pod, name_hash(UID.as_bytes()));
        assert_eq!(root.target, root.path);
    }

    #[test]
    fn what_lies_beside_the_volumes_belongs_to_the_pod() {
        let pod = trail(&format!("/k/pods/{UID}"));
        let hosts = trail(&format!("/k/pods/{UID}/etc-hosts"));
        assert_eq!(hosts.target, pod.path);
        assert_eq!(hosts.pod, pod.pod);
        assert!(!hosts.settled());
    }

    #[test]
    fn only_a_uid_may_follow_pods() {
        assert_eq!(trail("/srv/pods/readme/a/b/c").target, 0);
        let second = trail(&format!("/srv/pods/old/pods/{UID}/volumes/p/v"));
        assert_eq!(second.pod, name_hash(UID.as_bytes()));
        let static_pod = trail("/k/pods/0123456789abcdef0123456789abcdef/volumes/p/v");
        assert_eq!(static_pod.stage, INSIDE);
    }

    #[test]
    fn a_snapshot_is_a_target() {
        let inside = trail("/c/snapshots/42/fs/etc");
        assert_eq!(inside.target, path_hash(b"/c/snapshots/42"));
        assert_eq!(trail("/c/snapshots").target, 0);
    }

    #[test]
    fn a_mount_below_the_root_is_noticed_one_at_the_root_is_not() {
        let mut walk = Trail::default();
        let path = format!("/k/pods/{UID}/volumes/p/v/m/x");
        for name in components(path.as_bytes()) {
            let mounted = name == b"v" || name == b"m";
            walk.step(&config(), name_hash(name), name.len() as u32, mounted);
        }
        assert_eq!((walk.depth, walk.mount_depth), (2, 1));
    }

    #[test]
    fn the_wanted_directory_is_noticed_on_the_way() {
        let mut config = config();
        config.only_path = path_hash(b"/srv/data");
        let mut walk = Trail::default();
        for name in components(b"/srv/data/x") {
            walk.step(&config, name_hash(name), name.len() as u32, false);
        }
        assert_eq!(walk.wanted, 1);
    }
}
