//! A call has returned: where it happened is found, and it is counted and reported.

use aya_ebpf::bindings::BPF_ANY;
use podstuck_common::{
    bucket::bucket_of,
    config::step,
    record::{CountKey, loss},
};

use super::{
    actor, count,
    globals::{config, stop_after},
    locate::locate,
    maps::{ACTORS, count_loss},
    report::{reasons, report},
    returned::Returned,
    slot::global_function,
};

global_function! {
    /// Counts and reports the call. A function of its own, as [`rename::renamed`] is: on Linux 5.10 the
    /// frames of all callers together must fit into 512 bytes.
    pub(crate) fn account(slot) -> u32 {
        locate(slot);
        if stop_after(step::DIRECTORY) || stop_after(step::RECALL) {
            return 0;
        }
        let config = config();
        refuse_look_alike(slot);
        let Some(scratch) = slot.scratch() else { return 0 };
        let Returned { trail, tgid, .. } = &scratch.call;
        if (config.only_pod != 0 && trail.pod != config.only_pod)
            || (config.only_path != 0 && trail.wanted == 0)
        {
            count_loss(loss::NOT_WANTED);
            return 0;
        }
        let tgid = *tgid;
        let new = count_call(slot) != 0;
        if stop_after(step::COUNT) {
            return 0;
        }
        let Some(scratch) = slot.scratch() else { return 0 };
        if new && !is_known(tgid) {
            actor::describe(&mut scratch.head.actor, scratch.call.of_io_uring());
            let _ = ACTORS.insert(scratch.call.tgid, &scratch.head.actor, u64::from(BPF_ANY));
        }
        let why = reasons(&scratch.call, new);
        if why != 0 {
            report(slot, why);
        }
        0
    }
}

global_function! {
    /// Counts the call; 1 when its key is new. Apart, as what follows.
    fn count_call(slot) -> u32 {
        let Some(scratch) = slot.scratch() else { return 0 };
        let Returned { trail, tgid, duration_ns, entry, errno, .. } = &scratch.call;
        let bucket = bucket_of(*duration_ns);
        let key = CountKey::new(trail.target, *tgid, entry.call as u8, *errno, bucket);
        u32::from(count::add(&key, *duration_ns))
    }
}

global_function! {
    /// A path that only reads like a target's has none. Apart, for the sake of its caller's frame: see there.
    fn refuse_look_alike(slot) -> u32 {
        let Some(scratch) = slot.scratch() else { return 0 };
        if scratch.call.trail.is_look_alike(config()) {
            count_loss(loss::LOOK_ALIKE);
            scratch.call.trail.forget();
            scratch.call.mount_depth = 0;
            scratch.call.has_failed = false;
            scratch.call.look_alike = true;
        }
        0
    }
}

/// Whether the current process is in the table of callers.
#[inline(always)]
fn is_known(tgid: u32) -> bool {
    let Some(known) = ACTORS.get_ptr(tgid) else { return false };
    // SAFETY: a map value; one that is written meanwhile is of the same process, or is described again.
    actor::is_described(unsafe { &*known })
}
