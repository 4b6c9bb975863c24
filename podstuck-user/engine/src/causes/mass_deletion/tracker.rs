//! Tracks deletions of very many entries, which are not stuck but slow, and estimates how long they take.

use std::{path::Path, time::Duration};

use crate::{
    bounded::Bounded,
    causes::mass_deletion::{
        estimate::Estimate,
        run::{Run, STALLED, Where},
        verdict::{draft, holds_up_others},
    },
    event::{Count, Event, What},
    model::{
        call::Call, finding::Progress, identity::Component, operation::Operation, path::JsonPath,
        remaining::Remaining, time::Monotonic,
    },
    query::{CountRemaining, FindClients, NoAnswer, Query, Question},
    tracker::{Context, Steps, Tracker, TrackerId},
    verdict::Verdict,
};

/// How often the remaining entries are counted.
pub(super) const COUNT_EVERY: Duration = Duration::from_secs(30);
/// How often a sample is taken; each one makes the estimate more certain.
pub(super) const SAMPLE_EVERY: Duration = Duration::from_secs(10);
/// Deletions followed at a time.
const RUNS: usize = 256;

/// Deletions that may reach the threshold.
#[derive(Default)]
pub(crate) struct BulkDeletes {
    pub(super) runs: Bounded<Where, Run, RUNS>,
}

pub(super) fn place(target_id: u64, pid: u32) -> Where {
    if target_id == 0 { Where::Process(pid) } else { Where::Target(target_id) }
}

impl BulkDeletes {
    /// Records process and place; the numbers come with the counts.
    fn observe(&mut self, op: &Operation, steps: &mut Steps) {
        if op.call == Call::Umount2 || op.actor.component == Component::Workload {
            return;
        }
        let place = place(op.target_id, op.actor.pid);
        // The process id was reused by a process that has deleted nothing yet.
        let of_another = |run: &Run| {
            run.op.as_ref().is_some_and(|before| before.actor.started != op.actor.started)
        };
        if let Where::Process(pid) = place
            && self.runs.get(&place).is_some_and(of_another)
        {
            self.runs.remove(&place);
            let (tracker, target_id) = (self.id(), u64::from(pid));
            steps.say([Verdict::Over { tracker, target_id, at: op.end }]);
        }
        self.runs.or_insert_with(place, || Run::new(op.end)).note(op);
    }

    fn counted(&mut self, now: Monotonic, counts: &[Count], steps: &mut Steps) {
        for count in counts.iter().filter(|count| count.component != Component::Workload) {
            let place = place(count.target_id, count.pid);
            if let Some(run) = self.runs.get_mut(&place)
                && run.is_of(place, count)
            {
                run.count(count, now);
            }
        }
        self.runs.retain(|place, run| {
            // A quiet deletion has finished; on a target that lost many entries, its end is still to be confirmed.
            !run.stalled(now) || matches!(place, Where::Target(_)) && run.matters(*place, now)
        });
        let tracker = self.id();
        let many = self.runs.iter().filter(|(place, run)| run.matters(**place, now)).count();
        for (place, run) in self.runs.iter_mut() {
            steps.ask(ask(tracker, *place, run, many, now));
        }
        let running = self.runs.iter().filter(|(place, run)| run.matters(**place, now));
        steps.found(running.filter_map(|(_, run)| draft(run, now)));
    }

    /// Adds an answer to the estimate. A quiet deletion with nothing left is over, also if the removal of its root was
    /// not seen: `--path` may name a directory inside it.
    fn learn(
        &mut self,
        query: &Query,
        pid: u32,
        answer: &Result<Remaining, NoAnswer>,
        now: Monotonic,
        steps: &mut Steps,
    ) {
        let place = place(query.target_id, pid);
        let Some(run) = self.runs.get_mut(&place) else { return };
        // A directory that could not be read does not count as gone.
        let gone = matches!(answer, Ok(Remaining { gone: true, .. }));
        let empty = matches!(answer, Ok(Remaining { seen: 0, complete: true, .. }));
        if run.stalled(now) && (gone || empty) {
            self.runs.remove(&place);
            let target_id = if query.target_id == 0 { u64::from(pid) } else { query.target_id };
            let path = Some(query.path.clone());
            // An empty directory that stays may still be busy: that finding is not cleared.
            return steps.say(gone.then_some(Verdict::Cleared { target_id, path, at: now }));
        }
        run.incomplete = run.stalled(now);
        if let Ok(left) = answer.as_ref()
            && !gone
        {
            run.looks.add(*left, run.deleted_at_look(now));
        }
    }
}

impl Tracker for BulkDeletes {
    fn id(&self) -> TrackerId {
        TrackerId::BulkDelete
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Operation(op) => self.observe(op, steps),
            What::Counts(counts) => self.counted(context.now, counts, steps),
            What::Named { target_id, target } => {
                // The path in the first record may have been truncated.
                if let Some(run) = self.runs.get_mut(&Where::Target(*target_id))
                    && let Some(op) = &mut run.op
                {
                    op.target = target.clone();
                }
            }
            What::Answer { query, answer } => {
                if let Some((asked, left)) = CountRemaining::answered(query, answer) {
                    self.learn(query, asked.pid, left, context.now, steps);
                }
                if let Some((_, Ok(clients))) = FindClients::answered(query, answer)
                    && let Some(run) = self.runs.get_mut(&Where::Target(query.target_id))
                {
                    run.clients = Some((clients.clone(), context.now));
                }
            }
            _ => {}
        }
    }

    fn forget(&mut self, target_id: u64, path: Option<&Path>, _: Monotonic, _: &mut Steps) {
        if path.is_none() {
            self.runs.remove(&Where::Target(target_id));
        }
    }

    /// Entries deleted in the target.
    fn count(&self, target_id: u64) -> Option<u64> {
        self.runs.get(&Where::Target(target_id)).map(Run::deleted)
    }

    fn dropped(&self) -> u64 {
        self.runs.dropped()
    }

    fn progress(&self, now: Monotonic) -> Vec<Progress> {
        let moving = |place: Where, run: &Run| run.matters(place, now) && !run.stalled(now);
        let running = self.runs.iter().filter(|(place, run)| moving(**place, run));
        running.filter_map(|(_, run)| progress(run, now)).collect()
    }
}

fn progress(run: &Run, now: Monotonic) -> Option<Progress> {
    let rate = run.rate(now);
    let estimate = Estimate::of(&run.looks, run.deleted(), run.rates(now));
    Some(Progress {
        path: JsonPath(run.root()?),
        pod: run.op.as_ref()?.target.pod.clone(),
        deleted: run.deleted(),
        directories: run.directories,
        rate_per_s: rate,
        remaining_estimate: estimate.remaining,
        remaining_range: estimate.remaining_range,
        eta_s: estimate.eta_s,
        eta_range_s: estimate.eta_range_s,
    })
}

/// Interval between two counts of one deletion if `many` are followed: all of them together may not take more CPU than
/// one does.
pub(super) fn pause(is_rough: bool, many: usize) -> Duration {
    let one = if is_rough { SAMPLE_EVERY } else { COUNT_EVERY };
    one * many.clamp(1, RUNS) as u32
}

/// Asks how much is left, at intervals.
fn ask(tracker: TrackerId, place: Where, run: &mut Run, many: usize, now: Monotonic) -> Vec<Query> {
    let due = run.asked.is_none_or(|asked| {
        let before_it_stalled = run.stalled(now) && asked.since(run.last) <= STALLED;
        before_it_stalled || now.since(asked) >= pause(run.looks.is_rough(), many)
    });
    let (true, Some(path), Some(op)) = (due && run.matters(place, now), run.root(), &run.op) else {
        return Vec::new();
    };
    run.asked = Some(now);
    let pid = op.actor.pid;
    let mut wants = vec![CountRemaining { pid, directory: path.clone() }.into()];
    // dockerd holds a lock meanwhile that its clients wait for.
    if holds_up_others(op) {
        wants.push(FindClients { pid }.into());
    }
    let query = |wants| Query { tracker, target_id: op.target_id, path: path.clone(), wants };
    wants.into_iter().map(query).collect()
}
