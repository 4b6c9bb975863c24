//! A directory as a path reaches it, and the steps up from it.

use aya_ebpf::helpers::generated;
use podstuck_common::component::NAME_SIZE;

use super::{
    globals::offsets,
    kernel::{field, read_into, words},
};

/// A directory as a path reaches it: `struct path`, whose field order user space verifies. All zeros mean none.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernelPath {
    /// `struct vfsmount *`
    pub(crate) mnt: u64,
    /// `struct dentry *`
    pub(crate) dentry: u64,
}

/// The part of `struct dentry` that is read, in one read. User space verifies that this kernel has the fields in this
/// order without a gap.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Dentry {
    pub(crate) parent: u64,
    pub(crate) hash_len: u64,
    pub(crate) name: u64,
    pub(crate) inode: u64,
}

/// The place of a mount, in one read.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mounted {
    /// `struct mount *`
    pub(crate) parent: u64,
    /// `struct dentry *`
    pub(crate) mountpoint: u64,
}

/// Copies a name to `to`, which has room for [`NAME_SIZE`] bytes; returns its length with the NUL.
#[inline(always)]
pub(crate) fn copy_name(name: u64, to: *mut u8) -> Option<usize> {
    // SAFETY: the caller guarantees `to`; the helper checks the source.
    let read = unsafe {
        generated::bpf_probe_read_kernel_str(to.cast(), NAME_SIZE as u32, name as *const _)
    };
    (read > 0).then_some(read as usize)
}

/// One step towards the root.
pub(crate) enum Up {
    /// The directory is the root of a mount, which is mounted at this place.
    Mount(KernelPath),
    /// The parent directory, and the address in the kernel of the name of the directory below it.
    Parent(KernelPath, u64),
    /// The root of the mount namespace.
    Top,
    /// The end of the reachable path: the root of a mount without a mount namespace, or a directory that is no longer
    /// below the root of its mount.
    Unreachable,
}

impl KernelPath {
    /// Whether this is not a directory.
    #[inline(always)]
    pub(crate) fn is_none(self) -> bool {
        self.dentry == 0
    }

    /// One step up, like `d_path`: from the root of a mount to its mount point.
    #[inline(always)]
    pub(crate) fn up(self, dentry: &Dentry) -> Up {
        self.try_up(dentry).unwrap_or(Up::Unreachable)
    }

    #[inline(always)]
    fn try_up(self, dentry: &Dentry) -> Option<Up> {
        let o = offsets();
        let root: u64 = field(self.mnt, o.vfsmount_root)?;
        if self.dentry == root {
            let mount = self.mount();
            let Mounted { parent, mountpoint } = field(mount, o.mount_parent)?;
            if parent == mount {
                return is_in_namespace(mount).then_some(Up::Top);
            }
            return Some(Up::Mount(KernelPath {
                mnt: parent + u64::from(o.mount_vfsmount),
                dentry: mountpoint,
            }));
        }
        if dentry.parent == self.dentry {
            return None;
        }
        Some(Up::Parent(KernelPath { mnt: self.mnt, dentry: dentry.parent }, dentry.name))
    }

    /// The `struct mount` that the path is in.
    #[inline(always)]
    fn mount(self) -> u64 {
        self.mnt.wrapping_sub(u64::from(offsets().mount_vfsmount))
    }

    /// Reads the place where its mount is mounted; returns whether that succeeded.
    #[inline(always)]
    pub(crate) fn read_mounted(self, to: &mut Mounted) -> bool {
        let o = offsets();
        if o.words_type == 0 {
            return read_into(to, self.mount(), o.mount_parent);
        }
        let [parent, mountpoint] = words(self.mount().wrapping_add(u64::from(o.mount_parent)));
        *to = Mounted { parent, mountpoint };
        to.parent != 0
    }

    /// Like [`Self::dentry`], into scratch memory.
    #[inline(always)]
    pub(crate) fn read_dentry(self, to: &mut Dentry) -> bool {
        let o = offsets();
        if o.words_type == 0 {
            return read_into(to, self.dentry, o.dentry_parent);
        }
        let at = self.dentry.wrapping_add(u64::from(o.dentry_parent));
        let [parent, hash_len, name, inode] = words(at);
        *to = Dentry { parent, hash_len, name, inode };
        to.parent != 0
    }

    /// The directory's dentry.
    #[inline(always)]
    pub(crate) fn dentry(self) -> Option<Dentry> {
        field(self.dentry, offsets().dentry_parent)
    }

    /// Inode number, device number and mount id.
    #[inline(always)]
    pub(crate) fn numbers(self) -> (u64, u32, u32) {
        let o = offsets();
        let inode = self.dentry().map_or(0, |dentry| dentry.inode);
        let ino = field(inode, o.inode_ino).unwrap_or(0);
        let sb: u64 = field(inode, o.inode_sb).unwrap_or(0);
        let dev = field(sb, o.sb_dev).unwrap_or(0);
        (ino, dev, field(self.mount(), o.mount_id).unwrap_or(0))
    }
}

/// Whether a mount without a parent is the root of a mount namespace: `prepend_path` in fs/d_path.c. After `umount
/// -l` it is in none. A copy made by `open_tree` is in an anonymous one, whose number is 0, or since Linux 6.18 a
/// fixed one (`MNT_NS_ANON_INO`).
#[inline(always)]
fn is_in_namespace(mount: u64) -> bool {
    const ANONYMOUS: u32 = 0xefff_fff7;
    let o = offsets();
    let namespace: u64 = field(mount, o.mount_ns).unwrap_or(0);
    // Without a namespace, or with an error in its place, the number cannot be read and is 0.
    let number: u32 = field(namespace, o.mnt_ns_inum).unwrap_or(0);
    number != 0 && number != ANONYMOUS
}
