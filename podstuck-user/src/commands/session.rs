//! One run: records and counts in, findings out.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use bytes::Bytes;
use jiff::Timestamp;
use podstuck_common::record::{call, loss, reason};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use super::{facts::Clerk, reporter::Reporter};
use crate::{
    aggregate::Aggregate,
    attribute::Attributor,
    decode::decode,
    detect::{
        Case, Detectors, Facts, Patience, Verdict,
        ledger::Ledger,
        rank,
        record::{self, Here},
        stage,
    },
    export::Snapshot,
    identity::{component_for, pod_record::PodRecord},
    kernel::{
        attach::{Attached, by_reason},
        facts,
    },
    model::{
        diagnosis::PodStage,
        finding::Finding,
        identity::{Component, Pod, Target},
        summary::Completeness,
        time::{Clock, Monotonic},
    },
    source::{losses::Losses, tables::Drained},
    state::sample::NodeSample,
};

/// A firm verdict may still be followed by a better one, from the same attempt.
const SETTLED: Duration = Duration::from_secs(2);
/// How often the progress of a mass deletion is told.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Everything that a run knows.
pub(super) struct Session {
    clock: Clock,
    begun: Instant,
    names: Attributor,
    aggregate: Aggregate,
    detectors: Detectors,
    ledger: Ledger,
    clerk: Clerk,
    answers: UnboundedReceiver<(Case, Facts)>,
    reporter: Reporter,
    told_progress: Instant,
    firm_since: Option<Instant>,
    sample: Option<Arc<NodeSample>>,
    undecodable: u64,
    unknown: Arc<Target>,
}

impl Session {
    /// Begins with names and an empty memory.
    pub(super) fn new(names: Attributor, reporter: Reporter, patience: Patience) -> Self {
        let clock = Clock::start();
        let (sender, answers) = mpsc::unbounded_channel();
        Self {
            clock,
            begun: Instant::now(),
            names,
            aggregate: Aggregate::default(),
            detectors: Detectors::new(patience),
            ledger: Ledger::new(clock),
            clerk: Clerk::new(sender),
            answers,
            reporter,
            told_progress: Instant::now(),
            firm_since: None,
            sample: None,
            undecodable: 0,
            unknown: Arc::new(Target::unknown()),
        }
    }

    /// Prints and exports.
    pub(super) fn reporter(&self) -> &Reporter {
        &self.reporter
    }

    /// How long it has watched.
    pub(super) fn window(&self) -> Duration {
        self.begun.elapsed()
    }

    /// How many findings there were.
    pub(super) fn found(&self) -> u64 {
        self.ledger.found()
    }

    /// What was counted so far.
    pub(super) fn aggregate(&self) -> &Aggregate {
        &self.aggregate
    }

    /// Takes records of the ring.
    pub(super) fn records(&mut self, records: &[Bytes]) {
        for bytes in records {
            let op = match decode(bytes) {
                Ok(record) if record.head.call == call::RENAME => {
                    self.names.renamed(&record);
                    continue;
                }
                Ok(record) => self.names.operation(&record),
                Err(error) => {
                    tracing::warn!("{error}");
                    None
                }
            };
            let Some(op) = op else {
                self.undecodable += 1;
                continue;
            };
            if op.has(reason::SLOW) {
                let path = crate::model::path::safe_path(&op.path);
                tracing::info!("{} {path} took {:?}", op.call.name(), op.duration);
            }
            tracing::debug!(
                "{} {} {} by {} ({}), reasons {:#x}",
                op.call.name(),
                crate::model::path::safe_path(&op.path),
                op.outcome.name(),
                op.actor.comm,
                op.actor.pid,
                op.reason
            );
            let (cases, verdicts) = self.detectors.observe(&op);
            verdicts.into_iter().for_each(|verdict| self.tell(verdict));
            cases.into_iter().for_each(|case| self.clerk.ask(case));
        }
    }

    /// Waits for facts about a case.
    pub(super) async fn answer(&mut self) -> Option<(Case, Facts)> {
        self.answers.recv().await
    }

    /// Decides a case.
    pub(super) fn conclude(&mut self, case: &Case, mut facts: Facts) {
        if let Facts::Holders(Ok(taken)) = &mut facts {
            for holder in &mut taken.holders {
                holder.pod = holder.pod.take().map(|pod| self.names.pod(pod));
            }
        }
        for verdict in self.detectors.conclude(case, facts) {
            self.tell(verdict);
        }
    }

    /// Takes drained counts, once a second.
    pub(super) fn tick(&mut self, drained: &Drained) {
        let Self { names, aggregate, unknown, .. } = self;
        let deltas = aggregate.add(&drained.counts, |pid, target_id| {
            let Some(seen) = drained.actors.get(&pid) else { return Component::Other };
            let actor = names.actor(pid, seen);
            component_for(&actor, names.target(target_id).unwrap_or(unknown))
        });
        let now = Monotonic::now();
        let cases = self.detectors.tick(now, &deltas, &self.names);
        cases.into_iter().for_each(|case| self.clerk.ask(case));
        for verdict in self.detectors.tick_verdicts(now) {
            self.tell(verdict);
        }
        if self.told_progress.elapsed() >= PROGRESS_EVERY {
            self.told_progress = Instant::now();
            for progress in self.detectors.progress(now) {
                self.reporter.progress(&progress);
            }
        }
        let (calls, found) = (self.aggregate.calls(), self.ledger.found());
        self.reporter.live(format!("{calls} calls, {found} findings"));
    }

    /// Whether there is an answer, and it had time to become a better one.
    pub(super) fn is_firm(&self) -> bool {
        self.firm_since.is_some_and(|since| since.elapsed() >= SETTLED)
    }

    /// Answers why the target is stuck.
    pub(super) fn diagnose(
        &mut self,
        target: Option<&str>,
        pod: Option<&Pod>,
        record: Option<&PodRecord>,
    ) {
        let stages = self.stages(pod);
        if let Some(record) = record {
            let here = Here {
                node: &facts::node_name(),
                stage: stages.first().map(|stage| stage.stage),
                now: Timestamp::now(),
                at: Monotonic::now(),
            };
            if let Some(draft) = record::verdict(record, here) {
                self.tell(Verdict::Found(Box::new(draft)));
            }
        }
        let window_s = self.window().as_secs_f64();
        let answer = rank::diagnosis(target, stages, window_s, self.ledger.all());
        self.reporter.diagnosis(&answer);
    }

    /// How far the pod in question has come, or those that something was found of.
    fn stages(&self, pod: Option<&Pod>) -> Vec<PodStage> {
        // Before the first look, nothing is known.
        let Some(sample) = &self.sample else { return Vec::new() };
        let mut pods: Vec<&Pod> = match pod {
            Some(pod) => vec![pod],
            None => self.ledger.all().filter_map(|finding| finding.pod.as_ref()).collect(),
        };
        pods.sort();
        pods.dedup();
        let state = |pod: &Pod| sample.pods.iter().find(|state| state.uid == pod.uid);
        pods.into_iter().map(|pod| stage::stage(pod, state(pod))).collect()
    }

    /// Takes a look at the node.
    pub(super) fn sampled(&mut self, sample: Arc<NodeSample>) {
        let (cases, verdicts) = self.detectors.sampled(&sample, &mut self.names);
        self.sample = Some(sample);
        verdicts.into_iter().for_each(|verdict| self.tell(verdict));
        cases.into_iter().for_each(|case| self.clerk.ask(case));
    }

    fn tell(&mut self, verdict: Verdict) {
        for finding in self.ledger.admit(verdict) {
            self.reporter.finding(&finding);
        }
        let firm = self.ledger.all().any(rank::is_firm);
        self.firm_since = firm.then(|| self.firm_since.unwrap_or_else(Instant::now));
    }

    /// Gets the facts that are still asked for, for a limited time.
    pub(super) async fn settle(&mut self, limit: Duration) {
        let end = tokio::time::Instant::now() + limit;
        while self.clerk.open() > 0 {
            let Ok(Some((case, facts))) = tokio::time::timeout_at(end, self.answers.recv()).await
            else {
                return;
            };
            self.conclude(&case, facts);
        }
        while let Ok((case, facts)) = self.answers.try_recv() {
            self.conclude(&case, facts);
        }
    }

    /// What may be missing, from the probes' own counters.
    pub(super) fn completeness(
        &self,
        losses: &Losses,
        abandoned: u64,
        skipped: u64,
        attached: &Attached,
    ) -> Completeness {
        Completeness {
            events_lost: losses.of(loss::RING_FULL) + self.undecodable,
            events_limited: losses.of(loss::RATE_LIMITED),
            unmatched_exits: losses.of(loss::UNMATCHED_EXIT) + abandoned,
            map_full: losses.of(loss::COUNTS_FULL) + losses.of(loss::IN_FLIGHT_FULL),
            // The same miss, seen by the kernel where it counts them, and by the thread's next call.
            probes_skipped: skipped.max(losses.of(loss::OVERWRITTEN)),
            io_uring_deletions: losses.of(loss::IO_URING),
            unresolved: losses.of(loss::PATH_CUT) + losses.of(loss::PATH_UNREADABLE),
            probes_missing: by_reason(&attached.missing),
        }
    }

    /// Writes the exported files, if any were asked for.
    pub(super) fn export(&self, completeness: &Completeness) -> Result<()> {
        let Some(exporter) = self.reporter.exporter() else { return Ok(()) };
        let findings: Vec<Finding> = self.ledger.all().cloned().collect();
        let snapshot = Snapshot {
            series: &self.aggregate.table(&self.names),
            findings: &findings,
            completeness,
            window: self.window(),
            start: self.clock.at(self.clock.started()),
        };
        Ok(exporter.write(&snapshot)?)
    }
}
