//! The current process: its start time, and the directories from which relative paths start.

use aya_ebpf::helpers::bpf_get_current_task_btf;

use super::{
    globals::offsets,
    kernel::{field, follow, task, words},
    kernel_path::KernelPath,
};

/// The part of `struct fdtable` that is read, in one read, like `kernel_path::Dentry`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Descriptors {
    max: u32,
    padding: u32,
    files: u64,
}

/// The current task, for [`follow`].
///
/// The kernel knows the types of the objects behind this pointer, so their fields are loaded with plain instructions
/// instead of helper calls, each of which took about 25 ns in perf's samples.
#[inline(always)]
fn typed_task() -> *const u8 {
    // SAFETY: no arguments; only called if the kernel has it.
    unsafe { bpf_get_current_task_btf() }.cast()
}

/// Start time of the current process, in nanoseconds since boot; 0 if the kernel's layout is unknown.
///
/// It is read in each call, so that calls are never counted for another process with the same id.
#[inline(always)]
pub(crate) fn started(by_main_thread: bool) -> u64 {
    let o = offsets();
    if o.usable == 0 {
        return 0;
    }
    if o.typed_task == 0 {
        let task = task();
        // The main thread is its own leader, which saves a helper call.
        let leader = if by_main_thread { task } else { field(task, o.task_leader).unwrap_or(0) };
        return field(leader, o.task_started).unwrap_or(0);
    }
    // SAFETY: `task_struct.group_leader->start_boottime`.
    unsafe { follow(follow(typed_task(), o.task_leader), o.task_started) }
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
pub(crate) fn descriptor(fd: i32) -> Option<KernelPath> {
    let o = offsets();
    if o.usable == 0 || fd < 0 {
        return None;
    }
    let Descriptors { max, files, .. } = descriptors()?;
    if fd as u32 >= max {
        return None;
    }
    let slot = files + fd as u64 * 8;
    if o.words_type == 0 {
        let file: u64 = field(slot, 0)?;
        return if file == 0 { None } else { field(file, o.file_path) };
    }
    let [file] = words(slot);
    let [mnt, dentry] = words(file.wrapping_add(u64::from(o.file_path)));
    Some(KernelPath { mnt, dentry })
}

/// One of the directories of `fs_struct`.
#[inline(always)]
fn directory(offset: u32) -> Option<KernelPath> {
    let o = offsets();
    if o.typed_task == 0 {
        let fs: u64 = field(task(), o.task_fs)?;
        return field(fs, offset);
    }
    // SAFETY: `task_struct.fs->{root,pwd}.{mnt,dentry}`.
    unsafe {
        let fs: *const u8 = follow(typed_task(), o.task_fs);
        Some(KernelPath { mnt: follow(fs, offset), dentry: follow(fs, offset + 8) })
    }
}

/// The root directory of the current process, which `chroot` changes.
#[inline(always)]
pub(crate) fn root() -> Option<KernelPath> {
    let o = offsets();
    if o.usable == 0 {
        return None;
    }
    directory(o.fs_root)
}

/// The working directory of the current process.
#[inline(always)]
pub(crate) fn working_directory() -> Option<KernelPath> {
    let o = offsets();
    if o.usable == 0 {
        return None;
    }
    directory(o.fs_pwd)
}
