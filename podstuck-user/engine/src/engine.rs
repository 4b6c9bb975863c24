//! The engine: events in, findings and questions out.

mod answer;
mod deleted;
mod presence;
mod records;
mod ways_out;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use podstuck_common::record::reason;

use crate::{
    aggregate::Aggregate,
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
        node::NodeSample,
        node_record::NodeRecord,
        operation::Operation,
        pod_record::PodRecord,
        series::{NamesTable, SeriesTable},
        summary::{Completeness, SelfCost, Summary},
        time::Monotonic,
    },
    query::{FollowWaits, Query, Question},
    rank,
    said::SaidOfPods,
    tracker::{Context, Steps, Tracker, TrackerId},
    unmounts::Unmounts,
    verdict::Verdict,
    waits::Waits,
};

/// How often the progress of a bulk deletion is told.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// Drains between the end of a target and its findings': the counts of its last calls come with the
/// drain after the next.
const DRAINS_TO_CLEAR: u8 = 2;
/// What comes out at an event.
#[derive(Clone, Debug)]
pub enum Output {
    /// To be told: a finding that is new, changed or over.
    Finding(Box<Finding>),
    /// To be told: a call that does not return, or has at last.
    Hung(Box<Hung>),
    /// To be told: how far a bulk deletion is.
    Progress(Box<Progress>),
    /// To be told: the pod in question has gone from this node.
    Gone(Box<diagnosis::Gone>),
    /// To be asked: the answer is an event.
    Query(Box<Query>),
}

/// A target whose root was removed.
struct Gone {
    target_id: u64,
    at: Monotonic,
    drains: u8,
}

/// Everything that a run knows.
pub struct Engine {
    run: Run,
    trackers: Vec<Box<dyn Tracker>>,
    unmounts: Unmounts,
    aggregate: Aggregate,
    ledger: Ledger,
    said: SaidOfPods,
    gone: Vec<Gone>,
    /// What the API server said of this node, or of several on this machine.
    nodes: Vec<NodeRecord>,
    /// What it said of the pod that was asked about.
    record: Option<PodRecord>,
    /// A look found a directory of that pod: what its record said may be over by now.
    record_is_old: bool,
    deletions: deleted::ToGo,
    /// How far kubelet has come with each of them.
    kubelet_steps: KubeletSteps,
    presence: presence::Presence,
    ways_out: ways_out::WaysOut,
    waits: Waits,
    sample: Option<Arc<NodeSample>>,
    progress_told: Monotonic,
    firm_since: Option<Monotonic>,
    settled_since: Option<Monotonic>,
    /// The time of the last event, which is now.
    now: Monotonic,
    ended: Option<Monotonic>,
    completeness: Completeness,
    cost: SelfCost,
}

impl Engine {
    /// Has seen nothing yet.
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
            progress_told: begun,
            firm_since: None,
            settled_since: None,
            now: begun,
            ended: None,
            completeness: Completeness::default(),
            cost: SelfCost::default(),
            run,
        }
    }

    /// For what was recorded: nobody acts on it.
    #[must_use]
    pub fn of_replay(mut self) -> Self {
        self.ledger.is_replay = true;
        self
    }

    /// For a node without `xargs` or `sh`: names that no shell takes as a word are in no command.
    #[must_use]
    pub fn without_xargs(mut self) -> Self {
        self.ledger.has_xargs = false;
        self
    }

    /// Takes an event; what comes out of it.
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
                let told = self.ledger.degraded(parts, event.at);
                outputs.extend(told.into_iter().map(|finding| Output::Finding(Box::new(finding))));
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
            What::Told(_) | What::Heard(_) => {}
        }
        if matches!(event.what, What::Counts(_) | What::Sample(_)) {
            steps.found(self.ways_out.late(event.at, &self.ledger));
        }
        self.show(event, &mut steps);
        if matches!(event.what, What::Counts(_)) {
            self.clear_gone(event.at, &mut steps);
        }
        // What failed an hour ago may have been cured since. Told of it, the tool looks; where a look does
        // not show a cause, there is nothing to admit.
        steps.verdicts.retain(|verdict| match verdict {
            Verdict::Found(draft) => !(draft.is_told && draft.cause.is_admission()),
            _ => true,
        });
        forget_moments(&mut steps.verdicts);
        for mut verdict in std::mem::take(&mut steps.verdicts) {
            if let Verdict::Found(draft) = &mut verdict {
                self.ways_out.amend(draft, event.at);
                self.add_records(draft);
            }
            let told = self.ledger.admit(verdict);
            outputs.extend(told.into_iter().map(|finding| Output::Finding(Box::new(finding))));
        }
        let since = |known: Option<Monotonic>, now: bool| now.then(|| known.unwrap_or(event.at));
        self.firm_since = since(self.firm_since, self.ledger.all().any(rank::is_firm));
        self.settled_since = since(self.settled_since, self.ledger.all().any(rank::is_settled));
        steps.ask(self.ways_out.ask(self.run.has_target(), event.at));
        if matches!(event.what, What::Counts(_) | What::Sample(_)) {
            steps.ask(self.ask_of_waits(event.at));
        }
        outputs.extend(steps.queries.into_iter().map(|query| Output::Query(Box::new(query))));
        if matches!(event.what, What::Counts(_)) {
            self.tell_progress(event.at, &mut outputs);
        }
        outputs
    }

    /// Of the pod in question, while something of it is here.
    fn ask_of_waits(&mut self, now: Monotonic) -> Option<Query> {
        let (uid, sample) = (&self.run.pod.as_ref()?.uid, self.sample.as_ref()?);
        if !self.run.one_answer || !sample.may_have_pod(uid) {
            return None;
        }
        let said = self.said.of(std::iter::once(uid.as_str()));
        self.waits.ask(uid, sample, &said, now)
    }

    /// What an operation means to all trackers: an unmount was tried, or something is over.
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

    /// Shows an event to all trackers; an answer only to the one that asked.
    fn show(&mut self, event: &Event, steps: &mut Steps) {
        // What it may not end, clear, explain or count, no tracker is to tell apart.
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

    /// Has all trackers forget an object, or a target, and say how often it happened in the end.
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

    fn tell_progress(&mut self, now: Monotonic, outputs: &mut Vec<Output>) {
        if now.since(self.progress_told) < PROGRESS_EVERY {
            return;
        }
        self.progress_told = now;
        let all = self.progress(now).into_iter();
        outputs.extend(all.map(|progress| Output::Progress(Box::new(progress))));
    }

    /// What the run is.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// How many findings there were.
    pub fn found(&self) -> u64 {
        self.ledger.found()
    }

    /// How many calls there were.
    pub fn calls(&self) -> u64 {
        self.aggregate.calls()
    }

    /// All findings as they stand.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.ledger.all()
    }

    /// All counts as they stand.
    pub fn series(&self) -> SeriesTable {
        self.aggregate.table()
    }

    /// What is known of their targets.
    pub fn target_names(&self) -> NamesTable {
        self.aggregate.target_names()
    }

    /// How long it has watched.
    pub fn window(&self) -> Duration {
        self.ended.unwrap_or(self.now).since(self.run.clock.started())
    }

    /// What may be missing.
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

    /// What the run saw, lost and cost.
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

/// What ends and is found again in one step has not ended: the ledger replaces it where the cause differs.
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
