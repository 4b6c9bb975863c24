//! What needs memory: each tracker follows one kind of object from event to event.
//!
//! A tracker sees every event. It asks for facts by a query, and says what it concludes by a verdict
//! about one of its objects. What one tracker follows may explain what another one sees; that is a
//! table ([`TrackerSpec::yields`]) and not the order of calls.

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

/// One kind of object, followed.
pub(crate) trait Tracker {
    /// Its name.
    fn id(&self) -> TrackerId;

    /// Takes an event.
    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps);

    /// Whether what it follows explains what is seen on a subject.
    fn explains(&self, _subject: &Subject<'_>, _claim: Claim) -> bool {
        false
    }

    /// An object is gone or its call has succeeded; without a path, the whole target is gone.
    fn forget(
        &mut self,
        _target_id: u64,
        _path: Option<&Path>,
        _now: Monotonic,
        _steps: &mut Steps,
    ) {
    }

    /// How often it happened on a target, in the end.
    fn count(&self, _target_id: u64) -> Option<u64> {
        None
    }

    /// How many objects it had to forget because there were too many.
    fn dropped(&self) -> u64 {
        0
    }

    /// What it waits for before it says anything, each in a sentence; `is_asked` where the run is about one pod.
    fn waits(&self, _now: Monotonic, _is_asked: bool) -> Vec<String> {
        Vec::new()
    }

    /// How far what it follows has come.
    fn progress(&self, _now: Monotonic) -> Vec<Progress> {
        Vec::new()
    }
}

/// What a tracker wants to be asked and said.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    /// To be asked.
    pub(crate) queries: Vec<Query>,
    /// To be said.
    pub(crate) verdicts: Vec<Verdict>,
}

impl Steps {
    /// Asks, if there is something to ask.
    pub(crate) fn ask(&mut self, query: impl IntoIterator<Item = Query>) {
        self.queries.extend(query);
    }

    /// Says that something was found, if it was.
    pub(crate) fn found(&mut self, draft: impl IntoIterator<Item = Draft>) {
        self.verdicts.extend(draft.into_iter().map(|draft| Verdict::Found(Box::new(draft))));
    }

    /// Says something.
    pub(crate) fn say(&mut self, verdict: impl IntoIterator<Item = Verdict>) {
        self.verdicts.extend(verdict);
    }
}

/// What is asked about when it is asked whether somebody else explains it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    /// Hash that names the target.
    pub(crate) target_id: u64,
    /// The object.
    pub(crate) path: &'a Path,
    /// UID of the pod; empty for none.
    pub(crate) pod: &'a str,
    /// When.
    pub(crate) at: Monotonic,
}

impl<'a> Subject<'a> {
    /// Of an operation.
    pub(crate) fn of(op: &'a Operation) -> Self {
        let pod = op.target.pod.as_ref().map_or("", |pod| pod.uid.as_str());
        Self { target_id: op.target_id, path: &op.path, pod, at: op.end }
    }

    /// Whether it is of this pod, and of a pod at all.
    pub(crate) fn is_of_pod(&self, uid: &str) -> bool {
        !self.pod.is_empty() && self.pod == uid
    }
}

/// How far a tracker must have come to explain what another one sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It follows the subject.
    Suspicion,
    /// It has said what it found.
    Finding,
}

impl Claim {
    /// Whether a tracker that follows the subject has come so far.
    pub(crate) fn is_met(self, has_found: bool) -> bool {
        self == Self::Suspicion || has_found
    }
}

/// What a suppression reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The same target.
    Target,
    /// The object itself, and what is above it.
    Path,
    /// All of the same pod.
    Pod,
}

/// What is known of a tracker beside its code.
pub(crate) struct TrackerSpec {
    pub(crate) id: TrackerId,
    /// What its findings are made of: without one of these, a finding may be missing.
    pub(crate) feeds: &'static [Feed],
    /// Which trackers keep it silent.
    pub(crate) yields: &'static [Yields],
    /// One that has seen nothing.
    pub(crate) new: fn() -> Box<dyn Tracker>,
}

/// Another tracker's claim keeps this one silent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Yields {
    pub(crate) to: TrackerId,
    pub(crate) claim: Claim,
    pub(crate) scope: Scope,
    /// For readers of the table; the tests print it.
    #[cfg_attr(not(test), expect(dead_code, reason = "a reason decides nothing"))]
    pub(crate) why: &'static str,
}

/// Shorter to write in a table.
pub(crate) const fn yields(to: TrackerId, claim: Claim, scope: Scope, why: &'static str) -> Yields {
    Yields { to, claim, scope, why }
}

/// What a tracker may look at beside its own memory.
pub(crate) struct Context<'a> {
    /// The time of the event.
    pub(crate) now: Monotonic,
    /// The same by the calendar.
    pub(crate) calendar: Timestamp,
    /// When the observation began.
    pub(crate) begun: Monotonic,
    /// UID of the pod that the run is about.
    pub(crate) asked: Option<&'a str>,
    /// Inode number of the tool's own mount namespace.
    pub(crate) own_mnt_ns: u32,
    /// How long to wait before something is called a fault.
    pub(crate) thresholds: Thresholds,
    /// Unmounts seen.
    pub(crate) unmounts: &'a Unmounts,
    /// How far kubelet has come with each pod.
    pub(crate) kubelet_steps: &'a KubeletSteps,
    /// What the processes that must act for the pod in question wait for.
    pub(crate) waits: &'a Waits,
    /// Turns the kernel's time into the calendar's.
    pub(crate) clock: &'a Clock,
    /// The last look at the node.
    pub(crate) sample: Option<&'a NodeSample>,
    /// What keeps a tracker silent.
    pub(crate) yields_of: fn(TrackerId) -> &'static [Yields],
    /// The trackers before the one that looks, and those behind it.
    pub(crate) others: [&'a [Box<dyn Tracker>]; 2],
}

impl Context<'_> {
    /// The kernel's time of a calendar's; that of the boot for what was before, now for what is to come.
    pub(crate) fn when(&self, time: Timestamp) -> Monotonic {
        let ago = u64::try_from(self.calendar.duration_since(time).as_nanos()).unwrap_or(0);
        Monotonic(self.now.0.saturating_sub(ago))
    }

    /// The driver's process of a CSI volume, as the last look at the node has it.
    pub(crate) fn driver_of(&self, target_id: u64) -> Option<&DriverProcess> {
        let (_, volume) = self.sample?.volume(target_id)?;
        volume.driver()
    }

    /// Whether another tracker explains what this one sees on a subject.
    pub(crate) fn is_explained(&self, to: TrackerId, subject: &Subject<'_>) -> bool {
        (self.yields_of)(to).iter().any(|row| {
            let mut all = self.others.iter().copied().flatten();
            let by = all.find(|tracker| tracker.id() == row.to);
            by.is_some_and(|tracker| {
                let subject = match row.scope {
                    // The whole target: whatever path is asked about.
                    Scope::Target => Subject { path: Path::new(""), pod: "", ..*subject },
                    Scope::Path => Subject { pod: "", ..*subject },
                    Scope::Pod => *subject,
                };
                tracker.explains(&subject, row.claim)
            })
        })
    }
}
