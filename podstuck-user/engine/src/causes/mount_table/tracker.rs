//! Mount namespaces with very many mounts, and unmounts that have nothing to write and are slow all the same.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use podstuck_common::{component::path_hash, record::reason};

use crate::{
    causes::mount_table,
    causes::shared::clean_up::is_clean_up,
    event::{Event, What},
    model::{
        call::{Call, Outcome},
        node::NodeSample,
        operation::Operation,
        path::safe_path,
        time::Monotonic,
    },
    tracker::{Context, Steps, Tracker, TrackerId},
    verdict::Verdict,
};

/// How long it must last: two looks.
const LASTS: Duration = Duration::from_secs(5);
/// Slow unmounts remembered, the last ones.
const SLOW: usize = 16;
/// For how long they count.
const FRESH: Duration = Duration::from_secs(600);
/// Volumes that kubelet keeps in memory (pkg/volume/secret, projected and downwardapi, `wrappedVolumeSpec`): their
/// unmount writes nothing and asks nobody.
const IN_MEMORY: [&str; 3] =
    ["kubernetes.io/secret", "kubernetes.io/projected", "kubernetes.io/downward-api"];

/// Namespaces of the last look, by target.
#[derive(Default)]
pub(crate) struct MountStorms {
    crowded: BTreeMap<u64, Crowded>,
    /// Unmounts of volumes in memory that took long: when they ended, and how long they took.
    slow: VecDeque<(Monotonic, Duration)>,
}

struct Crowded {
    since: Monotonic,
    told: bool,
}

impl MountStorms {
    fn observe(&mut self, op: &Operation) {
        let plugin = op.target.volume.as_ref().map_or("", |volume| volume.plugin.as_str());
        let is_slow = op.has(reason::SLOW) && op.call == Call::Umount2 && op.outcome == Outcome::OK;
        if is_slow && is_clean_up(op) && IN_MEMORY.contains(&plugin) {
            if self.slow.len() >= SLOW {
                self.slow.pop_front();
            }
            self.slow.push_back((op.end, op.duration));
        }
    }

    fn sampled(&mut self, sample: &NodeSample, steps: &mut Steps) {
        self.slow.retain(|(end, _)| sample.at.since(*end) <= FRESH);
        let slow: Vec<Duration> = self.slow.iter().map(|(_, took)| *took).collect();
        let mut before = std::mem::take(&mut self.crowded);
        for crowd in &sample.crowded {
            let name = format!("{} {}", crowd.namespace, safe_path(&crowd.below));
            let target_id = path_hash(name.as_bytes());
            let known = before.remove(&target_id);
            let mut this = known.unwrap_or(Crowded { since: sample.at, told: false });
            if sample.at.since(this.since) >= LASTS {
                this.told = true;
                let (since, at) = (this.since, sample.at);
                steps.found([mount_table::verdict::draft(crowd, &slow, target_id, (since, at))]);
            }
            self.crowded.insert(target_id, this);
        }
        let (tracker, at) = (self.id(), sample.at);
        for (target_id, _) in before.into_iter().filter(|(_, crowded)| crowded.told) {
            steps.say([Verdict::Over { tracker, target_id, at }]);
        }
    }
}

impl Tracker for MountStorms {
    fn id(&self) -> TrackerId {
        TrackerId::MountStorm
    }

    fn take(&mut self, event: &Event, _: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Operation(op) => self.observe(op),
            What::Sample(sample) => self.sampled(sample, steps),
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;
