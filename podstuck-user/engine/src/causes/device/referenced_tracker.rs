//! Volumes' devices that kubelet does not let go. It says so in its log, of no pod in particular; the node's
//! mounts show whether it still holds.

use std::time::Duration;

use podstuck_common::component::name_hash;

use crate::{
    bounded::Bounded,
    causes::device,
    event::{Event, What},
    model::{
        node::NodeSample,
        said::{Complaint, Report, Said},
    },
    tracker::{Context, Steps, Tracker, TrackerId},
    verdict::Verdict,
};

/// Volumes that something is said of.
const REMEMBERED: usize = 256;
/// How long after the next attempt is due kubelet's last word counts: it says so each time.
const LASTS: Duration = Duration::from_secs(300);

/// What was said last of a volume.
struct Word {
    said: Said,
    told: bool,
}

/// By volume, as kubelet calls it.
pub(crate) struct DeviceReferences {
    words: Bounded<String, Word>,
}

impl Default for DeviceReferences {
    fn default() -> Self {
        Self { words: Bounded::new(REMEMBERED) }
    }
}

impl DeviceReferences {
    fn listen(&mut self, context: &Context<'_>, said: &Said, steps: &mut Steps) {
        if !said.is_of_a_device() {
            return;
        }
        let before = self.words.get(&said.volume);
        if before.is_some_and(|before| before.said.at > said.at) {
            return;
        }
        let told = before.is_some_and(|before| before.told);
        if said.report == Some(Report::DeviceReleased) {
            self.words.remove(&said.volume);
            steps.say(told.then(|| over(&said.volume, context)));
        } else if said.complaint.is_some_and(Complaint::is_of_a_device) {
            self.words.insert(said.volume.clone(), Word { said: said.clone(), told });
        }
    }

    fn sampled(&mut self, context: &Context<'_>, sample: &NodeSample, steps: &mut Steps) {
        for (volume, word) in self.words.iter_mut() {
            let due = context.when(word.said.retry.unwrap_or(word.said.at));
            let target_id = name_hash(volume.as_bytes());
            let draft = device::referenced::draft(context, &word.said, target_id, sample);
            let draft = draft.filter(|_| context.now.since(due) <= LASTS);
            if draft.is_none() && word.told {
                steps.say([over(volume, context)]);
            }
            word.told = draft.is_some();
            steps.found(draft);
        }
    }
}

fn over(volume: &str, context: &Context<'_>) -> Verdict {
    let (tracker, target_id) = (TrackerId::DeviceReference, name_hash(volume.as_bytes()));
    Verdict::Over { tracker, target_id, at: context.now }
}

impl Tracker for DeviceReferences {
    fn id(&self) -> TrackerId {
        TrackerId::DeviceReference
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Said(said) => self.listen(context, said, steps),
            What::Sample(sample) => self.sampled(context, sample, steps),
            _ => {}
        }
    }

    fn dropped(&self) -> u64 {
        self.words.dropped()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;

    use super::*;
    use crate::{
        model::{
            evidence::Certainty, identity::Component, mounts::NodeMounts, node::PodState,
            time::Monotonic,
        },
        testing::{Alone, block_volume, found, mounts, pod_state},
        verdict::Draft,
    };

    const STAGED: &str = "/k/plugins/kubernetes.io/csi/d.example/0a/globalmount";
    const UID: &str = "0f0e0d0c-1111-4222-8333-444455556666";

    fn at(second: u64) -> Monotonic {
        Monotonic(second * 1_000_000_000)
    }

    fn said(second: i64, complaint: Option<Complaint>, text: &str) -> What {
        let time = Timestamp::from_second(second).unwrap();
        let said = Said::new(Component::Kubelet, "log of kubelet", "", time, text);
        let report = complaint.is_none().then_some(Report::DeviceReleased);
        let volume = "kubernetes.io/csi/d.example^h".into();
        What::Said(Box::new(Said { volume, complaint, report, ..said }))
    }

    fn refused(second: i64) -> What {
        let text = format!(
            "The device mount path \"{STAGED}\" is still mounted by other references [/mnt/copy]"
        );
        said(second, Some(Complaint::DeviceMounted), &text)
    }

    fn look(all: &mut Alone<DeviceReferences>, second: u64, table: &str) -> Vec<Verdict> {
        let tables = [(1, Arc::new(mounts(table)))].into();
        let mounts = NodeMounts { tables, host: Some(1) };
        let sample = NodeSample { at: at(second), mounts, ..NodeSample::default() };
        all.take(at(second), What::Sample(sample.into())).verdicts
    }

    fn only(verdicts: Vec<Verdict>) -> Draft {
        let mut drafts = found(verdicts);
        assert_eq!(drafts.len(), 1, "{drafts:?}");
        drafts.remove(0)
    }

    #[test]
    fn a_reference_that_is_there_is_firm_and_over_when_it_is_gone() {
        let mut all = Alone::<DeviceReferences>::new();
        let staged = format!("9 2 8:16 / {STAGED} rw - ext4 /dev/sdb rw\n");
        let copy = "10 2 8:16 / /mnt/copy rw - ext4 /dev/sdb rw\n";
        assert!(look(&mut all, 1, &format!("{staged}{copy}")).is_empty(), "kubelet says nothing");
        all.take(at(2), refused(2));
        let draft = only(look(&mut all, 3, &format!("{staged}{copy}")));
        assert_eq!((draft.id(), draft.certainty()), ("device-still-referenced", Certainty::Firm));
        assert_eq!(draft.blocks_deletion, Some(false));
        let commands: Vec<_> =
            draft.remedies.iter().filter_map(|it| it.command.as_deref()).collect();
        assert!(commands.len() == 1 && commands[0].contains("/mnt/copy"), "{commands:?}");
        let said = look(&mut all, 5, &staged);
        assert!(matches!(said[..], [Verdict::Over { .. }]), "{said:?}");
    }

    #[test]
    fn kubelets_own_mounts_and_other_directories_are_no_references() {
        let mut all = Alone::<DeviceReferences>::new();
        all.take(at(2), refused(2));
        let table = format!(
            "9 2 8:16 / {STAGED} rw - ext4 /dev/sdb rw\n\
             10 2 8:16 / /rootfs{STAGED} rw - ext4 /dev/sdb rw\n\
             11 2 8:16 /sub /mnt/sub rw - ext4 /dev/sdb rw\n\
             12 2 8:32 / /mnt/other rw - ext4 /dev/sdc rw\n"
        );
        assert!(look(&mut all, 3, &table).is_empty());
    }

    #[test]
    fn a_pods_own_mount_is_looked_into_and_not_unmounted() {
        let mut all = Alone::<DeviceReferences>::new();
        all.take(at(2), refused(2));
        let volume = format!("/k/pods/{UID}/volumes/kubernetes.io~csi/pv/mount");
        let table = format!(
            "9 2 8:16 / {STAGED} rw - ext4 /dev/sdb rw\n10 2 8:16 / {volume} rw - ext4 /dev/sdb rw\n"
        );
        let draft = only(look(&mut all, 3, &table));
        assert!(
            draft.remedies.iter().all(|remedy| remedy.command.is_none()),
            "{:?}",
            draft.remedies
        );
        assert!(draft.remedies[0].words().contains(UID));
    }

    #[test]
    fn what_only_the_log_says_is_likely_and_grows_old() {
        let in_use = "the device is in use when it was no longer expected to be in use";
        let mut all = Alone::<DeviceReferences>::new();
        all.take(at(2), said(2, Some(Complaint::DeviceInUse), in_use));
        let draft = only(look(&mut all, 3, ""));
        assert!(draft.certainty() < Certainty::Firm);
        let late = look(&mut all, 400, "");
        assert!(matches!(late[..], [Verdict::Over { .. }]), "{late:?}");
        all.take(at(401), said(401, Some(Complaint::DeviceInUse), in_use));
        assert_eq!(found(look(&mut all, 402, "")).len(), 1);
        let done = all.take(at(403), said(403, None, "UnmountDevice succeeded")).verdicts;
        assert!(matches!(done[..], [Verdict::Over { .. }]), "{done:?}");
        assert!(look(&mut all, 404, "").is_empty());
    }

    #[test]
    fn a_raw_device_that_is_mapped_for_a_pod_is_still_referenced() {
        let mut all = Alone::<DeviceReferences>::new();
        let text = "The device \"/k/plugins/kubernetes.io/csi/volumeDevices/pv/dev\" is still referenced from \
                    other Pods [/k/plugins/kubernetes.io/csi/volumeDevices/pv/dev/u]";
        all.take(at(2), said(2, Some(Complaint::DeviceMapped), text));
        let mut with = |second: u64, devices| {
            let pods = vec![PodState { devices, ..pod_state("u") }];
            let sample = NodeSample { at: at(second), pods, ..NodeSample::default() };
            only(all.take(at(second), What::Sample(sample.into())).verdicts).certainty()
        };
        assert_eq!(with(3, vec![block_volume("u", "pv")]), Certainty::Firm);
        assert_eq!(with(4, vec![block_volume("u", "other")]), Certainty::Likely);
    }
}
