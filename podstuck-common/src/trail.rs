//! The rule that finds the target of a call in its path, one component at a time.
//!
//! A *trail* is the state after reading a path from its root down to a directory. The probes keep one per directory
//! and continue from it, so a bare name below a file descriptor and an absolute path lead to the same target. A
//! target is identified by the rolling hash of the path of its root directory; user space learns the text from the
//! first record.

use core::hint::black_box;

use crate::{
    component::mix,
    config::{ASIDE, Config, Marker},
    root::{Root, flag},
};

/// Searching for a marker.
pub const SEARCHING: u8 = 0;
/// A marker was seen; the next component must be a pod UID.
pub const WANTS_POD: u8 = 1;
/// In the path of a target root; `left` components are missing.
pub const TAKING: u8 = 2;
/// At or below a target root: all further components belong to it.
pub const INSIDE: u8 = 3;
/// Below a directory that is proven to contain targets, `left` components above its markers.
pub const BELOW: u8 = 4;
/// Below such a directory, beside its markers: no targets here.
pub const BESIDE: u8 = 5;
/// As [`TAKING`], or at the directory to which targets are moved aside.
pub const TAKING_OR_ASIDE: u8 = 6;

/// The start of a path.
pub mod origin {
    /// The host's root directory.
    pub const HOST: u8 = 1;
    /// The path leads through a directory that is proven to contain targets, so its markers are trusted.
    pub const PROVEN: u8 = 1 << 1;
    /// That directory's targets are pods'.
    pub const PODS: u8 = 1 << 2;
}

/// The state after a path down to one directory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trail {
    /// Rolling hash of all components so far.
    pub path: u64,
    /// Hash of the component that is the pod's UID; 0 without one.
    pub pod: u64,
    /// The target: hash of its root's path; 0 if no root is known (yet).
    pub target: u64,
    /// [`SEARCHING`] to [`TAKING_OR_ASIDE`].
    pub stage: u8,
    /// Number of components that are missing, in [`TAKING`] and [`BELOW`].
    pub left: u8,
    /// Number of levels from the target's root to the deepest mount point on the path; 0 without one below the
    /// root.
    pub mount_depth: u8,
    /// Number of levels below the target's root, at most 255.
    pub depth: u8,
    /// 1 if the path leads through the only wanted directory.
    pub wanted: u8,
    /// 1 if the path is longer than the walk goes: the target is unknown, not absent.
    pub cut: u8,
    /// 1 if the last component is the root of the target itself.
    pub at_root: u8,
    /// Bits of [`origin`]; 0 when the start of the path is not verified.
    pub origin: u8,
}

impl Trail {
    /// Appends a component; `mounted` means that it is a mount point.
    #[inline(always)]
    pub fn step(&mut self, config: &Config, hash: u64, len: u32, mounted: bool) {
        self.path = mix(self.path, hash);
        self.at_root = 0;
        if config.only_path != 0 && self.path == config.only_path && self.is_known(config) {
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
        if self.stage == TAKING_OR_ASIDE {
            self.stage = TAKING;
            if hash == config.aside {
                self.left = 2;
                return;
            }
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
        if self.stage == BELOW {
            self.left -= 1;
            if self.left > 0 {
                return;
            }
            self.stage = BESIDE;
        } else if self.stage == BESIDE {
            return;
        }
        let Some(marker) = find(&config.markers, hash) else { return };
        if self.stage == BESIDE && (marker.pod != 0) != (self.origin & origin::PODS != 0) {
            return;
        }
        self.stage = match marker {
            Marker { pod: 0, take, .. } if take & ASIDE != 0 => TAKING_OR_ASIDE,
            Marker { pod: 0, .. } => TAKING,
            _ => WANTS_POD,
        };
        self.left = marker.take as u8;
    }

    /// The last component, or the directory that the trail starts from, is this root.
    #[inline(always)]
    pub fn enter(&mut self, root: &Root) {
        self.forget();
        self.cut = 0;
        self.mount_depth = 0;
        self.depth = 0;
        self.at_root = 0;
        if root.flags & flag::WANTED != 0 {
            self.wanted = 1;
        }
        self.path = root.path;
        self.origin = origin::HOST;
        if root.flags & flag::HOLDS != 0 {
            self.stage = BELOW;
            self.left = root.depth as u8;
            self.origin |= origin::PROVEN;
            if root.flags & flag::PODS != 0 {
                self.origin |= origin::PODS;
            }
        }
    }

    /// Removes the target. Field by field: a whole new trail would occupy the probes' small stack. `black_box` keeps
    /// the compiler from setting adjacent zeros with a loop over bytes.
    #[inline(always)]
    pub fn forget(&mut self) {
        self.pod = black_box(0);
        self.target = black_box(0);
        self.stage = SEARCHING;
        self.left = 0;
    }

    /// Whether the path names the same object in every mount namespace.
    #[inline(always)]
    pub const fn is_known(&self, config: &Config) -> bool {
        self.origin != 0 || config.by_text != 0
    }

    /// Whether there is a target only according to the text of the path.
    #[inline(always)]
    pub const fn is_look_alike(&self, config: &Config) -> bool {
        self.target != 0 && self.origin & origin::PROVEN == 0 && config.by_text == 0
    }

    /// The last component is a mount point.
    #[inline(always)]
    pub fn mount_here(&mut self) {
        if self.stage == INSIDE {
            self.mount_depth = self.depth;
        }
    }

    /// Whether further components cannot change the target.
    #[inline(always)]
    pub const fn settled(&self, config: &Config) -> bool {
        self.stage == INSIDE && !self.is_look_alike(config)
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
        markers[2] = Marker { hash: name_hash(b"overlay"), take: 1 | ASIDE, pod: 0 };
        Config { by_text: 1, aside: name_hash(b"aside"), markers, ..Config::EMPTY }
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
        assert!(!hosts.settled(&config()));
    }

    #[test]
    fn only_a_uid_may_follow_pods() {
        assert_eq!(trail("/srv/pods/readme/a/b/c").target, 0);
        let second = trail(&format!("/srv/pods/old/pods/{UID}/volumes/p/v"));
        assert_eq!(second.pod, name_hash(UID.as_bytes()));
        let static_pod = trail("/k/pods/0123456789abcdef0123456789abcdef/volumes/p/v");
        assert_eq!(static_pod.stage, INSIDE);
    }

    /// The trail of a path below a directory of this kind at `/data`.
    fn below(flags: u32, depth: u32, path: &str) -> Trail {
        let root = Root { path: path_hash(b"/data"), depth, flags: flag::HOLDS | flags };
        let mut trail = Trail::default();
        trail.enter(&root);
        for name in components(path.as_bytes()) {
            trail.step(&proving(), name_hash(name), name.len() as u32, false);
        }
        trail
    }

    fn proving() -> Config {
        Config { by_text: 0, ..config() }
    }

    #[test]
    fn a_target_that_is_moved_aside_is_one() {
        for (path, target) in [
            ("overlay/7/diff", "/data/overlay/7"),
            ("overlay/aside/temp/1-7", "/data/overlay/aside/temp/1-7"),
            ("overlay/aside/temp/1-7/diff/a", "/data/overlay/aside/temp/1-7"),
            // The name has no meaning at another place.
            ("overlay/7/aside/temp/1-7", "/data/overlay/7"),
            ("snapshots/aside/temp/1-7", "/data/snapshots/aside"),
        ] {
            let found = below(0, 1, path);
            assert_eq!(
                (found.target, found.stage),
                (path_hash(target.as_bytes()), INSIDE),
                "{path}"
            );
        }
        for path in ["overlay", "overlay/aside", "overlay/aside/temp"] {
            assert_eq!(below(0, 1, path).target, 0, "{path}");
        }
    }

    #[test]
    fn below_a_proven_directory_only_its_own_markers_count() {
        let volume = below(flag::PODS, 1, &format!("pods/{UID}/volumes/p/v/a"));
        assert_eq!(volume.target, path_hash(format!("/data/pods/{UID}/volumes/p/v").as_bytes()));
        assert_eq!((volume.stage, volume.depth), (INSIDE, 1));
        assert!(volume.settled(&proving()));
        // A tenant's data in a volume that is mounted below kubelet's root.
        let global = below(flag::PODS, 1, &format!("plugins/globalmount/pods/{UID}/volumes/p/v"));
        assert_eq!((global.stage, global.target), (BESIDE, 0));
        assert_eq!(below(flag::PODS, 1, "snapshots/7/fs").target, 0);
        let layer = below(0, 2, "overlayfs/snapshots/7/fs");
        assert_eq!(layer.target, path_hash(b"/data/overlayfs/snapshots/7"));
        assert_eq!(below(0, 2, "snapshots/7/fs").target, 0);
        assert_eq!(below(0, 1, &format!("pods/{UID}/volumes/p/v")).target, 0);
    }

    #[test]
    fn a_path_from_elsewhere_is_a_look_alike_until_it_enters_a_proven_directory() {
        let mut walk = Trail::default();
        let elsewhere = format!("/srv/pods/{UID}/volumes/p/v");
        for name in components(elsewhere.as_bytes()) {
            walk.step(&proving(), name_hash(name), name.len() as u32, false);
        }
        assert!(walk.is_look_alike(&proving()) && !walk.settled(&proving()));
        assert!(!walk.is_look_alike(&config()), "by text all of them are believed");
        walk.enter(&Root { path: 7, depth: 1, flags: flag::HOLDS | flag::WANTED });
        assert_eq!((walk.target, walk.path, walk.wanted), (0, 7, 1));
        assert!(!walk.is_look_alike(&proving()));
    }

    #[test]
    fn the_wanted_directory_is_the_hosts() {
        let config = Config { only_path: path_hash(b"/srv/data"), ..proving() };
        let mut walk = Trail::default();
        for name in [b"srv".as_slice(), b"data"] {
            walk.step(&config, name_hash(name), name.len() as u32, false);
        }
        assert_eq!(walk.wanted, 0, "a path that reads like it");
        let mut walk = Trail::default();
        walk.enter(&Root { path: 0, depth: 0, flags: flag::HOST });
        for name in [b"srv".as_slice(), b"data"] {
            walk.step(&config, name_hash(name), name.len() as u32, false);
        }
        assert_eq!(walk.wanted, 1);
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
