//! Directories that are proven to contain targets: kubelet's root, a runtime's data directory.
//!
//! A path is no proof of what it leads to: a process in its own mount namespace can create one that looks like a
//! pod's volume. So user space opens the directory and passes it to the probes through a call that the kernel rejects
//! before it resolves the path: `unlinkat(descriptor, SECRET, SHOW | index)`, which is EINVAL for its flags
//! (`unlinkat` in fs/namei.c). The probes note the inode behind the descriptor.

/// Flags of a call that passes a directory to the probes. The lower bits are the index of its [`Root`].
pub const SHOW: u32 = 0x5064_0000;
/// A bit that `unlinkat(2)` does not define and that no other call of podstuck sets.
pub const SHOW_BIT: u32 = 1 << 30;
/// Maximum number of roots.
pub const ROOTS: usize = 64;
/// Mask of the index.
pub const INDEX_MASK: u32 = ROOTS as u32 - 1;
/// The view of processes that share the host's root directory. Other views are identified by the inode number of a
/// mount namespace.
pub const HOST_VIEW: u32 = 0;

/// The properties of such a directory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// Rolling hash of its path: on the host, or in the mount namespace of its kubelet.
    pub path: u64,
    /// Number of levels from the directory to a marker below it.
    pub depth: u32,
    /// Bits of [`flag`]; 0 in a free slot.
    pub flags: u32,
}

/// Bits of [`Root::flags`].
pub mod flag {
    /// It contains targets.
    pub const HOLDS: u32 = 1;
    /// Its targets are pods'.
    pub const PODS: u32 = 1 << 1;
    /// It is in the only wanted directory.
    pub const WANTED: u32 = 1 << 2;
    /// It is the host's root directory: paths below it are the host's paths.
    pub const HOST: u32 = 1 << 3;
}

/// The path of a directory in one view.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewKey {
    /// Rolling hash of the path.
    pub path: u64,
    /// [`HOST_VIEW`], or the inode number of a mount namespace.
    pub view: u32,
    /// Padding, always 0.
    pub reserved: u32,
}

/// Words of the filter that excludes most paths that are no root's: see [`filter_bit`].
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
