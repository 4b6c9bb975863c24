//! Calls between entry and return.
//!
//! A thread is in one call at a time, and nearly always the only user of the slot that the lower bits of its id
//! select. An array costs one bounds check, while a hash table takes a lock to insert and another to remove: 1.17 us
//! of program time for each deletion instead of 1.66, on the machine of the README's table.

use aya_ebpf::{
    bindings::{BPF_ANY, BPF_NOEXIST},
    helpers::bpf_get_current_pid_tgid,
};
use podstuck_common::{
    entry_point::EntryPointId,
    in_flight::{IN_FLIGHT_SLOTS, InFlight, Resolved},
    record::{call, loss},
};

use super::{
    claim,
    maps::{IN_FLIGHT, IN_FLIGHT_BESIDE, count_loss},
};

const EEXIST: i32 = -17;

#[inline(always)]
fn slot_of(thread: u64) -> Option<*mut InFlight> {
    IN_FLIGHT.get_ptr_mut(thread as u32 & (IN_FLIGHT_SLOTS - 1))
}

/// Stores a call at its entry.
#[inline(always)]
pub(crate) fn put(entry: &InFlight) {
    let Some(slot) = slot_of(entry.thread) else { return };
    // SAFETY: map memory; another thread's id may change concurrently, but not to this thread's.
    if unsafe { (*slot).thread } == entry.thread {
        count_loss(loss::OVERWRITTEN);
    // SAFETY: as above; the word is shared by all.
    } else if !unsafe { claim::claim(&raw mut (*slot).claims) } {
        return put_beside(entry);
    }
    // SAFETY: the slot is this thread's, except its claims, so there is no reference to the whole.
    unsafe {
        (*slot).start_ns = entry.start_ns;
        (*slot).path = entry.path;
        (*slot).second = entry.second;
        (*slot).mnt = entry.mnt;
        (*slot).dirfd = entry.dirfd;
        (*slot).flags = entry.flags;
        (*slot).inode = entry.inode;
        (*slot).call = entry.call;
        (*slot).entry_point = entry.entry_point;
        (*slot).thread = entry.thread;
    }
}

#[inline(always)]
fn put_beside(entry: &InFlight) {
    match IN_FLIGHT_BESIDE.insert(entry.thread, entry, u64::from(BPF_NOEXIST)) {
        Ok(()) => {}
        Err(EEXIST) => {
            count_loss(loss::OVERWRITTEN);
            let _ = IN_FLIGHT_BESIDE.insert(entry.thread, entry, u64::from(BPF_ANY));
        }
        Err(_) => count_loss(loss::IN_FLIGHT_FULL),
    }
}

/// The current thread's call.
#[inline(always)]
fn current() -> Option<*mut InFlight> {
    of(bpf_get_current_pid_tgid())
}

/// The thread's call.
#[inline(always)]
fn of(thread: u64) -> Option<*mut InFlight> {
    let slot = slot_of(thread)?;
    // SAFETY: as in `put`.
    if unsafe { (*slot).thread } == thread {
        Some(slot)
    } else {
        IN_FLIGHT_BESIDE.get_ptr_mut(thread)
    }
}

/// The path argument and the flags of the current thread's call.
#[inline(always)]
pub(crate) fn arguments(thread: u64) -> Option<(u64, u32)> {
    let entry = of(thread)?;
    // SAFETY: the entry is this thread's.
    Some(unsafe { ((*entry).path, (*entry).flags) })
}

/// Whether the current thread is in a call through this entry point.
#[inline(always)]
pub(crate) fn is_in(entry_point: EntryPointId) -> bool {
    // SAFETY: the entry is this thread's.
    current().is_some_and(|entry| unsafe { (*entry).entry_point } == entry_point)
}

/// Stores the directory that the kernel has resolved for the current thread's call.
#[inline(always)]
pub(crate) fn resolved(directory: Resolved) {
    let Some(entry) = current() else { return };
    // SAFETY: as above.
    unsafe {
        if (*entry).call != u16::from(call::RENAME) {
            (*entry).second = directory.dentry;
            (*entry).mnt = directory.mnt;
            (*entry).inode = directory.inode;
        }
    }
}

/// Removes the current thread's call.
#[inline(always)]
pub(crate) fn forget() {
    let _ = take(bpf_get_current_pid_tgid(), |_| ());
}

/// Removes the thread's call and passes it to `with`. It is not returned by value, which would occupy the small
/// stack.
#[inline(always)]
pub(crate) fn take<T>(thread: u64, with: impl FnOnce(*const InFlight) -> T) -> Option<T> {
    let slot = slot_of(thread)?;
    // SAFETY: as in `put`.
    if unsafe { (*slot).thread } == thread {
        // The slot is this thread's until the claim is released.
        let result = with(slot);
        // SAFETY: as above.
        unsafe {
            (*slot).thread = 0;
            claim::give_back(&raw mut (*slot).claims);
        }
        return Some(result);
    }
    // Only this thread's own calls write or remove this entry.
    let result = with(IN_FLIGHT_BESIDE.get_ptr(thread)?);
    let _ = IN_FLIGHT_BESIDE.remove(thread);
    Some(result)
}
