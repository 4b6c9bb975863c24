//! Containers of which dockerd says something else than is so: it has missed the event that one has ended, or
//! believes in one that never came. Each look compares what it has written with the processes that are there.

use std::{collections::BTreeMap, time::Duration};

use podstuck_common::component::name_hash;

use crate::{
    causes::{
        runtime::docker,
        shared::pending_deletion::{ToGo, Word},
    },
    event::{Event, What},
    model::{
        evidence::Certainty,
        identity::Component,
        node::NodeSample,
        runtime::{Differs, OutOfStep},
        time::Monotonic,
    },
    tracker::{Claim, Context, Steps, Subject, Tracker, TrackerId},
    verdict::Verdict,
};

/// dockerd takes ten seconds until it believes that a container whose event does not come has ended
/// (moby daemon/kill.go); and for one that ends, it unmounts and writes first.
const LASTS: Duration = Duration::from_secs(20);

/// Whose removal waits for the container.
pub(crate) enum Waits<'a> {
    /// Who has asked about it.
    Asked,
    /// Its pod, which is to go.
    Pod(&'a Word),
    /// Nobody who is known.
    Nobody,
}

/// Those of the last look.
#[derive(Default)]
pub(crate) struct DockerStates {
    /// By container and in which way.
    since: BTreeMap<(String, Way), Monotonic>,
    to_go: ToGo,
    /// What is said, by target, with the pod's UID and whether that is likely.
    told: BTreeMap<u64, (String, bool)>,
}

/// In which way, and by which process.
type Way = (bool, Option<u32>);

impl DockerStates {
    fn sampled(&mut self, sample: &NodeSample, steps: &mut Steps) {
        let before = std::mem::take(&mut self.since);
        let mut over = std::mem::take(&mut self.told);
        // Who is kept from running learns of it when he runs again.
        let cases = sample.out_of_step.iter().filter(|_| daemons_work(sample));
        for case in cases {
            let id = &case.container.id;
            let key = (id.clone(), way(case));
            let since = before.get(&key).copied().unwrap_or(sample.at);
            self.since.insert(key, since);
            if sample.at.since(since) < LASTS {
                continue;
            }
            let target_id = name_hash(id.as_bytes());
            let uid = case.container.pod.as_ref().map_or("", |pod| pod.uid.as_str());
            let is_asked = sample.containers.iter().any(|it| it.container.id == *id);
            let waits = match self.to_go.word(uid).filter(|_| !uid.is_empty()) {
                Some(word) => Waits::Pod(word),
                None if is_asked => Waits::Asked,
                None => Waits::Nobody,
            };
            let draft = docker::draft(case, &waits, since, target_id, sample);
            let is_likely =
                draft.blocks_deletion == Some(true) && draft.certainty() >= Certainty::Likely;
            over.remove(&target_id);
            self.told.insert(target_id, (uid.to_owned(), is_likely));
            steps.found([draft]);
        }
        let (tracker, at) = (self.id(), sample.at);
        steps.say(over.into_keys().map(|target_id| Verdict::Over { tracker, target_id, at }));
    }
}

fn way(case: &OutOfStep) -> Way {
    match case.what {
        Differs::SaysUp(pid) => (true, Some(pid)),
        Differs::SaysEnded(init) => (false, init),
    }
}

/// Whether nothing is known that keeps Docker's daemons from their work.
fn daemons_work(sample: &NodeSample) -> bool {
    let is_dockers = |it: Component| matches!(it, Component::Dockerd | Component::Containerd);
    let halted = sample.runtimes.iter().any(|it| is_dockers(it.component) && it.halted.is_some());
    !halted && !sample.gone.iter().any(|it| is_dockers(it.component))
}

impl Tracker for DockerStates {
    fn id(&self) -> TrackerId {
        TrackerId::DockerState
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        self.to_go.listen(context, &event.what);
        if let What::Sample(sample) = &event.what {
            self.sampled(sample, steps);
        }
    }

    fn explains(&self, subject: &Subject<'_>, claim: Claim) -> bool {
        self.told.values().any(|(uid, likely)| subject.is_of_pod(uid) && claim.is_met(*likely))
    }

    fn dropped(&self) -> u64 {
        self.to_go.dropped()
    }
}

#[cfg(test)]
#[path = "docker_tracker_tests.rs"]
mod tests;
