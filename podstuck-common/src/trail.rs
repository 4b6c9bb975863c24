//! The rule that finds the target of a call in its path, one component at a time.
//!
//! A *trail* is what is known after reading a path from its root down to some directory. The
//! probes keep one per directory and go on from there, so a bare name below a file descriptor and
//! an absolute path end in the same target. A target is named by the rolling hash of the path of
//! its root directory: user space learns the text that belongs to it from the first record.

use crate::config::{Config, Marker};

/// The longest component that Linux allows, and a byte for its end.
pub const NAME_SIZE: usize = 256;
/// The words of a component buffer.
pub const NAME_WORDS: usize = NAME_SIZE / 8;

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Folds one word into a hash.
#[inline(always)]
pub const fn mix(hash: u64, word: u64) -> u64 {
    let h = (hash ^ word).wrapping_mul(MULTIPLIER);
    h ^ (h >> 29)
}

/// Hash of a component held zero-padded in words; `len` is its length in bytes.
#[inline(always)]
pub fn component_hash(words: &[u64; NAME_WORDS], len: u32) -> u64 {
    let mut hash = 0;
    let mut i = 0;
    while i < NAME_WORDS {
        if i as u32 * 8 >= len {
            break;
        }
        hash = mix(hash, words[i]);
        i += 1;
    }
    mix(hash, len as u64)
}

/// The eight bytes from byte `at` on, of two aligned words of which the first holds that byte.
#[inline(always)]
pub const fn unaligned(first: u64, second: u64, at: u32) -> u64 {
    let shift = (at & 7) * 8;
    // In two steps, because a shift by 64 has no result.
    first >> shift | (second << 1) << (63 - shift)
}

/// Where a component ends within the next eight bytes of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComponentEnd {
    /// The bytes before the end, zero-padded.
    pub bytes: u64,
    /// How many: up to seven.
    pub len: u32,
    /// The path ends here as well.
    pub last: bool,
}

impl ComponentEnd {
    /// Looks for the first `/` or NUL; the first byte of the path is the lowest.
    #[inline(always)]
    pub const fn find(word: u64) -> Option<Self> {
        let slash = zero_bytes(word ^ (ONES * b'/' as u64));
        let nul = zero_bytes(word);
        let ends = slash | nul;
        if ends == 0 {
            return None;
        }
        let lowest = ends & ends.wrapping_neg();
        let before = (lowest >> 7) - 1;
        let len = ((before & ONES).wrapping_mul(ONES) >> 56) as u32;
        Some(Self { bytes: word & before, len, last: nul & lowest != 0 })
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;

/// The highest bit of each byte that is zero; bytes above the first may be marked wrongly, by the
/// borrow.
#[inline(always)]
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & ONES << 7
}

/// [`component_hash`] of a name as user space has it. Names over 255 bytes do not exist.
pub fn name_hash(name: &[u8]) -> u64 {
    let mut words = [0; NAME_WORDS];
    let name = &name[..name.len().min(NAME_SIZE - 1)];
    for (i, byte) in name.iter().enumerate() {
        words[i / 8] |= (*byte as u64) << (8 * (i % 8));
    }
    component_hash(&words, name.len() as u32)
}

/// Rolling hash of an absolute path: what [`Trail::path`] holds after its last component.
pub fn path_hash(path: &[u8]) -> u64 {
    components(path).fold(0, |hash, name| mix(hash, name_hash(name)))
}

/// The components of a path that name something: neither empty nor `.`.
pub fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|b| *b == b'/').filter(|c| !c.is_empty() && *c != b".")
}

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
    use crate::config::MARKERS;

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
    fn dots_and_double_slashes_change_nothing() {
        assert_eq!(path_hash(b"/a//b/./c/"), path_hash(b"/a/b/c"));
        assert_ne!(path_hash(b"/ab/c"), path_hash(b"/a/bc"));
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

    /// Hashes of the components, found as the probes find them.
    fn by_words(path: &[u8]) -> Vec<u64> {
        let mut words = vec![0_u64; path.len() / 8 + 2];
        for (i, byte) in path.iter().enumerate() {
            words[i / 8] |= u64::from(*byte) << (8 * (i % 8));
        }
        let (mut hashes, mut hash, mut len, mut at) = (Vec::new(), 0, 0, 0_u32);
        loop {
            let index = at as usize / 8;
            let word = unaligned(words[index], words[index + 1], at);
            let Some(end) = ComponentEnd::find(word) else {
                (hash, len, at) = (mix(hash, word), len + 8, at + 8);
                continue;
            };
            hash = if end.len == 0 { hash } else { mix(hash, end.bytes) };
            len += end.len;
            if len != 0 {
                hashes.push(mix(hash, u64::from(len)));
            }
            (hash, len, at) = (0, 0, at + end.len + 1);
            if end.last {
                return hashes;
            }
        }
    }

    #[test]
    fn a_path_read_by_words_has_the_hashes_of_its_names() {
        let long = "x".repeat(255);
        let names =
            ["a", "0123456", "01234567", "012345678", "\u{ff}\u{1}\u{2f00}.", "/", &long, "b"];
        for first in 0..names.len() {
            let path = names[first..].join("/");
            let expected: Vec<u64> = components(path.as_bytes()).map(name_hash).collect();
            assert_eq!(by_words(path.as_bytes()), expected, "{path}");
            assert_eq!(by_words(format!("//{path}//").as_bytes()), expected, "{path}");
        }
        assert!(by_words(b"").is_empty());
    }

    #[test]
    fn names_of_every_length_have_hashes_of_their_own() {
        let name = [b'x'; 255];
        let mut seen: Vec<u64> = (1..=255).map(|n| name_hash(&name[..n])).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 255);
    }
}
