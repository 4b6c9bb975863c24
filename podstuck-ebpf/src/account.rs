//! The two handlers that all probes share: a call is entered, a call returns.

use aya_ebpf::{
    bindings::BPF_ANY,
    helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns},
};
use podstuck_common::{
    bucket::bucket_of,
    record::{CountKey, InFlight, call, loss},
};

use crate::{
    actor, atomic, count, in_flight, kernel,
    locate::locate,
    maps::{ACTORS, OWN_CALLS, config, lose},
    rename,
    returned::{NOT_READ, Returned},
    scratch::scratch,
    tell::{reasons, tell},
};

const EPERM: i64 = -1;
const ENOSYS: i64 = -38;
const AT_REMOVEDIR: u32 = 0x200;

/// A call is entered. `number` is the one that [`finish`] will be given.
#[inline(always)]
pub(crate) fn start(call: u8, number: u32, dirfd: i32, path: u64, flags: u32) {
    let thread = bpf_get_current_pid_tgid();
    let call =
        if call == call::UNLINKAT && flags & AT_REMOVEDIR != 0 { call::UNLINKAT_DIR } else { call };
    // SAFETY: no arguments.
    let start_ns = unsafe { bpf_ktime_get_ns() };
    in_flight::put(&InFlight {
        thread,
        claims: 0,
        start_ns,
        path,
        second: 0,
        dirfd,
        flags,
        call: u32::from(call),
        number,
    });
}

/// What seccomp filters of container runtimes answer. They do so before the entry's tracepoint, and
/// the return's fires all the same (`syscall_trace_enter` in kernel/entry/common.c).
#[inline(always)]
fn refused(result: i64) -> bool {
    result == EPERM || result == ENOSYS
}

/// The call of this number returns. `n` is the program's room.
#[inline(always)]
pub(crate) fn finish(n: u32, number: u32, result: i64) {
    finish_with(n, number, result, NOT_READ);
}

/// The same, when the room has an argument of this length already.
#[inline(always)]
pub(crate) fn finish_with(n: u32, number: u32, result: i64, argument: u32) {
    let thread = bpf_get_current_pid_tgid();
    let Some(entry) = in_flight::take(thread) else {
        lose(if kernel::has_seccomp_filter() && refused(result) {
            loss::REFUSED
        } else {
            loss::UNMATCHED_EXIT
        });
        return;
    };
    if entry.number != number {
        lose(loss::UNMATCHED_EXIT);
        return;
    }
    returned(n, thread, entry, result, argument);
}

/// The call that the thread is in returns, whose number is that of its room. Whether it is in one.
#[inline(always)]
pub(crate) fn finish_in_its_room(result: i64) -> bool {
    let thread = bpf_get_current_pid_tgid();
    let Some(entry) = in_flight::take(thread) else { return false };
    returned(entry.number, thread, entry, result, NOT_READ);
    true
}

#[inline(always)]
fn returned(n: u32, thread: u64, entry: InFlight, result: i64, argument: u32) {
    let tgid = (thread >> 32) as u32;
    if tgid == config().own_tgid {
        if let Some(seen) = OWN_CALLS.get_ptr_mut(entry.call) {
            // SAFETY: an aligned word of map memory.
            unsafe { atomic::add(seen, 1) };
        }
        return;
    }
    let Some(room) = scratch(n) else { return };
    // SAFETY: no arguments.
    let now = unsafe { bpf_ktime_get_ns() };
    // Field by field: the compiler would clear the whole with a loop over bytes.
    let call = &mut room.call;
    call.entry = entry;
    call.now = now;
    call.duration_ns = now.wrapping_sub(entry.start_ns);
    call.tgid = tgid;
    call.tid = thread as u32;
    call.argument = argument;
    call.errno = if result < 0 { -result as u16 } else { 0 };
    call.mount_depth = 0;
    call.has_failed = false;
    call.fresh = false;
    call.followed = false;
    if entry.call as u8 != call::RENAME {
        account(n);
    } else if result == 0 {
        rename::renamed(n);
    }
}

/// Counts and tells the call in the scratch room. A function of its own, as [`rename::renamed`] is: on
/// Linux 5.10 the frames of all callers together must fit into 512 bytes.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn account(n: u32) -> u32 {
    locate(n);
    let Some(room) = scratch(n) else { return 0 };
    let Returned { trail, tgid, duration_ns, entry, errno, .. } = &room.call;
    let config = config();
    if (config.only_pod != 0 && trail.pod != config.only_pod)
        || (config.only_path != 0 && trail.wanted == 0)
    {
        lose(loss::NOT_WANTED);
        return 0;
    }
    let key = CountKey::new(trail.target, *tgid, entry.call as u8, *errno, bucket_of(*duration_ns));
    let new = count::add(&key, *duration_ns);
    if new && ACTORS.get_ptr(*tgid).is_none() {
        actor::describe(&mut room.head.actor, room.call.of_io_uring());
        let _ = ACTORS.insert(room.call.tgid, &room.head.actor, u64::from(BPF_ANY));
    }
    let why = reasons(&room.call, new);
    if why != 0 {
        tell(n, why);
    }
    0
}
