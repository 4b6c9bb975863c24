//! Reads of kernel structures through the offsets of the running kernel. Nothing else in this
//! crate follows a kernel pointer.

use aya_ebpf::helpers::{
    bpf_get_current_cgroup_id, bpf_get_current_comm, bpf_get_current_task, bpf_probe_read_kernel,
    generated,
};
use podstuck_common::{record::Actor, trail::NAME_SIZE};

use crate::maps::offsets;

/// Reads a field; `None` when the address cannot be read.
#[inline(always)]
pub(crate) fn field<T: Copy>(base: u64, offset: u32) -> Option<T> {
    let address = base.wrapping_add(u64::from(offset)) as *const T;
    // SAFETY: the helper checks the address itself and fails on a bad one.
    unsafe { bpf_probe_read_kernel(address) }.ok()
}

/// A directory as a path reaches it: `struct path`. All zero stands for none.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// `struct vfsmount *`
    pub(crate) mnt: u64,
    /// `struct dentry *`
    pub(crate) dentry: u64,
}

/// One step towards the root.
pub(crate) enum Up {
    /// The directory is the root of a mount, which sits on this place.
    Mount(Place),
    /// The parent directory; the name is that of the directory left.
    Parent(Place),
    /// The root of the mount namespace, or of what is reachable.
    Top,
}

#[inline(always)]
fn place_at(address: u64) -> Option<Place> {
    let o = offsets();
    Some(Place { mnt: field(address, o.path_mnt)?, dentry: field(address, o.path_dentry)? })
}

#[inline(always)]
fn task() -> u64 {
    // SAFETY: no arguments; always valid in a tracing program.
    unsafe { bpf_get_current_task() }
}

/// The open directory behind a descriptor of the current process.
#[inline(always)]
pub(crate) fn descriptor(fd: i32) -> Option<Place> {
    let o = offsets();
    if o.usable == 0 || fd < 0 {
        return None;
    }
    let files: u64 = field(task(), o.task_files)?;
    let table: u64 = field(files, o.files_fdt)?;
    let max: u32 = field(table, o.fdt_max)?;
    if fd as u32 >= max {
        return None;
    }
    let array: u64 = field(table, o.fdt_fd)?;
    let file: u64 = field(array + fd as u64 * 8, 0)?;
    if file == 0 {
        return None;
    }
    place_at(file + u64::from(o.file_path))
}

/// The root directory of the current process, which `chroot` changes.
#[inline(always)]
pub(crate) fn root() -> Option<Place> {
    let o = offsets();
    if o.usable == 0 {
        return None;
    }
    let fs: u64 = field(task(), o.task_fs)?;
    place_at(fs + u64::from(o.fs_root))
}

/// The working directory of the current process.
#[inline(always)]
pub(crate) fn working_directory() -> Option<Place> {
    let o = offsets();
    if o.usable == 0 {
        return None;
    }
    let fs: u64 = field(task(), o.task_fs)?;
    place_at(fs + u64::from(o.fs_pwd))
}

impl Place {
    /// No directory.
    pub(crate) const NONE: Self = Self { mnt: 0, dentry: 0 };

    /// Whether this is no directory.
    #[inline(always)]
    pub(crate) fn is_none(self) -> bool {
        self.dentry == 0
    }

    /// One step up, by `d_path`'s rule: at the root of a mount go on where it is mounted.
    #[inline(always)]
    pub(crate) fn up(self) -> Up {
        self.try_up().unwrap_or(Up::Top)
    }

    #[inline(always)]
    fn try_up(self) -> Option<Up> {
        let o = offsets();
        let root: u64 = field(self.mnt, o.vfsmount_root)?;
        if self.dentry == root {
            let mount = self.mnt - u64::from(o.mount_vfsmount);
            let parent: u64 = field(mount, o.mount_parent)?;
            if parent == mount {
                return None;
            }
            let dentry = field(mount, o.mount_mountpoint)?;
            return Some(Up::Mount(Place { mnt: parent + u64::from(o.mount_vfsmount), dentry }));
        }
        let dentry = self.parent()?;
        if dentry == self.dentry {
            return None;
        }
        Some(Up::Parent(Place { mnt: self.mnt, dentry }))
    }

    /// `dentry.d_parent`
    #[inline(always)]
    pub(crate) fn parent(self) -> Option<u64> {
        field(self.dentry, offsets().dentry_parent)
    }

    /// `dentry.d_name.hash_len`
    #[inline(always)]
    pub(crate) fn hash_len(self) -> Option<u64> {
        field(self.dentry, offsets().dentry_hash_len)
    }

    /// `dentry.d_inode`
    #[inline(always)]
    pub(crate) fn inode(self) -> Option<u64> {
        field(self.dentry, offsets().dentry_inode)
    }

    /// Copies the name to `to`, which has room for [`NAME_SIZE`] bytes; its length with the NUL.
    #[inline(always)]
    pub(crate) fn name(self, to: *mut u8) -> Option<usize> {
        let name: u64 = field(self.dentry, offsets().dentry_name)?;
        // SAFETY: the caller vouches for `to`; the helper checks the source.
        let read = unsafe {
            generated::bpf_probe_read_kernel_str(to.cast(), NAME_SIZE as u32, name as *const _)
        };
        (read > 0).then_some(read as usize)
    }

    /// Inode number, device number and mount id.
    #[inline(always)]
    pub(crate) fn numbers(self) -> (u64, u32, u32) {
        let o = offsets();
        let inode = self.inode().unwrap_or(0);
        let ino = field(inode, o.inode_ino).unwrap_or(0);
        let sb: u64 = field(inode, o.inode_sb).unwrap_or(0);
        let dev = field(sb, o.sb_dev).unwrap_or(0);
        let mount = self.mnt.wrapping_sub(u64::from(o.mount_vfsmount));
        (ino, dev, field(mount, o.mount_id).unwrap_or(0))
    }
}

/// Describes the current process for people.
#[inline(always)]
pub(crate) fn describe(actor: &mut Actor) {
    let o = offsets();
    // SAFETY: no arguments; 0 where the kernel has no version 2 hierarchy.
    actor.cgroup = unsafe { bpf_get_current_cgroup_id() };
    actor.comm = bpf_get_current_comm().unwrap_or_default();
    let task = if o.usable == 0 { 0 } else { task() };
    let namespaces: u64 = field(task, o.task_nsproxy).unwrap_or(0);
    let mounts: u64 = field(namespaces, o.nsproxy_mnt_ns).unwrap_or(0);
    actor.mnt_ns = field(mounts, o.mnt_ns_inum).unwrap_or(0);
    let parent: u64 = field(task, o.task_parent).unwrap_or(0);
    actor.parent = field(parent, o.task_tgid).unwrap_or(0);
    actor.parent_comm = field(parent, o.task_comm).unwrap_or_default();
}
