//! Decides which calls are reported individually to user space, and why.

use aya_ebpf::bindings::BPF_ANY;
use podstuck_common::{
    in_flight::AT_FDCWD,
    record::{call, loss, reason},
};

use super::{
    directory_cache, failed, failures,
    globals::config,
    limit::{self, LimitKey},
    maps::{ANNOUNCED, count_loss},
    noted::{self, is_noted},
    path,
    returned::{Returned, look_alike},
    ring_record,
    scratch::Scratch,
    slot::{Slot, global_function},
};

const ENOENT: u16 = 2;
const EISDIR: u16 = 21;
const ENOTEMPTY: u16 = 39;

/// The reasons to report this call; 0 for none.
#[inline(always)]
pub(crate) fn reasons(call: &Returned, new: bool) -> u32 {
    let Returned { trail, entry, .. } = call;
    let mut why = 0;
    if call.duration_ns >= config().slow_ns {
        why |= reason::SLOW;
    }
    if entry.call as u8 == call::UMOUNT2 {
        why |= reason::UNMOUNT;
    }
    if call.fresh {
        why |= reason::DIRECTORY;
    }
    if call.look_alike != look_alike::NONE {
        why |= reason::LOOK_ALIKE;
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
        let removes_directory = matches!(entry.call as u8, call::UNLINKAT_DIR | call::RMDIR);
        if removes_directory && trail.at_root != 0 {
            why |= reason::ROOT_GONE;
        }
        if call.has_failed && failed::forget(trail.target, trail.path) {
            failures::count(failures::RECOVERED);
            why |= reason::RECOVERED;
        }
    } else if call.errno != EISDIR && call.errno != ENOENT {
        // Go's removal of a directory begins with EISDIR, and ends with ENOENT if another process was faster. Both
        // are counted but not worth a record.
        why |= reason::FAILED;
    }
    why
}

/// Sends a record, unless its rate limit is reached.
#[inline(always)]
pub(crate) fn report(slot: &mut Slot, why: u32) {
    let scratch = slot.scratch();
    let errno = scratch.call.errno;
    if why & reason::FAILED != 0 && errno != ENOTEMPTY {
        // Independent of the rate limit, because the later success of this object is always reported.
        note_failure(slot);
    }
    let scratch = slot.scratch();
    let Scratch { call, held_back, .. } = scratch;
    let Returned { trail, process, entry, now, followed, look_alike, .. } = call;
    let followed = *followed;
    let what = why << 16 | u32::from(errno & 0xfff) << 4 | u32::from(entry.call);
    // Look-alikes have one limit for all processes, so that they do not displace the limits of others. Those of the
    // node's root have a separate limit, which other processes cannot exhaust.
    let (started_ns, tgid) = match *look_alike {
        look_alike::NONE => (process.started_ns, process.tgid),
        whose => (u64::from(whose), 0),
    };
    let kind = LimitKey { target: trail.target, started_ns, tgid, what };
    let Some(suppressed) = limit::admit(held_back, &kind, *now) else {
        // Directories and look-alikes are sampled; each suppressed record of another kind is a loss.
        if why & !(reason::DIRECTORY | reason::LOOK_ALIKE) != 0 {
            count_loss(loss::RATE_LIMITED);
        }
        return;
    };
    if !followed {
        path::follow(slot);
    }
    let sent = ring_record::send(slot, why, suppressed) != 0;
    let scratch = slot.scratch();
    if sent && why & reason::FIRST != 0 {
        let _ = ANNOUNCED.insert(scratch.call.trail.target, &1, u64::from(BPF_ANY));
    }
}

global_function! {
    /// Stores that the removal of the object failed.
    fn note_failure(slot) -> u32 {
        let scratch = slot.scratch();
        if is_noted(scratch) {
            return 0;
        }
        if !scratch.call.followed {
            path::follow(slot);
        }
        let scratch = slot.scratch();
        // Before the table: if the object is removed concurrently, that is counted after this, and the failure is
        // stored again.
        noted::note(scratch);
        let Returned { trail, place, entry, resolved, has_failed, .. } = &scratch.call;
        failed::note(trail.target, trail.path);
        if !*has_failed {
            directory_cache::mark_failed(*place);
        }
        // Unmounts are reported in any case.
        if !*resolved && entry.dirfd == AT_FDCWD && entry.call != u16::from(call::UMOUNT2) {
            directory_cache::mark_failed_elsewhere();
        }
        0
    }
}
