//! Which calls user space sees one by one, and why.

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

/// Why user space should see this call, if at all.
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
        // Every removal of a directory in Go's way begins with EISDIR, and ends with ENOENT where
        // another process was faster: neither is worth a record, both are counted.
        why |= reason::FAILED;
    }
    why
}

/// Sends a record, unless there were too many of its kind.
#[inline(always)]
pub(crate) fn report(slot: &mut Slot, why: u32) {
    let scratch = slot.scratch();
    let errno = scratch.call.errno;
    if why & reason::FAILED != 0 && errno != ENOTEMPTY {
        // Before the limit: each success of an object that has failed is reported.
        note_failure(slot);
    }
    let scratch = slot.scratch();
    let Scratch { call, held_back, .. } = scratch;
    let Returned { trail, process, entry, now, followed, look_alike, .. } = call;
    let followed = *followed;
    let what = why << 16 | u32::from(errno & 0xfff) << 4 | u32::from(entry.call);
    // Of look-alikes some are shown, whichever process makes them: they must not displace the limits of others. Those of
    // the node's root are a kind of their own, which no other process displaces.
    let (started_ns, tgid) = match *look_alike {
        look_alike::NONE => (process.started_ns, process.tgid),
        whose => (u64::from(whose), 0),
    };
    let kind = LimitKey { target: trail.target, started_ns, tgid, what };
    let Some(suppressed) = limit::admit(held_back, &kind, *now) else {
        // Directories are shown as samples; of everything else each record may be wanted.
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
    /// Notes that the removal of the object failed.
    fn note_failure(slot) -> u32 {
        let scratch = slot.scratch();
        if is_noted(scratch) {
            return 0;
        }
        if !scratch.call.followed {
            path::follow(slot);
        }
        let scratch = slot.scratch();
        // First: a removal of the object meanwhile is counted after this, and it is noted again.
        noted::note(scratch);
        let Returned { trail, place, entry, resolved, has_failed, .. } = &scratch.call;
        failed::note(trail.target, trail.path);
        if !*has_failed {
            directory_cache::mark_failed(*place);
        }
        // Every unmount is reported.
        if !*resolved && entry.dirfd == AT_FDCWD && entry.call != u16::from(call::UMOUNT2) {
            directory_cache::mark_failed_elsewhere();
        }
        0
    }
}
