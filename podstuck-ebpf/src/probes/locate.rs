//! Finds the directory of a call and the trail to its object.

use podstuck_common::{
    config::step,
    in_flight::{AT_FDCWD, InFlight, Resolved},
    record::loss,
};

use super::{
    argument, directory_cache, failed,
    globals::{config, stop_after},
    kernel_path::KernelPath,
    maps::count_loss,
    path, process,
    scratch::Scratch,
    slot::Slot,
    target, words,
};

/// Finds the directory, and reads the argument if it matters.
#[inline(always)]
pub(crate) fn locate(slot: &mut Slot) {
    let scratch = slot.scratch();
    if is_resolved(scratch) {
        scratch.call.resolved = true;
        if stop_after(step::DIRECTORY) {
            return;
        }
        target::find_read(slot);
        let scratch = slot.scratch();
        // An earlier call with the same path may have failed before the directory was reported, as with EROFS.
        if scratch.call.entry.dirfd == AT_FDCWD && directory_cache::has_failed_elsewhere() {
            scratch.call.has_failed = true;
        }
    } else {
        let first = argument::first_byte(scratch);
        let place = first.and_then(|first| start(&scratch.call.entry, first));
        if let Some(place) = place {
            scratch.call.place = place;
            if stop_after(step::DIRECTORY) {
                return;
            }
            target::find(slot);
        } else {
            words::clear(&mut scratch.call.place);
            words::clear(&mut scratch.call.trail);
            if first != Some(b'/') {
                count_loss(loss::PATH_UNREADABLE);
                return;
            }
        }
    }
    if stop_after(step::RECALL) {
        return;
    }
    // Below a target's root, a further name does not change the counts. It is only needed to detect whether this
    // object failed before. Without the kernel's layout, an absolute argument still contains the whole path.
    let scratch = slot.scratch();
    let call = &mut scratch.call;
    let is_settled = call.trail.settled(config());
    // The directory's mark may have been evicted; the target's own entries are not.
    if is_settled && call.errno == 0 && failed::is_any(call.trail.target) {
        call.has_failed = true;
    }
    let may_recover = call.errno == 0 && call.has_failed;
    if may_recover || !is_settled {
        path::follow(slot);
    }
    let scratch = slot.scratch();
    // Only now is the target of an absolute argument known.
    let call = &mut scratch.call;
    if !is_settled && call.errno == 0 && failed::is_any(call.trail.target) {
        call.has_failed = true;
    }
    if scratch.call.trail.cut != 0 {
        count_loss(loss::PATH_CUT);
    }
}

/// Takes the directory that the kernel has resolved, if it was reported and still exists.
///
/// The call has dropped its references, so the directory may have been freed since. But while a dentry still has its
/// inode, it is not freed: an inode is detached from its dentry first, and dentries and mounts are freed only after
/// all programs that run now have ended (RCU). So after the inode was compared, everything may be read as if a
/// reference were held. One case remains: dentry and inode were both freed before and reused for another directory at
/// the same addresses. That requires a grace period between the end of the call and this program.
#[inline(always)]
fn is_resolved(scratch: &mut Scratch) -> bool {
    let Some(Resolved { mnt, dentry, inode }) = scratch.call.entry.resolved() else { return false };
    let place = KernelPath { mnt, dentry };
    scratch.call.place = place;
    place.read_dentry(&mut scratch.dentry) && scratch.dentry.inode as u32 == inode
}

/// The directory that the argument starts from, if it can be determined.
#[inline(always)]
fn start(entry: &InFlight, first: u8) -> Option<KernelPath> {
    let place = if first == b'/' {
        process::root()
    } else if entry.dirfd != AT_FDCWD {
        process::descriptor(entry.dirfd)
    } else {
        process::working_directory()
    };
    place.filter(|place| !place.is_none())
}
