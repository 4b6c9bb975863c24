//! Directories that are proven to hold targets: kubelet's root, a runtime's data.
//!
//! A path says nothing about what it leads to: a process with a file system of its own can make one that reads
//! like a pod's volume. So user space opens such a directory and shows it to the probes by a call that the
//! kernel refuses before it looks at the path: `unlinkat(descriptor, SECRET, SHOW | index)`, which
//! is EINVAL for its flags (`unlinkat` in fs/namei.c). The probes note the inode behind the descriptor.

/// Flags of a call that shows a directory. The lower bits are the index of its [`Root`].
pub const SHOW: u32 = 0x5064_0000;
/// The bit that `unlinkat(2)` has no meaning for, and that no other call of ours has.
pub const SHOW_BIT: u32 = 1 << 30;
/// How many there can be.
pub const ROOTS: usize = 64;
/// The bits of the index.
pub const INDEX_MASK: u32 = ROOTS as u32 - 1;
/// The view of all who see the host's root directory; others are the number of a mount namespace.
pub const HOST_VIEW: u32 = 0;

/// What is known of such a directory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// Rolling hash of its path: the host's, or that of the kubelet in whose namespace it is.
    pub path: u64,
    /// How many levels below it a marker is.
    pub depth: u32,
    /// Of [`flag`]; 0 in a slot that is free.
    pub flags: u32,
}

/// What a directory is.
pub mod flag {
    /// It holds targets.
    pub const HOLDS: u32 = 1;
    /// They are pods'.
    pub const PODS: u32 = 1 << 1;
    /// It lies in the only wanted directory.
    pub const WANTED: u32 = 1 << 2;
    /// It is the host's root directory: what lies below has its path on the host.
    pub const HOST: u32 = 1 << 3;
}

/// A path by which a directory is known in one view.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewKey {
    /// Its rolling hash.
    pub path: u64,
    /// [`HOST_VIEW`], or the inode number of a mount namespace.
    pub view: u32,
    /// Padding, always 0.
    pub reserved: u32,
}

/// Words of the filter that tells most paths that are no root's: see [`filter_bit`].
pub const FILTER_WORDS: u32 = 8;

/// The word and the bit of a path in the filter.
#[inline(always)]
pub const fn filter_bit(path: u64) -> (u32, u64) {
    ((path >> 61) as u32, 1 << (path >> 55 & 63))
}

#[cfg(feature = "user")]
mod pod {
    use super::{Root, ViewKey};
    // SAFETY: `repr(C)` of integers without padding (asserted below), valid for every bit pattern.
    unsafe impl aya::Pod for Root {}
    // SAFETY: as above.
    unsafe impl aya::Pod for ViewKey {}
}

const _: () = assert!(size_of::<Root>() == 16);
const _: () = assert!(size_of::<ViewKey>() == 16);
const _: () = assert!(SHOW & SHOW_BIT != 0 && SHOW & INDEX_MASK == 0 && SHOW & 0x200 == 0);
