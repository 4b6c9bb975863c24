//! Trackers: each follows one kind of object across events.
//!
//! A tracker receives every event. It asks for facts by queries, and reports its conclusions as verdicts about its
//! objects. What one tracker follows may explain what another one sees; a table ([`TrackerSpec::yields`]) defines
//! that, not the order of calls.

use std::path::Path;

use jiff::Timestamp;
pub use podstuck_model::tracker_id::TrackerId;

use crate::{
    event::{Event, Thresholds},
    kubelet_steps::KubeletSteps,
    model::{
        csi::DriverProcess,
        degraded::Feed,
        finding::Progress,
        node::NodeSample,
        operation::Operation,
        time::{Clock, Monotonic},
    },
    query::Query,
    unmounts::Unmounts,
    verdict::{Draft, Verdict},
    waits::Waits,
};

/// Follows one kind of object.
pub(crate) trait Tracker {
    /// Its name.
    fn id(&self) -> TrackerId;

    /// Processes an event.
    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps);

    /// Whether an object that it follows explains the subject.
    fn explains(&self, _subject: &Subject<'_>, _claim: Claim) -> bool {
        false
    }

    /// The object is gone or its call has succeeded; without a path, the whole target is gone.
    fn forget(
        &mut self,
        _target_id: u64,
        _path: Option<&Path>,
        _now: Monotonic,
        _steps: &mut Steps,
    ) {
    }

    /// The final count of calls on a target.
    fn count(&self, _target_id: u64) -> Option<u64> {
        None
    }

    /// Number of objects that it dropped because there were too many.
    fn dropped(&self) -> u64 {
        0
    }

    /// What it waits for before it reports a finding, each in a sentence; `is_asked` in a run about one pod.
    fn waits(&self, _now: Monotonic, _is_asked: bool) -> Vec<String> {
        Vec::new()
    }

    /// The progress of the objects that it follows.
    fn progress(&self, _now: Monotonic) -> Vec<Progress> {
        Vec::new()
    }
}

/// The outputs of trackers.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    /// To be asked.
    pub(crate) queries: Vec<Query>,
    /// To be said.
    pub(crate) verdicts: Vec<Verdict>,
}

impl Steps {
    /// Adds queries.
    pub(crate) fn ask(&mut self, query: impl IntoIterator<Item = Query>) {
        self.queries.extend(query);
    }

    /// Adds findings.
    pub(crate) fn found(&mut self, draft: impl IntoIterator<Item = Draft>) {
        self.verdicts.extend(draft.into_iter().map(|draft| Verdict::Found(Box::new(draft))));
    }

    /// Adds verdicts.
    pub(crate) fn say(&mut self, verdict: impl IntoIterator<Item = Verdict>) {
        self.verdicts.extend(verdict);
    }
}

/// The subject of a question whether another tracker explains it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    /// Hash that names the target.
    pub(crate) target_id: u64,
    /// The object.
    pub(crate) path: &'a Path,
    /// UID of the pod; empty for none.
    pub(crate) pod: &'a str,
    /// The time of the call.
    pub(crate) at: Monotonic,
}

impl<'a> Subject<'a> {
    /// The subject of an operation.
    pub(crate) fn of(op: &'a Operation) -> Self {
        let pod = op.target.pod.as_ref().map_or("", |pod| pod.uid.as_str());
        Self { target_id: op.target_id, path: &op.path, pod, at: op.end }
    }

    /// Whether it belongs to this pod; false for an empty UID.
    pub(crate) fn is_of_pod(&self, uid: &str) -> bool {
        !self.pod.is_empty() && self.pod == uid
    }
}

/// How far another tracker must have come to explain the subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It follows the subject.
    Suspicion,
    /// It has reported a finding.
    Finding,
}

impl Claim {
    /// Whether a tracker that follows the subject has come that far.
    pub(crate) fn is_met(self, has_found: bool) -> bool {
        self == Self::Suspicion || has_found
    }
}

/// The objects that another tracker's claim covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The same target.
    Target,
    /// The object itself, and what is above it.
    Path,
    /// All objects of the same pod.
    Pod,
}

/// The static properties of a tracker.
pub(crate) struct TrackerSpec {
    pub(crate) id: TrackerId,
    /// The feeds of its findings: without one of them, a finding may be missing.
    pub(crate) feeds: &'static [Feed],
    /// The trackers to which it yields.
    pub(crate) yields: &'static [Yields],
    /// Creates one without events.
    pub(crate) new: fn() -> Box<dyn Tracker>,
}

/// Another tracker's claim that keeps this one silent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Yields {
    pub(crate) to: TrackerId,
    pub(crate) claim: Claim,
    pub(crate) scope: Scope,
    /// Documentation, printed by the tests.
    #[cfg_attr(not(test), expect(dead_code, reason = "a reason decides nothing"))]
    pub(crate) why: &'static str,
}

/// Creates an entry of the table.
pub(crate) const fn yields(to: TrackerId, claim: Claim, scope: Scope, why: &'static str) -> Yields {
    Yields { to, claim, scope, why }
}

/// The shared state that a tracker may read.
pub(crate) struct Context<'a> {
    /// The time of the event.
    pub(crate) now: Monotonic,
    /// The same as calendar time.
    pub(crate) calendar: Timestamp,
    /// When the observation began.
    pub(crate) begun: Monotonic,
    /// UID of the pod that the run is about.
    pub(crate) asked: Option<&'a str>,
    /// Inode number of the tool's own mount namespace.
    pub(crate) own_mnt_ns: u32,
    /// How long to wait before something is called a fault.
    pub(crate) thresholds: Thresholds,
    /// Unmounts so far.
    pub(crate) unmounts: &'a Unmounts,
    /// kubelet's progress with each pod.
    pub(crate) kubelet_steps: &'a KubeletSteps,
    /// The waits of the processes that must act for the pod in question.
    pub(crate) waits: &'a Waits,
    /// Converts the kernel's time to calendar time.
    pub(crate) clock: &'a Clock,
    /// The last scan of the node.
    pub(crate) sample: Option<&'a NodeSample>,
    /// The trackers to which a tracker yields.
    pub(crate) yields_of: fn(TrackerId) -> &'static [Yields],
    /// The trackers before and after the current one.
    pub(crate) others: [&'a [Box<dyn Tracker>]; 2],
}

impl Context<'_> {
    /// The kernel's time of a calendar time; the boot for an earlier time, now for a future one.
    pub(crate) fn when(&self, time: Timestamp) -> Monotonic {
        let ago = u64::try_from(self.calendar.duration_since(time).as_nanos()).unwrap_or(0);
        Monotonic(self.now.0.saturating_sub(ago))
    }

    /// The process of a CSI volume's driver, by the last scan.
    pub(crate) fn driver_of(&self, target_id: u64) -> Option<&DriverProcess> {
        let (_, volume) = self.sample?.volume(target_id)?;
        volume.driver()
    }

    /// Whether another tracker explains what this one sees on the subject.
    pub(crate) fn is_explained(&self, to: TrackerId, subject: &Subject<'_>) -> bool {
        (self.yields_of)(to).iter().any(|row| {
            let mut all = self.others.iter().copied().flatten();
            let by = all.find(|tracker| tracker.id() == row.to);
            by.is_some_and(|tracker| {
                let subject = match row.scope {
                    // The whole target: any path of it.
                    Scope::Target => Subject { path: Path::new(""), pod: "", ..*subject },
                    Scope::Path => Subject { pod: "", ..*subject },
                    Scope::Pod => *subject,
                };
                tracker.explains(&subject, row.claim)
            })
        })
    }
}
