//! The two handlers that all probes share: a call is entered, a call returns.

use aya_ebpf::{
    bindings::{BPF_ANY, BPF_NOEXIST},
    helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns},
};
use podstuck_common::{
    bucket::bucket_of,
    record::{CountKey, InFlight, call, loss, reason},
    trail::Trail,
};

use crate::{
    count, kernel,
    kernel::Place,
    limit,
    maps::{
        ACTORS, ANNOUNCED, FAILED, IN_FLIGHT, LimitKey, NOT_READ, OWN_CALLS, Returned, Scratch,
        config, lose, scratch,
    },
    path, report, target,
};

const EEXIST: i32 = -17;
const ENOENT: u16 = 2;
const EISDIR: u16 = 21;
const ENOTEMPTY: u16 = 39;
const AT_REMOVEDIR: u32 = 0x200;

/// A call is entered.
#[inline(always)]
pub(crate) fn start(call: u8, dirfd: i32, path: u64, flags: u32) {
    let thread = bpf_get_current_pid_tgid();
    let call =
        if call == call::UNLINKAT && flags & AT_REMOVEDIR != 0 { call::UNLINKAT_DIR } else { call };
    // SAFETY: no arguments.
    let start_ns = unsafe { bpf_ktime_get_ns() };
    let entry = InFlight { start_ns, path, dirfd, flags, call, reserved: [0; 7] };
    match IN_FLIGHT.insert(thread, &entry, u64::from(BPF_NOEXIST)) {
        Ok(()) => {}
        Err(EEXIST) => {
            lose(loss::OVERWRITTEN);
            let _ = IN_FLIGHT.insert(thread, &entry, u64::from(BPF_ANY));
        }
        Err(_) => lose(loss::IN_FLIGHT_FULL),
    }
}

/// A call returns. `call` may say `UNLINKAT` for both of its forms.
#[inline(always)]
pub(crate) fn finish(call: u8, result: i64) {
    let thread = bpf_get_current_pid_tgid();
    let Some(entry) = IN_FLIGHT.get_ptr(thread) else {
        lose(loss::UNMATCHED_EXIT);
        return;
    };
    // SAFETY: only this thread's own calls write or remove this entry.
    let entry = unsafe { *entry };
    let _ = IN_FLIGHT.remove(thread);
    let same = entry.call == call || (call == call::UNLINKAT && entry.call == call::UNLINKAT_DIR);
    if !same {
        lose(loss::UNMATCHED_EXIT);
        return;
    }
    let tgid = (thread >> 32) as u32;
    if tgid == config().own_tgid {
        if let Some(seen) = OWN_CALLS.get_ptr_mut(u32::from(entry.call)) {
            // SAFETY: a per-CPU value, written by one program at a time.
            unsafe { *seen += 1 };
        }
        return;
    }
    let Some(scratch) = scratch() else { return };
    // SAFETY: no arguments.
    let now = unsafe { bpf_ktime_get_ns() };
    scratch.call = Returned {
        entry,
        now,
        duration_ns: now.wrapping_sub(entry.start_ns),
        place: Place::NONE,
        trail: Trail::default(),
        tgid,
        tid: thread as u32,
        argument: NOT_READ,
        errno: if result < 0 { -result as u16 } else { 0 },
        mount_depth: 0,
        has_failed: false,
        fresh: false,
    };
    account(scratch);
}

#[inline(always)]
fn account(scratch: &mut Scratch) {
    locate(scratch);
    let Returned { trail, tgid, duration_ns, entry, errno, .. } = &scratch.call;
    let config = config();
    if (config.only_pod != 0 && trail.pod != config.only_pod)
        || (config.only_path != 0 && trail.wanted == 0)
    {
        lose(loss::NOT_WANTED);
        return;
    }
    let key = CountKey::new(trail.target, *tgid, entry.call, *errno, bucket_of(*duration_ns));
    let new = count::add(&key, *duration_ns);
    if new && ACTORS.get_ptr(*tgid).is_none() {
        kernel::describe(&mut scratch.head.actor);
        let _ = ACTORS.insert(scratch.call.tgid, &scratch.head.actor, u64::from(BPF_ANY));
    }
    let why = reasons(&scratch.call, new);
    if why != 0 {
        tell(scratch, why);
    }
}

/// Finds the directory, and reads the argument where it matters.
#[inline(always)]
fn locate(scratch: &mut Scratch) {
    let Some(first) = path::first_byte(&scratch.call.entry) else {
        lose(loss::PATH_UNREADABLE);
        return;
    };
    scratch.call.place = path::start(&scratch.call.entry, first);
    if !scratch.call.place.is_none() {
        target::find(scratch);
    } else if first != b'/' {
        lose(loss::PATH_UNREADABLE);
        return;
    }
    // Below a target's root the name of one file more changes nothing that is counted. Without
    // the kernel's layout an absolute argument still says all.
    if !scratch.call.trail.settled() || scratch.call.has_failed {
        path::follow();
    }
    if scratch.call.trail.cut != 0 {
        lose(loss::PATH_CUT);
    }
}

/// Why user space should see this call, if at all.
#[inline(always)]
fn reasons(call: &Returned, new: bool) -> u32 {
    let Returned { trail, entry, .. } = call;
    let mut why = 0;
    if call.duration_ns >= config().slow_ns {
        why |= reason::SLOW;
    }
    if entry.call == call::UMOUNT2 {
        why |= reason::UNMOUNT;
    }
    if call.fresh {
        why |= reason::DIRECTORY;
    }
    if trail.target == 0 && trail.wanted == 0 {
        return why;
    }
    if new && ANNOUNCED.get_ptr(trail.target).is_none() {
        why |= reason::FIRST;
    }
    if call.errno == 0 {
        if call.mount_depth != 0 {
            why |= reason::CROSSED;
        }
        let removes_directory = entry.call == call::UNLINKAT_DIR || entry.call == call::RMDIR;
        if removes_directory && trail.at_root != 0 {
            why |= reason::ROOT_GONE;
        }
        if call.has_failed && FAILED.remove(trail.path).is_ok() {
            why |= reason::RECOVERED;
        }
    } else if call.errno != EISDIR && call.errno != ENOENT {
        // Every removal of a directory in Go's way begins with EISDIR, and ends with ENOENT where
        // somebody was faster: neither is worth a look, both are counted.
        why |= reason::FAILED;
    }
    why
}

/// Sends a record, unless there were too many of its kind.
#[inline(always)]
fn tell(scratch: &mut Scratch, why: u32) {
    let Returned { trail, tgid, errno, entry, now, .. } = &scratch.call;
    let errno = *errno;
    let what = why << 16 | u32::from(errno & 0xfff) << 4 | u32::from(entry.call);
    let kind = LimitKey { target: trail.target, tgid: *tgid, what };
    let Some(suppressed) = limit::admit(&kind, *now) else { return };
    if scratch.call.argument == NOT_READ {
        path::follow();
    }
    let sent = report::send(why, suppressed) != 0;
    let Returned { trail, place, .. } = &scratch.call;
    if sent && why & reason::FIRST != 0 {
        let _ = ANNOUNCED.insert(trail.target, &1, u64::from(BPF_ANY));
    }
    if errno != 0 && errno != ENOTEMPTY && why & reason::FAILED != 0 {
        let _ = FAILED.insert(trail.path, &1, u64::from(BPF_ANY));
        target::mark_failed(*place);
    }
}
