//! A call returns: what was noted of it is taken, and what is known of it now is noted.

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
    process, rename,
    returned::{NOT_READ, look_alike},
    roots,
    slot::Slot,
    words,
};

const EPERM: i64 = -1;
const ENOSYS: i64 = -38;
const EINVAL: i64 = -22;

/// What seccomp filters of container runtimes answer. They do so before the entry's tracepoint, and
/// the return's fires all the same (`syscall_trace_enter` in kernel/entry/common.c).
#[inline(always)]
fn refused(result: i64) -> bool {
    result == EPERM || result == ENOSYS
}

/// The system call of this number returns.
#[inline(always)]
pub(crate) fn finish_system_call(number: u32, result: i64) {
    match EntryPointId::of_system_call(number) {
        Some(entry_point) => finish(entry_point, result, NOT_READ, Slot::claim()),
        None => count_loss(loss::UNMATCHED_EXIT),
    }
}

/// A call returns by this way. The slot for it has an argument of this length, if any.
#[inline(always)]
pub(crate) fn finish(entry_point: EntryPointId, result: i64, argument: u32, slot: Option<Slot>) {
    if stops_early() {
        return;
    }
    let thread = bpf_get_current_pid_tgid();
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

/// Whether nothing was noted at the entry.
#[inline(always)]
fn stops_early() -> bool {
    if stop_after(step::CLOCKS) {
        // SAFETY: no arguments.
        unsafe { bpf_ktime_get_ns() };
    }
    stop_after(step::PAIR) || stop_after(step::CLOCKS)
}

/// The slot, with a copy of the entry.
#[inline(always)]
fn copy(entry: *const InFlight, slot: Option<Slot>) -> Option<Slot> {
    let mut slot = slot?;
    // SAFETY: the entry is this thread's.
    unsafe { words::copy(&mut slot.scratch().call.entry, entry) };
    Some(slot)
}

/// The call that the thread is in returns. Whether it is in one.
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
    // Another podstuck has another secret, and deletes nothing by this either.
    if result == EINVAL && entry.flags & !INDEX_MASK == SHOW {
        let secret = config().secret;
        if entry.path == secret && secret != 0 {
            // What cannot be read now is shown again.
            let _ = roots::show(entry.dirfd, entry.flags & INDEX_MASK);
        }
        return;
    }
    let tgid = (thread >> 32) as u32;
    if tgid == config().own_tgid {
        let call = u32::from(entry.call);
        count_own(call);
        if entry.resolved().is_some() {
            count_own(call::COUNT as u32 + call);
        }
        return;
    }
    // SAFETY: no arguments.
    let now = unsafe { bpf_ktime_get_ns() };
    // Field by field: the compiler would clear the whole with a loop over bytes.
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
