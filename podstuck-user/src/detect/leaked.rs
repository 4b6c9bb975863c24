//! `umount2` succeeded, and the device still is not free: another mount of its file system lives on
//! in a mount namespace that the unmount does not reach, or an open file on a mount that was detached
//! there. (Since Linux 3.18, `rmdir` of the mount point detaches the copies that other namespaces
//! have of it; whoever uses them keeps them.) The pod goes, but the volume cannot be detached, or its
//! next user finds the device busy.

use std::collections::HashMap;

use super::{
    Case, Draft, Family, Needs, Verdict,
    command::View,
    draft::PROBE,
    holder_words::{describe, release},
};
use crate::{
    model::{
        call::{Call, Outcome},
        holder::{Holder, How},
        identity::Component,
        operation::Operation,
        path::safe_path,
    },
    state::{
        holders::Snapshot,
        look::LookError,
        mounts::{Device, Mount, NodeMounts},
        sample::NodeSample,
    },
};

/// Devices followed at a time.
const DEVICES: usize = 256;
/// Samples, two seconds apart, before it is a leak: containers that end take their namespaces with
/// them, but not at once.
const PATIENCE: u32 = 2;
/// Samples until it is looked at again.
const AGAIN: u32 = 10;
/// Facts for so many holders.
const TOLD: usize = 8;

/// A device whose file system was unmounted.
struct Left {
    op: Operation,
    mount: Mount,
    samples: u32,
    /// Whether it was still mounted somewhere at the last sample.
    mounted: bool,
    told: bool,
}

/// All devices whose file system was unmounted lately, and the mounts before.
#[derive(Default)]
pub(super) struct Leaked {
    before: NodeMounts,
    devices: HashMap<Device, Left>,
}

impl Leaked {
    /// Notes an unmount of a file system on a device.
    pub(super) fn observe(&mut self, op: &Operation) {
        let ours = op.actor.component != Component::Workload;
        if op.call != Call::Umount2 || op.outcome != Outcome::OK || !ours {
            return;
        }
        let table = self.before.tables.get(&op.mnt_ns);
        let Some(mount) = table.and_then(|table| table.top(&op.path)) else { return };
        let on_device = mount.device.major != 0 && mount.source.starts_with("/dev/");
        if on_device && self.devices.len() < DEVICES {
            let (op, mount) = (op.clone(), mount.clone());
            let left = Left { op, mount, samples: 0, mounted: true, told: false };
            self.devices.insert(left.mount.device, left);
        }
    }

    /// Looks where the devices are still mounted.
    pub(super) fn sampled(&mut self, sample: &NodeSample) -> (Vec<Case>, Vec<Verdict>) {
        self.before = sample.mounts.clone();
        let (mut cases, mut verdicts) = (Vec::new(), Vec::new());
        self.devices.retain(|device, left| {
            if sample.at <= left.op.end {
                return true;
            }
            let mut mounted = false;
            for (namespace, _, _) in sample.mounts.all().filter(|(_, _, m)| m.device == *device) {
                // Where it was unmounted, or on the node itself, another mount of it is no leak: a
                // volume is mounted for the node first and then for each of its pods.
                if namespace == left.op.mnt_ns || Some(namespace) == sample.mounts.host {
                    verdicts.extend(left.over(*device, sample));
                    return false;
                }
                mounted = true;
            }
            let went = std::mem::replace(&mut left.mounted, mounted) && !mounted;
            left.samples += 1;
            if left.samples % AGAIN == PATIENCE || (went && left.samples > PATIENCE) {
                cases.push(left.case(*device));
            }
            true
        });
        (cases, verdicts)
    }

    /// Decides by who holds the device.
    pub(super) fn conclude(
        &mut self,
        case: &Case,
        taken: Result<Snapshot, LookError>,
    ) -> Option<Verdict> {
        let (device, left) =
            self.devices.iter_mut().find(|(device, _)| key(**device) == case.target_id)?;
        let (device, taken) = (*device, taken.ok()?);
        if taken.holders.is_empty() {
            let left = self.devices.remove(&device)?;
            let over =
                Verdict::Over { family: Family::Pinned, target_id: key(device), at: taken.at };
            return left.told.then_some(over);
        }
        left.told = true;
        Some(Verdict::Found(Box::new(draft(left, &taken))))
    }
}

impl Left {
    fn case(&self, device: Device) -> Case {
        Case {
            family: Family::Pinned,
            target_id: key(device),
            path: self.op.path.clone(),
            needs: Needs::Holders(crate::state::holders::About::Device(device)),
        }
    }

    fn over(&self, device: Device, sample: &NodeSample) -> Option<Verdict> {
        let (family, target_id, at) = (Family::Pinned, key(device), sample.at);
        self.told.then_some(Verdict::Over { family, target_id, at })
    }
}

/// A name for the finding that outlives the volume's directory.
fn key(device: Device) -> u64 {
    1 << 63 | u64::from(device.major) << 32 | u64::from(device.minor)
}

fn draft(left: &Left, taken: &Snapshot) -> Draft {
    let Left { op, mount, .. } = left;
    let mut draft = Draft::about(Family::Pinned, "leaked-superblock-blocks-device", op);
    draft.target_id = key(mount.device);
    draft.confidence = 0.95;
    // The pod does not wait for it; whoever needs the device next does.
    draft.blocks_deletion = Some(false);
    draft.last = taken.at;
    draft.fact(
        format!(
            "umount2 of {} succeeded, and {} is mounted neither in that mount namespace nor in the \
             node's any more",
            safe_path(&op.path),
            mount.describe()
        ),
        PROBE,
    );
    for holder in taken.holders.iter().take(TOLD) {
        draft.fact(describe(holder), &holder.source);
    }
    draft.explanation = format!(
        "Other mounts of the same file system live on, and with them its superblock: {} stays open, \
         so that detaching the volume, `rbd unmap`, or mounting it exclusively fails with EBUSY. They \
         are in mount namespaces that do not receive unmounts from the node.",
        mount.source
    );
    for holder in taken.holders.iter().filter(|holder| holder.how == How::Mount).take(4) {
        draft.remedies.extend(unmount_there(holder));
    }
    let others: Vec<&Holder> = taken.holders.iter().collect();
    for (command, risk) in release(&others) {
        draft.remedy(command, risk);
    }
    draft.ruled_out.push("volume-held-by-host-process: the unmount itself succeeded".to_owned());
    draft
}

/// An unmount in the namespace that still has it.
fn unmount_there(holder: &Holder) -> Option<crate::model::finding::Remedy> {
    let view = View { namespace: holder.mount.namespace?, pid: holder.pid? };
    Some(crate::model::finding::Remedy {
        command: view.on_mount("umount", &holder.mount.point.0),
        risk: "low: fails where somebody in there still uses it; whoever looks for the volume in \
               that namespace does not find it any more"
            .into(),
    })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use nix::errno::Errno;

    use super::*;
    use crate::{
        detect::sample::{VOLUME, failed, holder, snapshot},
        model::{holder::Through, time::Monotonic},
        state::mounts::Mounts,
    };

    /// The node's namespace is 1, like that of the sample's calls; 5 is another one.
    fn sample(second: u64, node: bool, other: bool) -> NodeSample {
        let line = format!("9 2 7:0 / {VOLUME} rw - ext4 /dev/loop0 rw\n");
        let table =
            |pid, there| Arc::new(Mounts::parse(pid, if there { line.as_bytes() } else { b"" }));
        let tables = BTreeMap::from([(1, table(1, node)), (5, table(77, other))]);
        let (at, mounts) =
            (Monotonic(second * 1_000_000_000), NodeMounts { tables, host: Some(1) });
        NodeSample { at, mounts, ..NodeSample::default() }
    }

    fn unmounted(leaked: &mut Leaked) {
        leaked.sampled(&sample(0, true, true));
        let mut op = failed(Call::Umount2, Errno::EBUSY, "", 1.0);
        op.path = VOLUME.into();
        op.outcome = Outcome::OK;
        leaked.observe(&op);
    }

    #[test]
    fn what_lives_on_elsewhere_is_told_and_then_over() {
        let mut leaked = Leaked::default();
        unmounted(&mut leaked);
        assert!(leaked.sampled(&sample(2, false, true)).0.is_empty(), "too soon");
        let (cases, _) = leaked.sampled(&sample(4, false, true));
        let held = snapshot(vec![holder(How::Mount, Through::Itself, None)]);
        let Some(Verdict::Found(draft)) = leaked.conclude(&cases[0], Ok(held)) else {
            panic!("no finding");
        };
        assert_eq!(
            (draft.id, draft.blocks_deletion),
            ("leaked-superblock-blocks-device", Some(false))
        );
        assert!(draft.remedies[0].command.starts_with("umount --internal-only --namespace 77 /v"));
        let (cases, _) = leaked.sampled(&sample(6, false, false));
        let verdict = leaked.conclude(&cases[0], Ok(snapshot(Vec::new())));
        assert!(matches!(verdict, Some(Verdict::Over { family: Family::Pinned, .. })));
        assert!(leaked.devices.is_empty());
    }

    #[test]
    fn a_device_that_the_node_still_uses_is_no_leak() {
        let mut leaked = Leaked::default();
        unmounted(&mut leaked);
        for second in [2, 4, 6] {
            let (cases, verdicts) = leaked.sampled(&sample(second, true, true));
            assert!(cases.is_empty() && verdicts.is_empty());
        }
        assert!(leaked.devices.is_empty());
    }

    #[test]
    fn a_container_that_ends_soon_is_no_leak() {
        let mut leaked = Leaked::default();
        unmounted(&mut leaked);
        leaked.sampled(&sample(2, false, true));
        let (cases, _) = leaked.sampled(&sample(4, false, false));
        assert!(leaked.conclude(&cases[0], Ok(snapshot(Vec::new()))).is_none());
        assert!(leaked.devices.is_empty());
    }
}
