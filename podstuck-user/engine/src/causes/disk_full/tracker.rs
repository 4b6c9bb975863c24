//! No room where kubelet and the runtimes live.

use std::{collections::BTreeMap, time::Duration};

use podstuck_common::component::path_hash;

use crate::{
    causes::disk_full,
    event::{Event, What},
    model::{node::NodeSample, path::safe_path, time::Monotonic},
    tracker::{Context, Steps, Tracker, TrackerId},
    verdict::Verdict,
};

/// How long it must last: two looks. Garbage collection of images frees room again.
const LASTS: Duration = Duration::from_secs(5);

/// File systems that are full, by target. There are as many as kubelet and the runtimes live on.
#[derive(Default)]
pub(crate) struct FullDisks {
    full: BTreeMap<u64, Full>,
}

struct Full {
    since: Monotonic,
    told: bool,
}

impl FullDisks {
    fn sampled(&mut self, context: &Context<'_>, sample: &NodeSample, steps: &mut Steps) {
        let mut full = BTreeMap::new();
        for space in &sample.spaces {
            let Some(what) = space.exhausted() else { continue };
            let target_id = path_hash(safe_path(&space.path).as_bytes());
            let before = self.full.remove(&target_id);
            let mut this = before.unwrap_or(Full { since: space.at, told: false });
            if space.at.since(this.since) >= LASTS {
                this.told = true;
                steps.found([disk_full::verdict::draft(
                    context, space, what, target_id, this.since,
                )]);
            }
            full.insert(target_id, this);
        }
        let over = std::mem::replace(&mut self.full, full);
        let (tracker, at) = (self.id(), sample.at);
        for (target_id, _) in over.into_iter().filter(|(_, full)| full.told) {
            steps.say([Verdict::Over { tracker, target_id, at }]);
        }
    }
}

impl Tracker for FullDisks {
    fn id(&self) -> TrackerId {
        TrackerId::DiskFull
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        if let What::Sample(sample) = &event.what {
            self.sampled(context, sample, steps);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::evidence::Certainty;
    use crate::{
        model::space::{Capacity, Space},
        testing::Alone,
    };

    fn sampled(disks: &mut Alone<FullDisks>, second: u64, available: u64) -> Vec<Verdict> {
        let at = Monotonic(second * 1_000_000_000);
        let capacity = Capacity {
            device: 1,
            bytes: 1 << 30,
            free: available,
            available,
            inodes: 0,
            inodes_available: 0,
            read_only: false,
        };
        let path = "/var/lib/kubelet".into();
        let space = Space { path, is_kubelets: true, seen_by: None, capacity, at };
        let sample = NodeSample { at, spaces: vec![space], ..NodeSample::default() };
        disks.take(at, What::Sample(Arc::new(sample))).verdicts
    }

    #[test]
    fn a_disk_that_stays_full_is_a_likely_cause() {
        let mut disks = Alone::new();
        assert!(sampled(&mut disks, 0, 0).is_empty());
        let told = sampled(&mut disks, 10, 0);
        let [Verdict::Found(draft)] = &told[..] else { panic!("{told:?}") };
        assert_eq!((draft.id(), draft.blocks_deletion), ("disk-full-runtime", None));
        assert_eq!(draft.certainty(), Certainty::Likely, "a full disk alone is no proof");
        let over = sampled(&mut disks, 20, 1 << 29);
        assert!(matches!(over[..], [Verdict::Over { .. }]));
    }

    #[test]
    fn a_moment_is_nothing() {
        let mut disks = Alone::new();
        for second in [0, 20, 40] {
            assert!(sampled(&mut disks, second, 0).is_empty());
            assert!(sampled(&mut disks, second + 10, 1 << 29).is_empty());
        }
    }
}
