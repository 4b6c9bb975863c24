//! Processes a returned call: finds its place, counts it and reports it.

use aya_ebpf::bindings::BPF_ANY;
use podstuck_common::{
    bucket::bucket_of,
    config::step,
    count::CountKey,
    record::{Process, loss, reason},
};

use super::{
    actor, count,
    globals::{config, stop_after},
    locate::locate,
    maps::{ACTORS, count_loss},
    report::{reasons, report},
    returned::{Returned, look_alike},
    scratch::Scratch,
    slot::global_function,
};

global_function! {
    /// Counts and reports the call. A separate function like [`rename::renamed`]: on Linux 5.10 the frames of all
    /// callers together must fit into 512 bytes.
    pub(crate) fn account(slot) -> u32 {
        locate(slot);
        if stop_after(step::DIRECTORY) || stop_after(step::RECALL) {
            return 0;
        }
        let config = config();
        // A look-alike call may concern the wanted pod: it is reported, but not counted for it.
        let mut why = refuse_look_alike(slot);
        if why == 0 {
            let scratch = slot.scratch();
            let trail = &scratch.call.trail;
            if (config.only_pod != 0 && trail.pod != config.only_pod)
                || (config.only_path != 0 && trail.wanted == 0)
            {
                count_loss(loss::NOT_WANTED);
                return 0;
            }
            let new = count_call(slot) != 0;
            if stop_after(step::COUNT) {
                return 0;
            }
            let scratch = slot.scratch();
            if new && !is_known(&scratch.call.process) {
                actor::describe_caller(slot);
                let Scratch { call, head, .. } = slot.scratch();
                let _ = ACTORS.insert(&call.process, &head.actor, u64::from(BPF_ANY));
            }
            let scratch = slot.scratch();
            why = reasons(&scratch.call, new);
        }
        if why != 0 {
            report(slot, why);
        }
        0
    }
}

global_function! {
    /// Counts the call; returns 1 if its key is new. Separate for the same reason as `account`.
    fn count_call(slot) -> u32 {
        let lane = slot.lane();
        let scratch = slot.scratch();
        let Returned { trail, process, duration_ns, entry, errno, .. } = &scratch.call;
        let bucket = bucket_of(*duration_ns);
        let key = CountKey::new(trail.target, *process, entry.call as u8, *errno, bucket);
        let key = key.in_lane(lane);
        u32::from(count::add(&key, *duration_ns))
    }
}

global_function! {
    /// Removes the target of a path that only looks like one. Returns a reason to report the call nevertheless if
    /// only one pod is wanted: the path looks like that pod's, and the node's root failed there. Separate because of
    /// the caller's frame: see `account`.
    fn refuse_look_alike(slot) -> u32 {
        let scratch = slot.scratch();
        let call = &mut scratch.call;
        if !call.trail.is_look_alike(config()) {
            return 0;
        }
        count_loss(loss::LOOK_ALIKE);
        let is_wanted = config().only_pod != 0 && call.trail.pod == config().only_pod;
        call.trail.forget();
        call.mount_depth = 0;
        call.has_failed = false;
        let is_roots = actor::is_root();
        call.look_alike = if is_roots { look_alike::ROOTS } else { look_alike::ANYBODYS };
        if is_wanted && is_roots && call.errno != 0 { reason::LOOK_ALIKE } else { 0 }
    }
}

/// Whether a process is in the table of callers. If its start time is unknown, the entry may be another process's.
#[inline(always)]
fn is_known(process: &Process) -> bool {
    process.started_ns != 0 && ACTORS.get_ptr(process).is_some()
}
