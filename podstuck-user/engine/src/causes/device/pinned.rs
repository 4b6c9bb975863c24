//! `umount2` succeeded, and the device is still busy: another mount of its file system lives on in a mount
//! namespace that the unmount does not reach, or an open file on a mount that was detached there. (Since Linux
//! 3.18, `rmdir` of the mount point detaches the copies that other namespaces have of it; processes that use them
//! keep them.) The pod goes, but the volume cannot be detached, or its next user finds the device busy.

use std::sync::Arc;

use crate::{
    bounded::Bounded,
    causes::{
        device::{self, causes::LEAKED_SUPERBLOCK},
        shared::holders::{NAMED, describe, release},
    },
    command::View,
    event::{Event, What},
    ids,
    model::{
        call::{Call, Outcome},
        evidence::Source,
        holder::{About, Holder, How, Snapshot, Through},
        identity::Component,
        mounts::{Device, Mount},
        node::NodeSample,
        operation::Operation,
        path::safe_path,
        remedy::Remedy,
    },
    query::{Query, Wants},
    tracker::{Context, Steps, Tracker, TrackerId},
    verdict::{Draft, Verdict},
};

/// Devices followed at a time.
const DEVICES: usize = 256;
/// Samples, two seconds apart, before a mount is a leak: containers that end take their namespaces with
/// them, but not at once.
const SAMPLES_NEEDED: u32 = 2;
/// Samples between two questions about a device.
const AGAIN: u32 = 10;

/// A device whose file system was unmounted.
pub(crate) struct Unmounted {
    /// The unmount.
    pub(crate) op: Operation,
    /// The mount that it removed.
    pub(crate) mount: Mount,
    samples: u32,
    /// Whether the device was still mounted somewhere in the last sample.
    mounted: bool,
    reported: bool,
}

/// All devices whose file system was unmounted lately, and the mounts before.
#[derive(Default)]
pub(crate) struct PinnedDevices {
    /// The last two samples: the last one may have read a table just after the unmount.
    before: [Option<Arc<NodeSample>>; 2],
    pub(super) devices: Bounded<Device, Unmounted, DEVICES>,
}

impl PinnedDevices {
    /// Records an unmount of a file system on a device.
    fn observe(&mut self, op: &Operation) {
        let by_node = op.actor.component != Component::Workload;
        if op.call != Call::Umount2 || op.outcome != Outcome::OK || !by_node {
            return;
        }
        let mut tables =
            self.before.iter().flatten().filter_map(|sample| sample.mounts.tables.get(&op.mnt_ns));
        let Some(mount) = tables.find_map(|table| table.top(&op.path)) else { return };
        if mount.device.major != 0 && mount.source.starts_with("/dev/") {
            let (op, mount) = (op.clone(), mount.clone());
            // A finding about an earlier unmount stands until the holders after this one are known.
            let reported = self.devices.get(&mount.device).is_some_and(|before| before.reported);
            let this = Unmounted { op, mount, samples: 0, mounted: true, reported };
            self.devices.insert(this.mount.device, this);
        }
    }

    /// Finds where the devices are still mounted.
    fn sampled(&mut self, sample: &Arc<NodeSample>, steps: &mut Steps) {
        self.before = [Some(sample.clone()), self.before[0].take()];
        let tracker = self.id();
        self.devices.retain(|device, this| {
            // A table that was read before the unmount still has the mount.
            if !sample.is_from_after(this.op.end) {
                return true;
            }
            let mut mounted = false;
            for (namespace, _, _) in sample.mounts.all().filter(|(_, _, m)| m.device == *device) {
                // Where it was unmounted, or on the node itself, another mount of it is no leak: a
                // volume is mounted for the node first and then for each of its pods.
                if namespace == this.op.mnt_ns || Some(namespace) == sample.mounts.host {
                    let target_id = key(*device);
                    let over = Verdict::Over { tracker, target_id, at: sample.at };
                    steps.say(this.reported.then_some(over));
                    return false;
                }
                mounted = true;
            }
            let went = std::mem::replace(&mut this.mounted, mounted) && !mounted;
            this.samples += 1;
            if this.samples % AGAIN == SAMPLES_NEEDED || (went && this.samples > SAMPLES_NEEDED) {
                let wants = Wants::Holders(About::Device(*device));
                let (target_id, path) = (key(*device), this.op.path.clone());
                steps.ask([Query { tracker, target_id, path, wants }]);
            }
            true
        });
    }

    /// Decides by the holders of the device.
    fn conclude(
        &mut self,
        context: &Context<'_>,
        query: &Query,
        taken: &Snapshot,
        steps: &mut Steps,
    ) {
        let tracker = self.id();
        let mut devices = self.devices.iter_mut();
        let Some((device, this)) = devices.find(|(device, _)| key(**device) == query.target_id)
        else {
            return;
        };
        if !taken.holders.is_empty() {
            this.reported = true;
            return steps.found([device::pinned::draft(context, this, taken)]);
        }
        let (device, target_id) = (*device, key(*device));
        let over = Verdict::Over { tracker, target_id, at: taken.at };
        steps.say(this.reported.then_some(over));
        drop(devices);
        self.devices.remove(&device);
    }
}

impl Tracker for PinnedDevices {
    fn id(&self) -> TrackerId {
        TrackerId::PinnedDevice
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Operation(op) => self.observe(op),
            What::Sample(sample) => self.sampled(sample, steps),
            what => {
                if let Some((query, taken)) = what.holders() {
                    self.conclude(context, query, taken, steps);
                }
            }
        }
    }

    fn dropped(&self) -> u64 {
        self.devices.dropped()
    }
}

/// A target ID for the finding that outlives the volume's directory.
pub(crate) fn key(device: Device) -> u64 {
    1 << 63 | u64::from(device.major) << 32 | u64::from(device.minor)
}

pub(crate) fn draft(context: &Context<'_>, left: &Unmounted, taken: &Snapshot) -> Draft {
    let Unmounted { op, mount, .. } = left;
    let mut draft = Draft::about(TrackerId::PinnedDevice, &LEAKED_SUPERBLOCK, op);
    draft.target_id = key(mount.device);
    // The pod does not wait for the device; its next user does.
    draft.blocks_deletion = Some(false);
    draft.last = taken.at;
    draft.fact_since(
        format!("umount2 of {} succeeded", safe_path(&op.path)),
        Source::Probe,
        op.end,
    );
    draft.fact(
        format!(
            "{} is no longer mounted in that mount namespace or in the node's",
            mount.describe()
        ),
        Source::mountinfo("/proc/*/mountinfo"),
    );
    for holder in taken.holders.iter().take(NAMED) {
        // A mount keeps its id while it is in use.
        let is_this = holder.through == Through::Detached && holder.mount.id == mount.id;
        let was = if is_this { ", and was the one that was unmounted" } else { "" };
        draft.fact(describe(holder) + was, Source::proc(&holder.source));
    }
    let all_detached = taken.holders.iter().all(|it| it.through == Through::Detached);
    let [mounts, place] = if all_detached {
        let place = "Such a mount is in no mount namespace, and ends with its last user.";
        ["Processes use a detached mount of the same file system (`umount -l`)", place]
    } else {
        let place = "They are in mount namespaces to which the node's unmounts do not propagate.";
        ["Other mounts of the same file system remain", place]
    };
    draft.explanation = format!(
        "{mounts}. They keep its superblock, so {} stays open: detaching the volume, `rbd unmap` or an exclusive mount \
         fails with EBUSY. {place}",
        mount.source
    );
    for holder in taken.holders.iter().filter(|holder| holder.how == How::Mount).take(4) {
        draft.remedies.extend(unmount_there(context, holder));
    }
    let others: Vec<&Holder> = taken.holders.iter().collect();
    draft.remedies.extend(release(View::OURS, &others, "the device"));
    for other in
        [ids::VOLUME_HELD_BY_HOST_PROCESS, ids::SHIM_ROOTFS_BUSY, ids::DEVICE_STILL_REFERENCED]
    {
        draft.rule_out(other, "the unmount itself succeeded");
    }
    draft
}

/// An unmount in the namespace that still has the mount.
fn unmount_there(context: &Context<'_>, holder: &Holder) -> Option<Remedy> {
    let view = View::in_namespace(context, holder.mount.namespace?, holder.pid?);
    let step = view
        .on_mount("umount", &holder.mount.point.0, Some(holder.mount.id))
        .so(", which keeps the device open");
    Some(step.remedy(
        "low: fails while a process in that namespace uses it; processes there no longer find the \
         volume",
    ))
}
