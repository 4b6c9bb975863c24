//! The engine: events in, findings and queries out.

mod answer;
mod deleted;
mod presence;
mod records;
mod ways_out;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use podstuck_common::record::reason;

use crate::{
    aggregate::Aggregate,
    cause::CauseId,
    causes,
    event::{Event, Run, What},
    hung_report,
    kubelet_steps::KubeletSteps,
    ledger::Ledger,
    model::{
        call::Call,
        diagnosis,
        finding::{Finding, Progress},
        holder::About,
        hung::Hung,
        identity::Pod,
        node::NodeSample,
        node_record::NodeRecord,
        operation::Operation,
        pod_record::PodRecord,
        series::{NamesTable, SeriesTable},
        summary::{Completeness, SelfCost, Summary},
        time::Monotonic,
        totals::Totals,
    },
    query::{FollowWaits, Query, Question},
    rank,
    said::SaidOfPods,
    tracker::{Context, Steps, Tracker, TrackerId},
    unmounts::Unmounts,
    verdict::{Draft, Verdict},
    waits::Waits,
};

/// Interval of progress reports of a mass deletion.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// Drains from the end of a target to the end of its findings: the drain after the next has the counts of its last
/// calls.
const DRAINS_TO_CLEAR: u8 = 2;
/// The outputs for an event.
#[derive(Clone, Debug)]
pub enum Output {
    /// A finding that is new, changed or over.
    Finding(Box<Finding>),
    /// A call that does not return, or has returned.
    Hung(Box<Hung>),
    /// The progress of a mass deletion.
    Progress(Box<Progress>),
    /// The pod in question has left this node.
    Gone(Box<diagnosis::Gone>),
    /// A query; the answer is an event.
    Query(Box<Query>),
}

/// A target whose root was removed.
struct Gone {
    target_id: u64,
    at: Monotonic,
    drains: u8,
}

/// The state of a run.
pub struct Engine {
    run: Run,
    trackers: Vec<Box<dyn Tracker>>,
    unmounts: Unmounts,
    aggregate: Aggregate,
    ledger: Ledger,
    said: SaidOfPods,
    gone: Vec<Gone>,
    /// The Node objects from the API server, for one or several nodes on this machine.
    nodes: Vec<NodeRecord>,
    /// The record of the pod in question.
    record: Option<PodRecord>,
    /// A later scan found a directory of that pod: the record may be outdated.
    record_is_old: bool,
    deletions: deleted::ToGo,
    /// kubelet's progress with each pod.
    kubelet_steps: KubeletSteps,
    presence: presence::Presence,
    ways_out: ways_out::WaysOut,
    waits: Waits,
    sample: Option<Arc<NodeSample>>,
    progress_reported: Monotonic,
    firm_since: Option<Monotonic>,
    settled_since: Option<Monotonic>,
    /// The cause of the first finding, which is never more certain than it is, and since when.
    at_most_since: Option<(CauseId, Monotonic)>,
    /// The current time: that of the last event.
    now: Monotonic,
    ended: Option<Monotonic>,
    completeness: Completeness,
    cost: SelfCost,
}

impl Engine {
    /// An engine without events.
    pub fn new(run: Run) -> Self {
        let begun = run.clock.started();
        Self {
            trackers: causes::trackers().map(|spec| (spec.new)()).collect(),
            unmounts: Unmounts::default(),
            aggregate: Aggregate::default(),
            ledger: Ledger::new(run.clock),
            said: SaidOfPods::default(),
            gone: Vec::new(),
            nodes: Vec::new(),
            record: None,
            record_is_old: false,
            deletions: deleted::ToGo::default(),
            kubelet_steps: KubeletSteps::default(),
            presence: presence::Presence::default(),
            ways_out: ways_out::WaysOut::default(),
            waits: Waits::default(),
            sample: None,
            progress_reported: begun,
            firm_since: None,
            settled_since: None,
            at_most_since: None,
            now: begun,
            ended: None,
            completeness: Completeness::default(),
            cost: SelfCost::default(),
            run,
        }
    }

    /// For a recording, whose commands are not run.
    #[must_use]
    pub fn of_replay(mut self) -> Self {
        self.ledger.is_replay = true;
        self
    }

    /// For a node without `xargs` or `sh`: no command contains a name that needs quoting by `xargs`.
    #[must_use]
    pub fn without_xargs(mut self) -> Self {
        self.ledger.has_xargs = false;
        self
    }

    /// Processes an event and returns the outputs.
    pub fn take(&mut self, event: &Event) -> Vec<Output> {
        self.now = self.now.max(event.at);
        let mut outputs = Vec::new();
        let mut steps = Steps::default();
        self.deletions.listen(&event.what);
        self.kubelet_steps.listen(&event.what);
        match &event.what {
            What::Named { target_id, target } => self.aggregate.name(*target_id, target),
            What::Operation(op) => {
                if op.has(reason::SLOW) {
                    outputs.push(Output::Hung(Box::new(hung_report::returned(op))));
                }
                let of_pod = op.target.pod.as_ref().map(|pod| &pod.uid);
                if of_pod.is_some() && of_pod == self.run.pod.as_ref().map(|pod| &pod.uid) {
                    self.presence.called(op.end);
                }
                if !op.actor.is_stranger_to(&op.target) {
                    self.before_trackers(op, &mut steps);
                }
            }
            What::Counts(counts) => self.aggregate.add(counts),
            What::Sample(sample) => {
                let of = |record: &PodRecord| sample.pod(&record.pod.uid).is_some();
                self.record_is_old |= self.record.as_ref().is_some_and(of);
                self.sample = Some(sample.clone());
                let has_gone =
                    self.run.pod.as_ref().is_some_and(|pod| self.presence.look(&pod.uid, sample));
                if let Some(gone) = self.gone().filter(|_| has_gone && !self.run.one_answer) {
                    outputs.push(Output::Gone(Box::new(gone)));
                }
            }
            What::Stuck(seen) => {
                self.waits.stuck(seen);
                let asked = self.run.pod.as_ref().map(|pod| &pod.uid);
                let of_pod = seen.target.pod.as_ref().map(|pod| &pod.uid);
                if asked.is_none() || asked == of_pod {
                    outputs.push(Output::Hung(Box::new(hung_report::stuck(seen))));
                }
            }
            What::Phase { span, target_id, component, took } => {
                self.aggregate.add_phase(*span, *target_id, *component, *took);
            }
            What::Completeness(completeness) => self.completeness.clone_from(completeness),
            What::Degraded(parts) => {
                let findings = self.ledger.degraded(parts, event.at);
                outputs
                    .extend(findings.into_iter().map(|finding| Output::Finding(Box::new(finding))));
            }
            What::WindowEnded => self.ended = Some(event.at),
            What::End(cost) => self.cost.clone_from(cost),
            What::Said(said) if said.is_progress() => {}
            What::Said(said) => self.said.note(said),
            What::Node(node) => self.learn_node(NodeRecord::clone(node)),
            What::Record { record, .. } => {
                self.record = Some(PodRecord::clone(record));
                self.record_is_old = false;
            }
            What::Answer { query, answer } => {
                if let Some((_, found)) = FollowWaits::answered(query, answer) {
                    self.waits.answered(found, event.at);
                }
                if query.tracker == TrackerId::WaysOut
                    && let Some((asked, found)) = About::answered(query, answer)
                {
                    steps.found(self.ways_out.answered(asked, found, &self.ledger));
                }
            }
            What::Logged(_) | What::Heard(_) => {}
        }
        if matches!(event.what, What::Counts(_) | What::Sample(_)) {
            steps.found(self.ways_out.late(event.at, &self.ledger));
        }
        self.show(event, &mut steps);
        if matches!(event.what, What::Counts(_)) {
            self.clear_gone(event.at, &mut steps);
        }
        // A failure in a log may be over by now. It makes podstuck check the object; if the check shows no cause,
        // there is nothing to report.
        steps.verdicts.retain(|verdict| match verdict {
            Verdict::Found(draft) => !(draft.is_logged && draft.cause.is_admission()),
            _ => true,
        });
        forget_moments(&mut steps.verdicts);
        for mut verdict in std::mem::take(&mut steps.verdicts) {
            if let Verdict::Found(draft) = &mut verdict {
                self.name(draft);
                self.ways_out.amend(draft, event.at);
                self.add_records(draft);
            }
            let findings = self.ledger.admit(verdict);
            outputs.extend(findings.into_iter().map(|finding| Output::Finding(Box::new(finding))));
        }
        let since = |known: Option<Monotonic>, now: bool| now.then(|| known.unwrap_or(event.at));
        self.firm_since = since(self.firm_since, self.ledger.all().any(rank::is_firm));
        self.settled_since = since(self.settled_since, self.ledger.all().any(rank::is_settled));
        let before = self.at_most_since;
        self.at_most_since = rank::at_most(self.ledger.all())
            .map(|id| before.filter(|before| before.0 == id).unwrap_or((id, event.at)));
        steps.ask(self.ways_out.ask(self.run.has_target(), event.at));
        if matches!(event.what, What::Counts(_) | What::Sample(_)) {
            steps.ask(self.ask_of_waits(event.at));
        }
        outputs.extend(steps.queries.into_iter().map(|query| Output::Query(Box::new(query))));
        if matches!(event.what, What::Counts(_)) {
            self.report_progress(event.at, &mut outputs);
        }
        outputs
    }

    /// Names the pod in question where only its UID is known, as in a log.
    fn name(&self, draft: &mut Draft) {
        let Some(asked) = self.run.pod.as_ref().filter(|pod| pod.name.is_some()) else { return };
        let is_its = |pod: &Pod| pod.uid == asked.uid && pod.name.is_none();
        if draft.target.pod.as_ref().is_some_and(is_its) {
            Arc::make_mut(&mut draft.target).pod = Some(asked.clone());
        }
    }

    /// The query about the waits of the pod in question, while a part of it is on the node.
    fn ask_of_waits(&mut self, now: Monotonic) -> Option<Query> {
        let (uid, sample) = (&self.run.pod.as_ref()?.uid, self.sample.as_ref()?);
        if !self.run.one_answer || !sample.may_have_pod(uid) {
            return None;
        }
        let said = self.said.of(std::iter::once(uid.as_str()));
        self.waits.ask(uid, sample, &said, now)
    }

    /// The effects of an operation on the shared state: an unmount attempt, or the end of an object.
    fn before_trackers(&mut self, op: &Operation, steps: &mut Steps) {
        if op.call == Call::Umount2 {
            self.unmounts.note(op);
        }
        let (target_id, at) = (op.target_id, op.end);
        if op.has(reason::ROOT_GONE) {
            self.gone.push(Gone { target_id, at, drains: DRAINS_TO_CLEAR });
        } else if op.has(reason::RECOVERED) {
            self.forget(target_id, Some(&op.path), at, steps);
            let path = Some(op.path.clone());
            steps.say([Verdict::Cleared { target_id, path, at }]);
        }
    }

    /// Passes an event to all trackers; an answer only to the one that asked.
    fn show(&mut self, event: &Event, steps: &mut Steps) {
        // Trackers need not distinguish operations that may not end, clear, explain or count.
        if let What::Operation(op) = &event.what
            && op.actor.is_stranger_to(&op.target)
        {
            return;
        }
        let asked = match &event.what {
            What::Answer { query, .. } => Some(query.tracker),
            _ => None,
        };
        let calendar = self.run.clock.at(event.at);
        for at in 0..self.trackers.len() {
            let (before, rest) = self.trackers.split_at_mut(at);
            let Some((tracker, after)) = rest.split_first_mut() else { return };
            if asked.is_some_and(|asked| asked != tracker.id()) {
                continue;
            }
            let context = Context {
                yields_of: causes::yields_of,
                now: event.at,
                begun: self.run.clock.started(),
                calendar,
                asked: self.run.pod.as_ref().map(|pod| pod.uid.as_str()),
                own_mnt_ns: self.run.own_mnt_ns,
                thresholds: self.run.thresholds,
                unmounts: &self.unmounts,
                kubelet_steps: &self.kubelet_steps,
                waits: &self.waits,
                clock: &self.run.clock,
                sample: self.sample.as_deref(),
                others: [before, after],
            };
            tracker.take(event, &context, steps);
        }
    }

    /// Makes all trackers forget an object, or a target, and report their final counts.
    fn forget(
        &mut self,
        target_id: u64,
        path: Option<&std::path::Path>,
        at: Monotonic,
        steps: &mut Steps,
    ) {
        let counts = self.trackers.iter().filter_map(|tracker| {
            let count = tracker.count(target_id)?;
            Some(Verdict::Counted { tracker: tracker.id(), target_id, count })
        });
        steps.say(counts);
        self.trackers.iter_mut().for_each(|tracker| tracker.forget(target_id, path, at, steps));
    }

    fn clear_gone(&mut self, now: Monotonic, steps: &mut Steps) {
        self.gone.iter_mut().for_each(|gone| gone.drains -= 1);
        let (over, waiting): (Vec<_>, Vec<_>) =
            self.gone.drain(..).partition(|gone| gone.drains == 0);
        self.gone = waiting;
        for Gone { target_id, at, .. } in over {
            self.forget(target_id, None, now, steps);
            steps.say([Verdict::Cleared { target_id, path: None, at }]);
        }
    }

    fn report_progress(&mut self, now: Monotonic, outputs: &mut Vec<Output>) {
        if now.since(self.progress_reported) < PROGRESS_EVERY {
            return;
        }
        self.progress_reported = now;
        let all = self.progress(now).into_iter();
        outputs.extend(all.map(|progress| Output::Progress(Box::new(progress))));
    }

    /// The parameters of the run.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Number of findings so far.
    pub fn found(&self) -> u64 {
        self.ledger.found()
    }

    /// Number of calls so far.
    pub fn calls(&self) -> u64 {
        self.aggregate.calls()
    }

    /// The current state of all findings.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.ledger.all()
    }

    /// The current counts.
    pub fn series(&self) -> SeriesTable {
        self.aggregate.table()
    }

    /// The counts of the node, which do not name targets.
    pub fn totals(&self) -> &Totals {
        self.aggregate.totals()
    }

    /// Continues the node's counts of processes before this one.
    pub fn inherit(&mut self, totals: Totals) {
        self.aggregate.inherit(totals);
    }

    /// The names of their targets.
    pub fn target_names(&self) -> NamesTable {
        self.aggregate.target_names()
    }

    /// Duration of the observation so far.
    pub fn window(&self) -> Duration {
        self.ended.unwrap_or(self.now).since(self.run.clock.started())
    }

    /// Data that may be missing.
    pub fn completeness(&self) -> Completeness {
        let trackers = self.trackers.iter().map(|tracker| tracker.dropped()).sum::<u64>();
        let known = self.unmounts.dropped() + self.kubelet_steps.dropped();
        let own = trackers + known + self.aggregate.dropped();
        let objects_dropped = self.completeness.objects_dropped + own;
        let (now, is_asked) = (self.ended.unwrap_or(self.now), self.run.one_answer);
        let waits = self.trackers.iter().flat_map(|tracker| tracker.waits(now, is_asked));
        let not_returned = waits.collect();
        let mut all = Completeness { objects_dropped, not_returned, ..self.completeness.clone() };
        all.degraded.extend(self.ledger.parts().iter().map(|part| part.sentence.clone()));
        all
    }

    /// The totals, losses and cost of the run.
    pub fn summary(&self) -> Summary {
        Summary {
            window_s: self.window().as_secs_f64(),
            calls: self.aggregate.calls(),
            by_outcome: self.aggregate.by_outcome(),
            completeness: self.completeness(),
            cost: self.cost.clone(),
        }
    }
}

/// Drops the end of a finding that is found again in the same step: the ledger replaces it if the cause differs.
fn forget_moments(verdicts: &mut Vec<Verdict>) {
    let mut found = BTreeSet::new();
    let mut kept: Vec<Verdict> = std::mem::take(verdicts);
    kept.reverse();
    kept.retain(|verdict| match verdict {
        Verdict::Found(draft) => {
            found.insert((draft.tracker, draft.target_id));
            true
        }
        Verdict::Over { tracker, target_id, .. } => !found.contains(&(*tracker, *target_id)),
        _ => true,
    });
    kept.reverse();
    *verdicts = kept;
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
