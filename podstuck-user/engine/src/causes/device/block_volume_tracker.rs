//! Raw block volumes that stay mapped after the pod's containers have ended. kubelet unmaps them in its own
//! directories of plugins and not in the pod's, so that no call on them is seen; what is left is.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    backoff,
    bounded::Bounded,
    causes::device::block_volume,
    event::{Event, What},
    model::{
        block_volume::BlockVolume,
        holder::{About, Snapshot},
        node::{NodeSample, PodState},
        path::JsonPath,
        said::Said,
        time::Monotonic,
    },
    query::{Query, Wants},
    tracker::{Context, Steps, Tracker, TrackerId},
    verdict::Verdict,
};

/// How long it must last where kubelet has not said that it fails: it unmaps within moments.
const LASTS: Duration = Duration::from_secs(30);
/// Looks, two seconds apart, before it is looked who holds a map.
const LOOKS_NEEDED: u32 = 2;
/// Looks until it is asked again.
const AGAIN: u32 = 10;
/// Volumes that something is said of.
const REMEMBERED: usize = 1024;

/// One that is left.
pub(crate) struct Left {
    /// As it was seen last.
    pub(crate) volume: BlockVolume,
    /// When it was seen first, with the pod's containers ended.
    pub(crate) since: Monotonic,
    /// When it was seen last.
    pub(crate) at: Monotonic,
    /// kubelet's last attempt to unmap it, if that failed and would fail again.
    pub(crate) said: Option<Said>,
    /// Who holds its map.
    pub(crate) holders: Option<Snapshot>,
    looks: u32,
    told: bool,
}

/// Those of the last look, by target.
pub(crate) struct BlockVolumes {
    left: BTreeMap<u64, Left>,
    /// By UID and volume: kubelet's last word about it.
    said: Bounded<(String, String), Said>,
}

impl Default for BlockVolumes {
    fn default() -> Self {
        Self { left: BTreeMap::new(), said: Bounded::new(REMEMBERED) }
    }
}

impl BlockVolumes {
    fn listen(&mut self, said: &Said) {
        if said.is_kubelets_of_a_volume() {
            let key = (said.uid.clone(), said.volume.clone());
            if self.said.get(&key).is_none_or(|before| before.at <= said.at) {
                self.said.insert(key, said.clone());
            }
        }
    }

    /// The last word about a volume, if that is an error which an attempt would meet again: after a longer
    /// silence there was one that met something else.
    fn said(&self, context: &Context<'_>, pod: &PodState, volume: &BlockVolume) -> Option<Said> {
        let of_this = |(uid, name): &(String, String)| *uid == pod.uid && volume.is_called(name);
        let said = self.said.iter().find(|(key, _)| of_this(key)).map(|(_, said)| said)?;
        let lasts = context.now.since(context.when(said.at)) <= backoff::CAP * 2;
        (said.report.is_none() && lasts).then(|| said.clone())
    }

    fn sampled(&mut self, sample: &NodeSample, context: &Context<'_>, steps: &mut Steps) {
        let (tracker, at) = (self.id(), sample.at);
        let mut before = std::mem::take(&mut self.left);
        let ended = |pod: &&PodState| pod.populated == Some(false) && pod.started;
        for pod in sample.pods.iter().filter(ended) {
            for volume in pod.devices.iter().filter(|volume| volume.target_id != 0) {
                let target_id = volume.target_id;
                let said = self.said(context, pod, volume);
                let new = || {
                    let volume = volume.clone();
                    let (looks, told) = (0, false);
                    Left { volume, since: at, at, said: None, holders: None, looks, told }
                };
                let known = before.remove(&target_id).unwrap_or_else(new);
                let looks = known.looks + 1;
                let mut left = Left { volume: volume.clone(), at, said, looks, ..known };
                if let Some(mount) = left.volume.mounts.first()
                    && left.looks % AGAIN == LOOKS_NEEDED
                {
                    let (pid, namespace, path) = (mount.pid, mount.namespace, mount.point.clone());
                    let point = JsonPath(path.clone());
                    let wants = Wants::Holders(About::Mount { pid, namespace, path: point });
                    steps.ask([Query { tracker, target_id, path, wants }]);
                }
                left.judge(context, steps);
                self.left.insert(target_id, left);
            }
        }
        let gone = before.into_iter().filter(|(_, left)| left.told);
        steps.say(gone.map(|(target_id, _)| Verdict::Over { tracker, target_id, at }));
    }
}

impl Left {
    fn judge(&mut self, context: &Context<'_>, steps: &mut Steps) {
        let lasts = self.said.is_some() || self.at.since(self.since) >= LASTS;
        let draft = block_volume::draft(context, self).filter(|_| lasts);
        if draft.is_none() && self.told {
            let (tracker, target_id) = (TrackerId::BlockVolume, self.volume.target_id);
            steps.say([Verdict::Over { tracker, target_id, at: self.at }]);
        }
        self.told = draft.is_some();
        steps.found(draft);
    }
}

impl Tracker for BlockVolumes {
    fn id(&self) -> TrackerId {
        TrackerId::BlockVolume
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Said(said) => self.listen(said),
            What::Sample(sample) => self.sampled(sample, context, steps),
            what => {
                if let Some((query, taken)) = what.holders()
                    && let Some(left) = self.left.get_mut(&query.target_id)
                {
                    left.holders = Some(taken.clone());
                    left.judge(context, steps);
                }
            }
        }
    }

    fn dropped(&self) -> u64 {
        self.said.dropped()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{
        model::{
            block_volume::DeviceUser,
            evidence::Certainty,
            holder::{How, Through},
            identity::Component,
            said::{Complaint, Report},
        },
        query::Answer,
        testing::{Alone, block_volume, found, holder, pod_state, snapshot},
    };

    const VOLUME: &str = "kubernetes.io/csi/block.example^h-1";

    fn at(second: u64) -> Monotonic {
        Monotonic(second * 1_000_000_000)
    }

    fn said(second: i64, error: &str) -> What {
        let time = Timestamp::from_second(second).unwrap();
        let said = Said::new(Component::Kubelet, "log of kubelet", "u", time, error);
        let complaint = error.contains("busy").then_some(Complaint::MapBusy);
        What::Said(Box::new(Said { volume: VOLUME.into(), complaint, ..said }))
    }

    fn look(
        all: &mut Alone<BlockVolumes>,
        second: u64,
        populated: bool,
        change: impl FnOnce(&mut BlockVolume),
    ) -> Steps {
        let mut volume = block_volume("u", "pv");
        change(&mut volume);
        let pod = PodState { populated: Some(populated), devices: vec![volume], ..pod_state("u") };
        let sample = NodeSample { at: at(second), pods: vec![pod], ..NodeSample::default() };
        all.take(at(second), What::Sample(sample.into()))
    }

    fn ids(steps: Steps) -> Vec<(&'static str, Certainty)> {
        found(steps.verdicts).iter().map(|draft| (draft.id(), draft.certainty())).collect()
    }

    fn encrypted(volume: &mut BlockVolume) {
        volume.users = vec![DeviceUser {
            name: "dm-3".into(),
            what: "encrypted volume osd".into(),
            of: "sdb".into(),
            source: "/sys/class/block/sdb/holders/dm-3".into(),
        }];
    }

    #[test]
    fn what_kubelet_fails_to_unmap_is_told_with_who_holds_it() {
        let mut all = Alone::<BlockVolumes>::new();
        all.take(at(1), said(1, "umount: /k/map: target is busy."));
        assert!(ids(look(&mut all, 2, true, |_| {})).is_empty(), "its containers run");
        // That it fails is known by the log alone.
        let told = ids(look(&mut all, 4, false, |_| {}));
        assert_eq!(told, [("raw-block-volume-in-use", Certainty::Likely)]);
        let steps = look(&mut all, 6, false, |_| {});
        let [query] = &steps.queries[..] else { panic!("{:?}", steps.queries) };
        assert!(query.path.ends_with("dev/u"), "{query:?}");
        let held = snapshot(vec![holder(How::Fd, Through::Itself, Some(true))]);
        let answer = Box::new(Answer::Holders(Ok(held)));
        let query = Box::new(query.clone());
        let drafts = found(all.take(at(7), What::Answer { query, answer }).verdicts);
        assert_eq!(drafts[0].certainty(), Certainty::Firm);
        assert_eq!(drafts[0].blocks_deletion, Some(true));
        let facts: Vec<&str> = drafts[0].evidence.iter().map(|fact| fact.fact.as_str()).collect();
        assert!(facts.iter().any(|fact| fact.contains("volumeDevices/kubernetes.io~csi/pv")));
        assert!(facts.iter().any(|fact| fact.contains("has it open")), "{facts:?}");
    }

    #[test]
    fn a_device_that_is_made_of_it_is_likely_what_keeps_it() {
        let mut all = Alone::<BlockVolumes>::new();
        assert!(ids(look(&mut all, 2, false, encrypted)).is_empty(), "kubelet needs a moment");
        let told = ids(look(&mut all, 40, false, encrypted));
        assert_eq!(told, [("raw-block-volume-in-use", Certainty::Likely)]);
        let over = look(&mut all, 42, false, |_| {}).verdicts;
        assert!(matches!(over[..], [Verdict::Over { .. }]), "{over:?}");
    }

    #[test]
    fn without_a_word_and_a_holder_nothing_is_blamed() {
        let mut all = Alone::<BlockVolumes>::new();
        for second in [2, 40, 80] {
            assert!(ids(look(&mut all, second, false, |_| {})).is_empty());
        }
        // What was unmapped since, and what was said long ago, is no fault.
        all.take(at(81), said(81, "x"));
        let What::Said(done) = said(82, "UnmapVolume succeeded") else { panic!() };
        let done = Said { report: Some(Report::Unmapped), ..*done };
        all.take(at(82), What::Said(Box::new(done)));
        assert!(ids(look(&mut all, 84, false, |_| {})).is_empty());
        all.take(at(90), said(90, "x"));
        assert_eq!(ids(look(&mut all, 92, false, |_| {})).len(), 1);
        assert!(ids(look(&mut all, 900, false, |_| {})).is_empty());
    }
}
