//! kubelet itself: whether it runs at all, and whether it can. Nothing happens to any pod of the node before it does,
//! whatever else holds one.

use std::{collections::BTreeSet, time::Duration};

use podstuck_common::component::name_hash;

use crate::{
    causes::{
        kubelet_state,
        shared::pending_deletion::{ToGo, Word},
    },
    event::{Event, What},
    model::{
        halted::HaltedKubelet,
        node::{NodeSample, PodState},
        time::Monotonic,
    },
    tracker::{Claim, Context, Steps, Subject, Tracker, TrackerId},
    verdict::Verdict,
};

/// How long it must be kept from running: two looks. A debugger stops a process for a moment.
const HALTED: Duration = Duration::from_secs(5);
/// How long it must be gone: a service that fails is started again after 10 s (`RestartSec` in kubelet's unit of the
/// Kubernetes packages).
const DOWN: Duration = Duration::from_secs(11);

/// Why it does nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum State<'a> {
    Halted(&'a HaltedKubelet),
    Down,
}

/// A pod that waits for it.
pub(crate) struct Suspect<'a> {
    pub(crate) pod: &'a PodState,
    pub(crate) state: State<'a>,
    /// Who says that the pod is to go; `None` for one that was only asked about.
    pub(crate) word: Option<&'a Word>,
    pub(crate) since: Monotonic,
    pub(crate) at: Monotonic,
}

#[derive(Default)]
pub(crate) struct KubeletStates {
    /// Since when it is so, and of which process.
    since: Option<(Option<u32>, Monotonic)>,
    to_go: ToGo,
    /// UIDs of pods, by what was said of them.
    told: BTreeSet<String>,
}

impl KubeletStates {
    fn sampled(&mut self, context: &Context<'_>, sample: &NodeSample, steps: &mut Steps) {
        let before = std::mem::take(&mut self.told);
        let state = state(sample);
        let process = state.map(|state| match state {
            State::Halted(kubelet) => Some(kubelet.pid),
            State::Down => None,
        });
        self.since = process.map(|process| match self.since {
            Some((known, since)) if known == process => (process, since),
            _ => (process, sample.at),
        });
        if let Some((state, (_, since))) = state.zip(self.since) {
            let needed = if state == State::Down { DOWN } else { HALTED };
            let lasts = sample.at.since(since) >= needed;
            for pod in sample.pods.iter().filter(|_| lasts) {
                let word = self.to_go.word(&pod.uid);
                let waits = match word {
                    Some(Word::Record(deletion)) => *deletion <= context.calendar,
                    Some(Word::Log(..)) => true,
                    // Whoever has no kubelet at all may have other means.
                    None => {
                        let is_asked = context.asked == Some(&pod.uid);
                        state != State::Down && is_asked && !self.to_go.is_to_stay(&pod.uid)
                    }
                };
                if waits {
                    let suspect = Suspect { pod, state, word, since, at: sample.at };
                    steps.found([kubelet_state::verdict::draft(&suspect)]);
                    self.told.insert(pod.uid.clone());
                }
            }
        }
        let (tracker, at) = (self.id(), sample.at);
        let over = before.iter().filter(|uid| !self.told.contains(*uid));
        let over = over.map(|uid| name_hash(uid.as_bytes()));
        steps.say(over.map(|target_id| Verdict::Over { tracker, target_id, at }));
    }
}

/// Of several kubelets it is not known whose a pod is: one that runs may be its own.
fn state(sample: &NodeSample) -> Option<State<'_>> {
    let halted = |pid: &u32| sample.halted_kubelets.iter().find(|kubelet| kubelet.pid == *pid);
    if sample.kubelets.is_empty() {
        return Some(State::Down);
    }
    let all: Option<Vec<&HaltedKubelet>> = sample.kubelets.iter().map(halted).collect();
    all?.first().map(|first| State::Halted(first))
}

impl Tracker for KubeletStates {
    fn id(&self) -> TrackerId {
        TrackerId::KubeletState
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        self.to_go.listen(context, &event.what);
        if let What::Sample(sample) = &event.what {
            self.sampled(context, sample, steps);
        }
    }

    fn explains(&self, subject: &Subject<'_>, _: Claim) -> bool {
        self.told.contains(subject.pod)
    }

    fn dropped(&self) -> u64 {
        self.to_go.dropped()
    }
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;
