//! Whether the pod in question has gone from this node, and whether anything is left to wait for.

use std::time::Duration;

use super::Engine;
use crate::{
    model::{
        diagnosis::{Gone, Stage},
        finding::{Finding, FindingState},
        node::{NodeSample, PodState},
        time::Monotonic,
    },
    stage,
};

/// Two looks: what is found last of a pod may come after its directory went.
const SETTLED_GONE: Duration = Duration::from_secs(4);
/// By then everything that a look can show of containers has been shown, also what must last to count.
const LOOKED_AT_CONTAINERS: Duration = Duration::from_secs(20);

/// Who works on what is left of a pod does so more often: kubelet's housekeeping every two seconds, a runtime every ten.
const QUIET: Duration = Duration::from_secs(20);

/// What the looks at the node say of the pod in question.
#[derive(Default)]
pub(super) struct Presence {
    was_here: bool,
    /// When a call on something of it was seen last.
    called: Option<Monotonic>,
    gone: Option<Monotonic>,
}

impl Presence {
    /// A call on something of it was seen, be it the one that removed its directory before the first look.
    pub(super) fn called(&mut self, at: Monotonic) {
        (self.was_here, self.called) = (true, Some(at));
    }

    /// Takes a look. Whether the pod has gone since the one before.
    pub(super) fn look(&mut self, uid: &str, sample: &NodeSample) -> bool {
        if has_any(uid, sample) {
            (self.was_here, self.gone) = (true, None);
        } else if !sample.may_have_pod(uid) && self.gone.is_none() {
            self.gone = Some(sample.at);
            return self.was_here;
        }
        false
    }
}

fn has_any(uid: &str, sample: &NodeSample) -> bool {
    sample.pod(uid).is_some()
        || sample.cgroups.iter().any(|group| group.uid == uid)
        || sample.rootfs.iter().any(|left| left.pod == uid)
}

impl Engine {
    /// The pod in question, if it was on this node and went while that was watched.
    pub fn gone(&self) -> Option<Gone> {
        let at = self.presence.gone.filter(|_| self.presence.was_here)?;
        let pod = self.run.pod.clone()?;
        Some(Gone { pod, after_s: at.since(self.run.clock.started()).as_secs_f64() })
    }

    /// The same, and nothing else holds.
    pub fn has_gone(&self) -> bool {
        self.gone().is_some() && !self.ledger.all().any(stands)
    }

    /// Whether this node would say no more, however long it is watched: nothing of the pod in question is left
    /// here, or nothing here says that it is to be deleted, or only its record can say what it waits for.
    pub fn is_exhausted(&self, now: Monotonic) -> bool {
        let settled = |since: Monotonic| now.since(since) >= SETTLED_GONE;
        self.presence.gone.is_some_and(settled)
            || self.window() >= LOOKED_AT_CONTAINERS
                && (self.may_be_to_stay() || self.waits_for_record(now))
    }

    /// Whether the pod in question has nothing but directories on this node, nobody works on them, and the API server has
    /// not answered. That is how a finalizer looks from here: kubelet keeps the directory for as long as there is a record.
    fn waits_for_record(&self, now: Monotonic) -> bool {
        // Where its control groups cannot be read, its containers may run.
        let is_empty = |(state, stage): (&PodState, Stage)| {
            stage == Stage::Directories && state.populated == Some(false)
        };
        self.target().is_some_and(is_empty)
            && !self.api_answered()
            && self.presence.called.is_none_or(|last| now.since(last) >= QUIET)
            && !self.ledger.all().any(stands)
    }

    /// The pod in question, and how far its deletion has come.
    fn target(&self) -> Option<(&PodState, Stage)> {
        let (pod, sample) = (self.run.pod.as_ref()?, self.sample.as_ref()?);
        let state = sample.pod(&pod.uid)?;
        Some((state, stage::of(state, sample).0))
    }

    /// Whether the containers of the pod in question run, and neither its record nor a log nor any call says that
    /// they are to end.
    pub(super) fn may_be_to_stay(&self) -> bool {
        let Some(pod) = &self.run.pod else { return false };
        self.target().is_some_and(|(_, stage)| stage == Stage::Containers)
            && !self.api_answered()
            && self.deletions.since(&pod.uid).is_none()
            && self.said.of([pod.uid.as_str()].into_iter()).is_empty()
            && !self.ledger.all().any(stands)
    }

    /// Whether the API server has answered, so that a pod that it does not know is none.
    pub(super) fn api_answered(&self) -> bool {
        self.run.start.api.as_ref().is_some_and(|told| !told.starts_with("no answer"))
    }
}

fn stands(finding: &Finding) -> bool {
    finding.state != FindingState::Cleared
}

#[cfg(test)]
#[path = "presence_tests.rs"]
mod tests;
