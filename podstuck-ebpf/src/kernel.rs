//! Reads of kernel structures through the offsets of the running kernel. Nothing in this crate
//! follows a kernel pointer but by [`field`].

use aya_ebpf::helpers::{
    bpf_get_current_cgroup_id, bpf_get_current_comm, bpf_get_current_task, bpf_probe_read_kernel,
};
use podstuck_common::{config::NO_OFFSET, record::Actor};

use crate::{maps::offsets, place::Place};

/// Reads a field; `None` when the address cannot be read.
#[inline(always)]
pub(crate) fn field<T: Copy>(base: u64, offset: u32) -> Option<T> {
    let address = base.wrapping_add(u64::from(offset)) as *const T;
    // SAFETY: the helper checks the address itself and fails on a bad one.
    unsafe { bpf_probe_read_kernel(address) }.ok()
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

/// Whether a seccomp filter decides about the current process's calls.
#[inline(always)]
pub(crate) fn has_seccomp_filter() -> bool {
    const SECCOMP_MODE_FILTER: u32 = 2;
    let o = offsets();
    o.task_seccomp != NO_OFFSET && field(task(), o.task_seccomp) == Some(SECCOMP_MODE_FILTER)
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
