//! The two handlers that all probes share: a call is entered, a call returns.

use aya_ebpf::{
    bindings::BPF_ANY,
    helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns},
};
use podstuck_common::{
    bucket::bucket_of,
    record::{CountKey, InFlight, call, loss},
    trail::Trail,
};

use crate::{
    atomic, count, in_flight, kernel,
    maps::{ACTORS, OWN_CALLS, config, lose},
    path,
    place::Place,
    rename,
    scratch::{NOT_READ, Returned, scratch},
    target,
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

/// A call returns. `n` is the program's room.
#[inline(always)]
pub(crate) fn finish(n: u32, number: u32, result: i64) {
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
    call.argument = NOT_READ;
    call.errno = if result < 0 { -result as u16 } else { 0 };
    call.mount_depth = 0;
    call.has_failed = false;
    call.fresh = false;
    if entry.call as u8 != call::RENAME {
        account(n);
    } else if result == 0 {
        rename::renamed(n);
    }
}

#[inline(always)]
fn account(n: u32) {
    locate(n);
    let Some(room) = scratch(n) else { return };
    let Returned { trail, tgid, duration_ns, entry, errno, .. } = &room.call;
    let config = config();
    if (config.only_pod != 0 && trail.pod != config.only_pod)
        || (config.only_path != 0 && trail.wanted == 0)
    {
        lose(loss::NOT_WANTED);
        return;
    }
    let key = CountKey::new(trail.target, *tgid, entry.call as u8, *errno, bucket_of(*duration_ns));
    let new = count::add(&key, *duration_ns);
    if new && ACTORS.get_ptr(*tgid).is_none() {
        kernel::describe(&mut room.head.actor);
        let _ = ACTORS.insert(room.call.tgid, &room.head.actor, u64::from(BPF_ANY));
    }
    let why = reasons(&room.call, new);
    if why != 0 {
        tell(n, why);
    }
}

/// Finds the directory, and reads the argument where it matters.
#[inline(always)]
pub(crate) fn locate(n: u32) {
    let Some(room) = scratch(n) else { return };
    let first = path::first_byte(room);
    let place = first.and_then(|first| path::start(&room.call.entry, first));
    if let Some(place) = place {
        room.call.place = place;
        target::find(n);
    } else {
        room.call.place = Place::NONE;
        room.call.trail = Trail::default();
        if first != Some(b'/') {
            lose(loss::PATH_UNREADABLE);
            return;
        }
    }
    // Below a target's root the name of one file more changes nothing that is counted, and is
    // needed to tell whether this object has failed before. Without the kernel's layout an absolute
    // argument still says all.
    let Some(room) = scratch(n) else { return };
    if !room.call.trail.settled() || (room.call.has_failed && room.call.errno == 0) {
        path::follow(n);
    }
    let Some(room) = scratch(n) else { return };
    if room.call.trail.cut != 0 {
        lose(loss::PATH_CUT);
    }
}
