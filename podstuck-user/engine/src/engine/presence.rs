//! Whether the pod in question has left this node, and whether there is anything to wait for.

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

/// Two scan intervals: the last findings about a pod may come after its directory is removed.
const SETTLED_GONE: Duration = Duration::from_secs(4);
/// By this time scans have shown everything about containers, including states that must last to count: some for 20 s,
/// from the second scan on.
const LOOKED_AT_CONTAINERS: Duration = Duration::from_secs(25);

/// A component that works on a pod's remains does so more often: kubelet's housekeeping every two seconds, a runtime
/// every ten.
const QUIET: Duration = Duration::from_secs(20);

/// The presence of the pod in question, by scans of the node.
#[derive(Default)]
pub(super) struct Presence {
    was_here: bool,
    /// The last call on an object of the pod.
    called: Option<Monotonic>,
    gone: Option<Monotonic>,
}

impl Presence {
    /// A call on an object of the pod was seen; it may have removed the directory before the first scan.
    pub(super) fn called(&mut self, at: Monotonic) {
        (self.was_here, self.called) = (true, Some(at));
    }

    /// Takes a scan; returns whether the pod has left since the previous one.
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
    /// The pod in question, if it was on this node and left during the run.
    pub fn gone(&self) -> Option<Gone> {
        let at = self.presence.gone.filter(|_| self.presence.was_here)?;
        let pod = self.run.pod.clone()?;
        Some(Gone { pod, after_s: at.since(self.run.clock.started()).as_secs_f64() })
    }

    /// Whether it has left and no finding is open.
    pub fn has_gone(&self) -> bool {
        self.gone().is_some() && !self.ledger.all().any(stands)
    }

    /// Whether watching this node longer would add nothing: nothing of the pod in question is left, or nothing on
    /// the node says that it is being deleted, or only its record can show what it waits for.
    pub fn is_exhausted(&self, now: Monotonic) -> bool {
        let settled = |since: Monotonic| now.since(since) >= SETTLED_GONE;
        self.presence.gone.is_some_and(settled)
            || self.window() >= LOOKED_AT_CONTAINERS
                && (self.may_be_to_stay() || self.waits_for_record(now))
    }

    /// Whether the pod in question has only directories on this node, no component works on them, and the API server
    /// has not answered. A finalizer looks like that on the node: kubelet keeps the directory while the record
    /// exists.
    fn waits_for_record(&self, now: Monotonic) -> bool {
        // If its control groups are unreadable, its containers may run.
        let is_empty = |(state, stage): (&PodState, Stage)| {
            stage == Stage::Directories && state.populated == Some(false)
        };
        self.target().is_some_and(is_empty)
            && !self.api_answered()
            && self.presence.called.is_none_or(|last| now.since(last) >= QUIET)
            && !self.ledger.all().any(stands)
    }

    /// The pod in question, and the stage of its deletion.
    fn target(&self) -> Option<(&PodState, Stage)> {
        let (pod, sample) = (self.run.pod.as_ref()?, self.sample.as_ref()?);
        let state = sample.pod(&pod.uid)?;
        Some((state, stage::of(state, sample).0))
    }

    /// Whether the containers of the pod in question run, and neither a record nor a log nor a finding says that
    /// they must end.
    pub(super) fn may_be_to_stay(&self) -> bool {
        let Some(pod) = &self.run.pod else { return false };
        self.target().is_some_and(|(_, stage)| stage == Stage::Containers)
            && !self.api_answered()
            && self.deletions.since(&pod.uid).is_none()
            && self.said.of([pod.uid.as_str()].into_iter()).is_empty()
            && !self.ledger.all().any(stands)
    }

    /// Whether the API server has answered, so that a pod that it does not know does not exist.
    pub(super) fn api_answered(&self) -> bool {
        self.run.start.api.as_ref().is_some_and(|answer| !answer.starts_with("no answer"))
    }
}

fn stands(finding: &Finding) -> bool {
    finding.state != FindingState::Cleared
}

#[cfg(test)]
#[path = "presence_tests.rs"]
mod tests;
