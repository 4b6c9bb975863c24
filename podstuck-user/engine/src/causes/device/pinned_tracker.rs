//! `umount2` succeeded, and the device still is not free: another mount of its file system lives on
//! in a mount namespace that the unmount does not reach, or an open file on a mount that was detached
//! there. (Since Linux 3.18, `rmdir` of the mount point detaches the copies that other namespaces
//! have of it; whoever uses them keeps them.) The pod goes, but the volume cannot be detached, or its
//! next user finds the device busy.

use std::sync::Arc;

use crate::{
    bounded::Bounded,
    causes::device,
    event::{Event, What},
    model::{
        call::{Call, Outcome},
        holder::{About, Snapshot},
        identity::Component,
        mounts::{Device, Mount},
        node::NodeSample,
        operation::Operation,
    },
    query::{Query, Wants},
    tracker::{Context, Steps, Tracker, TrackerId},
    verdict::Verdict,
};

/// Devices followed at a time.
const DEVICES: usize = 256;
/// Samples, two seconds apart, before it is a leak: containers that end take their namespaces with
/// them, but not at once.
const SAMPLES_NEEDED: u32 = 2;
/// Samples until it is looked at again.
const AGAIN: u32 = 10;

/// A device whose file system was unmounted.
pub(crate) struct Unmounted {
    /// The unmount.
    pub(crate) op: Operation,
    /// The mount that it took away.
    pub(crate) mount: Mount,
    samples: u32,
    /// Whether it was still mounted somewhere at the last sample.
    mounted: bool,
    told: bool,
}

/// All devices whose file system was unmounted lately, and the mounts before.
pub(crate) struct PinnedDevices {
    /// The last two looks: the last one may have read a table just after the unmount.
    before: [Option<Arc<NodeSample>>; 2],
    devices: Bounded<Device, Unmounted>,
}

impl Default for PinnedDevices {
    fn default() -> Self {
        Self { before: [None, None], devices: Bounded::new(DEVICES) }
    }
}

impl PinnedDevices {
    /// Notes an unmount of a file system on a device.
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
            // Told of an earlier unmount, it stands until a look at this one.
            let told = self.devices.get(&mount.device).is_some_and(|before| before.told);
            let this = Unmounted { op, mount, samples: 0, mounted: true, told };
            self.devices.insert(this.mount.device, this);
        }
    }

    /// Looks where the devices are still mounted.
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
                    steps.say(this.told.then_some(over));
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

    /// Decides by who holds the device.
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
            this.told = true;
            return steps.found([device::pinned::draft(context, this, taken)]);
        }
        let (device, target_id) = (*device, key(*device));
        let over = Verdict::Over { tracker, target_id, at: taken.at };
        steps.say(this.told.then_some(over));
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

/// A name for the finding that outlives the volume's directory.
pub(crate) fn key(device: Device) -> u64 {
    1 << 63 | u64::from(device.major) << 32 | u64::from(device.minor)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nix::errno::Errno;

    use super::*;
    use crate::{
        model::{
            holder::{How, Through},
            mounts::{Mounts, NodeMounts},
            time::Monotonic,
        },
        query::Answer,
        testing::{Alone, VOLUME, failed, holder, mounts, snapshot},
        tracker::Steps,
    };

    /// The node's namespace is 1, like that of the sample's calls; 5 is another one.
    fn sample(pinned: &mut Alone<PinnedDevices>, second: u64, node: bool, other: bool) -> Steps {
        look(pinned, [second, second], node, other)
    }

    /// A look from one second to another.
    fn look(
        pinned: &mut Alone<PinnedDevices>,
        [begun, over]: [u64; 2],
        node: bool,
        other: bool,
    ) -> Steps {
        let line = format!("9 2 7:0 / {VOLUME} rw - ext4 /dev/loop0 rw\n");
        let table =
            |pid, there: bool| Arc::new(Mounts { pid, ..mounts(if there { &line } else { "" }) });
        let tables = BTreeMap::from([(1, table(1, node)), (5, table(77, other))]);
        let [begun, at] = [begun, over].map(|second| Monotonic(second * 1_000_000_000));
        let mounts = NodeMounts { tables, host: Some(1) };
        let sample = NodeSample { at, begun: Some(begun), mounts, ..NodeSample::default() };
        pinned.take(at, What::Sample(Arc::new(sample)))
    }

    fn unmounted() -> Alone<PinnedDevices> {
        let mut pinned = Alone::<PinnedDevices>::new();
        sample(&mut pinned, 0, true, true);
        let mut op = failed(Call::Umount2, Errno::EBUSY, "", 1.0);
        op.path = VOLUME.into();
        op.outcome = Outcome::OK;
        pinned.ask(&op);
        pinned
    }

    fn answer(pinned: &mut Alone<PinnedDevices>, query: &Query, taken: Snapshot) -> Vec<Verdict> {
        let (query, answer) = (Box::new(query.clone()), Box::new(Answer::Holders(Ok(taken))));
        pinned.take(Monotonic(20_000_000_000), What::Answer { query, answer }).verdicts
    }

    #[test]
    fn what_lives_on_elsewhere_is_told_and_then_over() {
        let mut pinned = unmounted();
        assert!(sample(&mut pinned, 2, false, true).queries.is_empty(), "too soon");
        let queries = sample(&mut pinned, 4, false, true).queries;
        let held = snapshot(vec![holder(How::Mount, Through::Itself, None)]);
        let said = answer(&mut pinned, &queries[0], held);
        let [Verdict::Found(draft)] = &said[..] else { panic!("no finding: {said:?}") };
        assert_eq!(
            (draft.id(), draft.blocks_deletion),
            ("leaked-superblock-blocks-device", Some(false))
        );
        assert!(draft.remedies[0].words().ends_with("umount --internal-only --namespace 77 /v"));
        let queries = sample(&mut pinned, 6, false, false).queries;
        let said = answer(&mut pinned, &queries[0], snapshot(Vec::new()));
        let pinned_device = TrackerId::PinnedDevice;
        assert!(
            matches!(said[..], [Verdict::Over { tracker, .. }] if tracker == pinned_device),
            "{said:?}"
        );
        assert!(pinned.tracker.devices.is_empty());
    }

    #[test]
    fn a_device_that_the_node_still_uses_is_no_leak() {
        let mut pinned = unmounted();
        for second in [2, 4, 6] {
            let steps = sample(&mut pinned, second, true, true);
            assert!(steps.queries.is_empty() && steps.verdicts.is_empty());
        }
        assert!(pinned.tracker.devices.is_empty());
    }

    #[test]
    fn a_look_during_the_unmount_decides_nothing() {
        let mut pinned = unmounted();
        assert!(look(&mut pinned, [0, 3], true, true).queries.is_empty(), "read before it");
        assert!(sample(&mut pinned, 5, false, true).queries.is_empty());
        assert_eq!(sample(&mut pinned, 7, false, true).queries.len(), 1);
        // And one that has read the table after it, and is known before the unmount is.
        let mut pinned = Alone::<PinnedDevices>::new();
        sample(&mut pinned, 0, true, true);
        look(&mut pinned, [0, 2], false, true);
        let mut op = failed(Call::Umount2, Errno::EBUSY, "", 1.0);
        (op.path, op.outcome) = (VOLUME.into(), Outcome::OK);
        pinned.ask(&op);
        assert_eq!(pinned.tracker.devices.len(), 1);
    }

    #[test]
    fn a_container_that_ends_soon_is_no_leak() {
        let mut pinned = unmounted();
        sample(&mut pinned, 2, false, true);
        let queries = sample(&mut pinned, 4, false, false).queries;
        assert!(answer(&mut pinned, &queries[0], snapshot(Vec::new())).is_empty());
        assert!(pinned.tracker.devices.is_empty());
    }
}
