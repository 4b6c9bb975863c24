//! One run: records and counts in, findings out.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use podstuck_common::record::{call, loss};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use super::{facts::Clerk, reporter::Reporter, stuck::Scope};
use crate::{
    aggregate::Aggregate,
    attribute::Attributor,
    decode::decode,
    detect::{Case, Detectors, Facts, Patience, Verdict, ledger::Ledger, rank},
    export::Shot,
    identity::component_for,
    kernel::attach::{Attached, by_reason},
    model::{
        identity::{Component, Target},
        summary::Completeness,
        time::{Clock, Monotonic},
    },
    source::{losses::Losses, tables::Drained},
    state::{
        sample::{Looks, NodeSample},
        stuck::{News, Stuck},
    },
};

/// How often the progress of a mass deletion is told.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// What a run waits for beside the probes.
pub(super) enum Event {
    /// About a case.
    Facts(Case, Facts),
    /// Of a thread that is stuck, or no longer is.
    News(News),
}

/// Everything that a run knows.
pub(super) struct Session {
    clock: Clock,
    begun: Instant,
    ended: Option<Instant>,
    pub(super) names: Attributor,
    pub(super) aggregate: Aggregate,
    pub(super) detectors: Detectors,
    pub(super) ledger: Ledger,
    clerk: Clerk,
    answers: UnboundedReceiver<(Case, Facts)>,
    pub(super) reporter: Reporter,
    pub(super) stuck: Stuck,
    pub(super) scope: Scope,
    told_progress: Instant,
    pub(super) firm_since: Option<Instant>,
    pub(super) sample: Option<Arc<NodeSample>>,
    looks: Looks,
    undecodable: u64,
    pub(super) unknown: Arc<Target>,
}

impl Session {
    /// Begins with names and an empty memory.
    pub(super) fn new(
        names: Attributor,
        reporter: Reporter,
        patience: Patience,
        stuck: Stuck,
        scope: Scope,
    ) -> Self {
        let clock = Clock::start();
        let (sender, answers) = mpsc::unbounded_channel();
        Self {
            clock,
            begun: Instant::now(),
            ended: None,
            names,
            aggregate: Aggregate::default(),
            detectors: Detectors::new(patience),
            ledger: Ledger::new(clock),
            clerk: Clerk::new(sender),
            answers,
            reporter,
            stuck,
            scope,
            told_progress: Instant::now(),
            firm_since: None,
            sample: None,
            looks: Looks::start(Instant::now()),
            undecodable: 0,
            unknown: Arc::new(Target::unknown()),
        }
    }

    /// Prints and exports.
    pub(super) fn reporter(&self) -> &Reporter {
        &self.reporter
    }

    /// Ends the window: what follows only takes in what was seen in it.
    pub(super) fn end(&mut self) {
        self.ended = Some(Instant::now());
    }

    /// How long it has watched, the same for all who ask after the end.
    pub(super) fn window(&self) -> Duration {
        self.ended.unwrap_or_else(Instant::now) - self.begun
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
            let record = match decode(bytes) {
                Ok(record) => record,
                Err(error) => {
                    tracing::warn!("{error}");
                    self.undecodable += 1;
                    continue;
                }
            };
            match record.head.call {
                call::RENAME => {
                    self.names.renamed(&record);
                    continue;
                }
                call::EXEC => {
                    self.executed(&record.head);
                    continue;
                }
                _ => {}
            }
            let Some(op) = self.names.operation(&record) else {
                self.undecodable += 1;
                continue;
            };
            self.was_stuck(&op, &record.head);
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

    /// Waits for facts about a case, or for news of stuck threads. Safe to cancel.
    pub(super) async fn event(&mut self) -> Event {
        tokio::select! {
            Some((case, facts)) = self.answers.recv() => Event::Facts(case, facts),
            news = self.stuck.next() => Event::News(news),
        }
    }

    /// Takes what was waited for.
    pub(super) fn take(&mut self, event: Event) {
        match event {
            Event::Facts(case, facts) => self.conclude(&case, facts),
            Event::News(news) => self.news(news),
        }
    }

    fn conclude(&mut self, case: &Case, mut facts: Facts) {
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
        self.under_way(drained);
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

    /// Takes a look at the node.
    pub(super) fn sampled(&mut self, sample: Arc<NodeSample>) {
        self.looks.came(Instant::now(), sample.rest);
        let (cases, verdicts) = self.detectors.sampled(&sample, &mut self.names);
        self.sample = Some(sample);
        verdicts.into_iter().for_each(|verdict| self.tell(verdict));
        cases.into_iter().for_each(|case| self.clerk.ask(case));
    }

    pub(super) fn tell(&mut self, verdict: Verdict) {
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
            looks_late_s: self.looks.late_s(self.ended.unwrap_or_else(Instant::now)),
            unresolved: losses.of(loss::PATH_CUT) + losses.of(loss::PATH_UNREADABLE),
            probes_missing: by_reason(&attached.missing),
        }
    }

    /// Has the exported files renewed, if any were asked for. Waits only at the end, and not for
    /// long.
    pub(super) fn export(&self, completeness: Completeness, end: bool) {
        let shot = || Shot {
            series: self.aggregate.table(&self.names),
            findings: self.ledger.all().cloned().collect(),
            completeness,
            window: self.window(),
            start: self.clock.at(self.clock.started()),
        };
        if end { self.reporter.last_export(shot) } else { self.reporter.export(shot) }
    }
}
