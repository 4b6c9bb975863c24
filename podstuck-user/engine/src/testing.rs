//! A harness that passes events to one tracker, and answers its queries.

use std::time::Duration;

use jiff::Timestamp;

pub(crate) use podstuck_testing::samples::*;

use crate::{
    event::{Event, Run, Thresholds, What},
    kubelet_steps::KubeletSteps,
    model::{
        node::NodeSample,
        operation::Operation,
        summary::Start,
        time::{Clock, Monotonic},
    },
    query::{Answer, Query},
    tracker::{Context, Steps, Tracker},
    unmounts::Unmounts,
    verdict::{Draft, Verdict},
    waits::Waits,
};

/// A single tracker and the shared state that it sees.
pub(crate) struct Alone<T> {
    /// The tracker.
    pub(crate) tracker: T,
    /// Unmounts so far.
    pub(crate) unmounts: Unmounts,
    /// kubelet's progress with each pod.
    pub(crate) kubelet_steps: KubeletSteps,
    /// Waits of processes.
    pub(crate) waits: Waits,
    /// The pod that the run is about.
    pub(crate) asked: Option<String>,
    /// Other trackers, which may explain the subject.
    pub(crate) others: Vec<Box<dyn Tracker>>,
    /// The last scan of the node.
    pub(crate) sample: Option<NodeSample>,
}

impl<T: Tracker + Default> Alone<T> {
    /// A tracker without events.
    pub(crate) fn new() -> Self {
        let (unmounts, kubelet_steps) = (Unmounts::default(), KubeletSteps::default());
        let (waits, others, sample) = (Waits::default(), Vec::new(), None);
        Self { tracker: T::default(), unmounts, kubelet_steps, waits, asked: None, others, sample }
    }
}

impl<T: Tracker> Alone<T> {
    /// Passes an event.
    pub(crate) fn take(&mut self, at: Monotonic, what: What) -> Steps {
        let mut steps = Steps::default();
        self.kubelet_steps.listen(&what);
        let context = Context {
            waits: &self.waits,
            asked: self.asked.as_deref(),
            sample: self.sample.as_ref(),
            ..context(at, &self.unmounts, &self.kubelet_steps, &self.others)
        };
        self.tracker.take(&Event { at, what }, &context, &mut steps);
        steps
    }

    /// Passes an operation; returns the queries.
    pub(crate) fn ask(&mut self, op: &Operation) -> Vec<Query> {
        self.take(op.end, What::Operation(Box::new(op.clone()))).queries
    }

    /// Passes an answer; returns the finding.
    pub(crate) fn answer(&mut self, query: &Query, answer: Answer) -> Option<Draft> {
        self.answer_at(Monotonic(20_000_000_000), query, answer)
    }

    /// Passes an answer at a given time.
    pub(crate) fn answer_at(
        &mut self,
        at: Monotonic,
        query: &Query,
        answer: Answer,
    ) -> Option<Draft> {
        let (query, answer) = (Box::new(query.clone()), Box::new(answer));
        found(self.take(at, What::Answer { query, answer }).verdicts).pop()
    }
}

/// The findings among the verdicts.
pub(crate) fn found(verdicts: Vec<Verdict>) -> Vec<Draft> {
    let found = verdicts.into_iter().filter_map(|verdict| match verdict {
        Verdict::Found(draft) => Some(*draft),
        _ => None,
    });
    found.collect()
}

/// A run on the whole node that starts at time 0, the Unix epoch.
pub(crate) fn run() -> Run {
    Run {
        clock: Clock::new(Timestamp::UNIX_EPOCH, Monotonic(0)),
        start: Start::default(),
        own_mnt_ns: 4,
        thresholds: Thresholds {
            hung: Duration::from_secs(2),
            not_attempted: Duration::from_secs(240),
        },
        one_answer: false,
        pod: None,
        container: None,
        directory: None,
    }
}

/// A context at a time, in a mount namespace that none of the sample calls has.
pub(crate) fn context<'a>(
    now: Monotonic,
    unmounts: &'a Unmounts,
    kubelet_steps: &'a KubeletSteps,
    others: &'a [Box<dyn Tracker>],
) -> Context<'a> {
    static CLOCK: Clock = Clock::new(Timestamp::UNIX_EPOCH, Monotonic(0));
    static WAITS: Waits = Waits::NONE;
    let Run { clock, own_mnt_ns, thresholds, .. } = run();
    Context {
        now,
        calendar: clock.at(now),
        begun: clock.started(),
        asked: None,
        own_mnt_ns,
        thresholds,
        unmounts,
        kubelet_steps,
        waits: &WAITS,
        clock: &CLOCK,
        sample: None,
        yields_of: crate::causes::yields_of,
        others: [others, &[]],
    }
}
