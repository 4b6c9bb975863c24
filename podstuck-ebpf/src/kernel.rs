//! Reads of kernel structures through the offsets of the running kernel. Nothing in this crate
//! follows a kernel pointer but by [`field`].

use aya_ebpf::helpers::{bpf_get_current_task, bpf_get_current_task_btf, bpf_probe_read_kernel};
use podstuck_common::config::NO_OFFSET;

use crate::{maps::offsets, place::Place};

/// Reads a field; `None` when the address cannot be read.
#[inline(always)]
pub(crate) fn field<T: Copy>(base: u64, offset: u32) -> Option<T> {
    let address = base.wrapping_add(u64::from(offset)) as *const T;
    // SAFETY: the helper checks the address itself and fails on a bad one.
    unsafe { bpf_probe_read_kernel(address) }.ok()
}

/// The current task.
#[inline(always)]
pub(crate) fn task() -> u64 {
    // SAFETY: no arguments; always valid in a tracing program.
    unsafe { bpf_get_current_task() }
}

/// The part of `struct fdtable` that is read, at once, as `place::Dentry` is.
#[repr(C)]
#[derive(Clone, Copy)]
struct Descriptors {
    max: u32,
    padding: u32,
    files: u64,
}

/// The current task, for [`follow`].
///
/// The kernel knows the types of what hangs on this pointer, so its fields are loaded by plain
/// instructions instead of calls of a helper, of which each took about 25 ns in perf's samples.
#[inline(always)]
fn typed_task() -> *const u8 {
    // SAFETY: no arguments; only called where the kernel has it.
    unsafe { bpf_get_current_task_btf() }.cast()
}

/// Loads a field through a pointer whose type the kernel knows.
///
/// # Safety
/// `base` comes from [`typed_task`] by way of fields that are pointers, and `T` is the field's type.
#[inline(always)]
unsafe fn follow<T: Copy>(base: *const u8, offset: u32) -> T {
    // SAFETY: the kernel checks the type when it loads the program, and reads 0 where the address
    // is not mapped.
    unsafe { base.add(offset as usize).cast::<T>().read() }
}

#[inline(always)]
fn descriptors() -> Option<Descriptors> {
    let o = offsets();
    if o.typed_task == 0 {
        let files: u64 = field(task(), o.task_files)?;
        let table: u64 = field(files, o.files_fdt)?;
        return field(table, o.fdt_max);
    }
    // SAFETY: `task_struct.files->fdt->{max_fds,fd}`.
    unsafe {
        let files: *const u8 = follow(typed_task(), o.task_files);
        let table: *const u8 = follow(files, o.files_fdt);
        let max = follow(table, o.fdt_max);
        Some(Descriptors { max, padding: 0, files: follow(table, o.fdt_max + 8) })
    }
}

/// The open directory behind a descriptor of the current process.
#[inline(always)]
pub(crate) fn descriptor(fd: i32) -> Option<Place> {
    let o = offsets();
    if o.usable == 0 || fd < 0 {
        return None;
    }
    let Descriptors { max, files, .. } = descriptors()?;
    if fd as u32 >= max {
        return None;
    }
    let file: u64 = field(files + fd as u64 * 8, 0)?;
    if file == 0 {
        return None;
    }
    field(file, o.file_path)
}

/// One of the directories in `fs_struct`.
#[inline(always)]
fn directory(offset: u32) -> Option<Place> {
    let o = offsets();
    if o.typed_task == 0 {
        let fs: u64 = field(task(), o.task_fs)?;
        return field(fs, offset);
    }
    // SAFETY: `task_struct.fs->{root,pwd}.{mnt,dentry}`.
    unsafe {
        let fs: *const u8 = follow(typed_task(), o.task_fs);
        Some(Place { mnt: follow(fs, offset), dentry: follow(fs, offset + 8) })
    }
}

/// The root directory of the current process, which `chroot` changes.
#[inline(always)]
pub(crate) fn root() -> Option<Place> {
    let o = offsets();
    if o.usable == 0 {
        return None;
    }
    directory(o.fs_root)
}

/// The working directory of the current process.
#[inline(always)]
pub(crate) fn working_directory() -> Option<Place> {
    let o = offsets();
    if o.usable == 0 {
        return None;
    }
    directory(o.fs_pwd)
}

/// Whether a seccomp filter decides about the current process's calls.
#[inline(always)]
pub(crate) fn has_seccomp_filter() -> bool {
    const SECCOMP_MODE_FILTER: u32 = 2;
    let o = offsets();
    o.task_seccomp != NO_OFFSET && field(task(), o.task_seccomp) == Some(SECCOMP_MODE_FILTER)
}
