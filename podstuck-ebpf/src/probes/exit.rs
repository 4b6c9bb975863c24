//! Processes the return of a call: takes the stored entry and hands it on.

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
use podstuck_common::{
    config::step,
    entry_point::EntryPointId,
    in_flight::InFlight,
    record::{Process, call, loss},
    root::{INDEX_MASK, SHOW},
};

use super::{
    account::account,
    atomic,
    globals::{config, stop_after},
    in_flight, kernel,
    maps::{OWN_CALLS, count_loss},
    owner, process, rename,
    returned::{NOT_READ, look_alike},
    roots,
    slot::Slot,
    words,
};

const EPERM: i64 = -1;
const ENOSYS: i64 = -38;
const EINVAL: i64 = -22;

/// The errors that the seccomp filters of container runtimes return. They act before the entry's tracepoint, but the
/// return's tracepoint still fires (`syscall_trace_enter` in kernel/entry/common.c).
#[inline(always)]
fn refused(result: i64) -> bool {
    result == EPERM || result == ENOSYS
}

/// Processes the return of the system call with this number.
#[inline(always)]
pub(crate) fn finish_system_call(number: u32, result: i64) {
    match EntryPointId::of_system_call(number) {
        Some(entry_point) => finish(entry_point, result, NOT_READ, Slot::claim()),
        None => count_loss(loss::UNMATCHED_EXIT),
    }
}

/// Processes the return of a call through this entry point. `argument` is the length of the argument in the slot, if
/// there is one.
#[inline(always)]
pub(crate) fn finish(entry_point: EntryPointId, result: i64, argument: u32, slot: Option<Slot>) {
    if stops_early() {
        return;
    }
    let thread = bpf_get_current_pid_tgid();
    if is_of_others(thread) {
        return;
    }
    let taken = in_flight::take(thread, |entry| {
        // SAFETY: the entry is this thread's.
        (unsafe { (*entry).entry_point } == entry_point).then(|| copy(entry, slot))
    });
    match taken {
        Some(Some(slot)) => returned(slot, thread, result, argument),
        None if kernel::has_seccomp_filter() && refused(result) => count_loss(loss::REFUSED),
        _ => count_loss(loss::UNMATCHED_EXIT),
    }
}

/// Whether the thread's current call is processed by the programs of another process only.
#[inline(always)]
pub(crate) fn is_of_others(thread: u64) -> bool {
    if config().kept == 0 {
        return false;
    }
    let (path, flags) = in_flight::arguments(thread).unwrap_or((0, 0));
    !owner::processes(thread, path, flags)
}

/// Whether no entry was stored, because a benchmark stops early.
#[inline(always)]
fn stops_early() -> bool {
    if stop_after(step::CLOCKS) {
        // SAFETY: no arguments.
        unsafe { bpf_ktime_get_ns() };
    }
    stop_after(step::PAIR) || stop_after(step::CLOCKS)
}

/// Copies the entry into the slot.
#[inline(always)]
fn copy(entry: *const InFlight, slot: Option<Slot>) -> Option<Slot> {
    let mut slot = slot?;
    // SAFETY: the entry is this thread's.
    unsafe { words::copy(&mut slot.scratch().call.entry, entry) };
    Some(slot)
}

/// Processes the return of the thread's current call; returns whether there is one.
#[inline(always)]
pub(crate) fn finish_any(result: i64) -> bool {
    let thread = bpf_get_current_pid_tgid();
    let Some(slot) = in_flight::take(thread, |entry| copy(entry, Slot::claim())) else {
        return false;
    };
    returned(slot, thread, result, NOT_READ);
    true
}

#[inline(always)]
fn returned(slot: Option<Slot>, thread: u64, result: i64, argument: u32) {
    let Some(mut slot) = slot else { return count_loss(loss::NO_SLOT) };
    let scratch = slot.scratch();
    let entry = &scratch.call.entry;
    // Another podstuck has another secret; its call deletes nothing either.
    if result == EINVAL && entry.flags & !INDEX_MASK == SHOW {
        let secret = config().secret;
        if entry.path == secret && secret != 0 {
            // A directory that cannot be read now is passed again.
            let _ = roots::show(entry.dirfd, entry.flags & INDEX_MASK);
        }
        return;
    }
    let tgid = (thread >> 32) as u32;
    if owner::is_own(thread) {
        let call = u32::from(entry.call);
        count_own(call);
        if entry.resolved().is_some() {
            count_own(call::COUNT as u32 + call);
        }
        return;
    }
    // SAFETY: no arguments.
    let now = unsafe { bpf_ktime_get_ns() };
    // Field by field: the compiler would clear the whole structure with a loop over bytes.
    let call = &mut scratch.call;
    call.now = now;
    call.duration_ns = now.wrapping_sub(call.entry.start_ns);
    call.tid = thread as u32;
    call.argument = argument;
    call.last = 0;
    call.errno = if result < 0 { -result as u16 } else { 0 };
    words::put(&mut call.mount_depth, 0);
    words::put(&mut call.has_failed, false);
    words::put(&mut call.fresh, false);
    words::put(&mut call.followed, false);
    words::put(&mut call.look_alike, look_alike::NONE);
    words::put(&mut call.resolved, false);
    if stop_after(step::SLOT) {
        return;
    }
    call.process = Process::new(tgid, process::started(tgid == call.tid));
    if call.entry.call != u16::from(call::RENAME) {
        account(&mut slot);
    } else if result == 0 {
        rename::renamed(&mut slot);
    }
}

#[inline(always)]
fn count_own(index: u32) {
    if let Some(seen) = OWN_CALLS.get_ptr_mut(index) {
        // SAFETY: an aligned word of map memory.
        unsafe { atomic::add(seen, 1) };
    }
}
