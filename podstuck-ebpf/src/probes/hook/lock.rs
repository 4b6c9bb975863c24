//! An iterator over all tasks, which runs when user space reads it: the threads that sleep for a lock of the kernel.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_seq_write;
use podstuck_common::{
    config::NO_OFFSET,
    lock::{LockWait, OWNER_FLAGS, READER_OWNED, kind},
};

use crate::probes::{globals::offsets, kernel::field};

/// `struct bpf_iter__task`
#[repr(C)]
struct Context {
    meta: *const Meta,
    /// Null after the last task.
    task: *const c_void,
}

/// The part of `struct bpf_iter_meta` that is used.
#[repr(C)]
struct Meta {
    seq: *mut aya_ebpf::bindings::seq_file,
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
fn lock_waits(context: *const Context) -> i32 {
    // SAFETY: the kernel passes its own structures, whose types it knows.
    let (seq, task) = unsafe { ((*(*context).meta).seq, (*context).task as u64) };
    if task == 0 {
        return 0;
    }
    if let Some(wait) = wait_of(task) {
        let data = (&raw const wait).cast_mut().cast();
        // If the buffer is full, the kernel passes this task again for the next read.
        // SAFETY: `data` has as many bytes, all of them set.
        unsafe { bpf_seq_write(seq, data, LockWait::SIZE as u32) };
    }
    0
}

/// The lock that a task sleeps for (`hung_task_set_blocker` in include/linux/hung_task.h).
#[inline(always)]
fn wait_of(task: u64) -> Option<LockWait> {
    let o = offsets();
    let blocker: u64 = field(task, o.task_blocker)?;
    if blocker == 0 {
        return None;
    }
    let (lock, kind) = (blocker & !kind::MASK, (blocker & kind::MASK) as u32);
    let owner: u64 = match kind {
        kind::MUTEX => field(lock, o.mutex_owner)?,
        kind::SEMAPHORE if o.semaphore_holder == NO_OFFSET => 0,
        kind::SEMAPHORE => field(lock, o.semaphore_holder)?,
        _ => field(lock, o.rwsem_owner)?,
    };
    let is_rwsem = kind == kind::RWSEM_READER || kind == kind::RWSEM_WRITER;
    let shared = u32::from(is_rwsem && owner & READER_OWNED != 0);
    let holder = match owner & !OWNER_FLAGS {
        0 => 0,
        holder => pid_tgid(holder).unwrap_or(0),
    };
    Some(LockWait { thread: pid_tgid(task)?, holder, kind, shared })
}

#[inline(always)]
fn pid_tgid(task: u64) -> Option<u64> {
    let (tgid, pid): (u32, u32) =
        (field(task, offsets().task_tgid)?, field(task, offsets().task_pid)?);
    Some(u64::from(tgid) << 32 | u64::from(pid))
}
