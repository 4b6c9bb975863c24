//! Deletions by the thousand: not stuck, but long, and nobody else tells how long.

use std::{collections::HashMap, time::Duration};

use super::{
    Case, Family, Needs, Verdict,
    mass_estimate::{Estimate, Look},
    mass_verdict::draft,
    storm::{STALLED, Storm, Where},
};
use crate::{
    aggregate::Delta,
    attribute::Attributor,
    model::{
        call::Call, finding::Progress, identity::Component, operation::Operation, path::JsonPath,
        time::Monotonic,
    },
    state::look::{Answer, LookError, Question, Remaining},
};

/// How often the remaining entries are counted.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Deletions followed at a time.
const STORMS: usize = 256;
/// All deletions that may become many.
#[derive(Default)]
pub(super) struct Mass {
    storms: HashMap<Where, Storm>,
}

fn place(target_id: u64, pid: u32) -> Where {
    if target_id == 0 { Where::Process(pid) } else { Where::Target(target_id) }
}

impl Mass {
    /// Remembers who and where; the numbers come with the ticks.
    pub(super) fn observe(&mut self, op: &Operation) {
        if op.call == Call::Umount2 || op.actor.component == Component::Workload {
            return;
        }
        let place = place(op.target_id, op.actor.pid);
        if self.storms.len() >= STORMS && !self.storms.contains_key(&place) {
            return;
        }
        let storm = self.storms.entry(place).or_insert_with(|| Storm::new(op.end));
        storm.note(op);
    }

    pub(super) fn tick(
        &mut self,
        now: Monotonic,
        deltas: &[Delta],
        names: &Attributor,
    ) -> Vec<Case> {
        for delta in deltas {
            if let Some(storm) = self.storms.get_mut(&place(delta.target_id, delta.pid)) {
                storm.count(delta, now);
            }
        }
        self.storms.retain(|place, storm| {
            // One that is quiet has finished; of a target that lost many, the end is still looked for.
            !storm.stalled(now) || matches!(place, Where::Target(_)) && storm.matters(*place, now)
        });
        for (place, storm) in &mut self.storms {
            if let (Where::Target(id), Some(op)) = (place, &mut storm.op)
                && let Some(target) = names.target(*id)
            {
                op.target = target.clone();
            }
        }
        self.storms.iter_mut().filter_map(|(place, storm)| ask(*place, storm, now)).collect()
    }

    /// Takes the helper's answer into the estimate. A deletion that is quiet because nothing is
    /// left is over, also when nobody saw its root go: `--path` may name a directory inside it.
    pub(super) fn learn(
        &mut self,
        case: &Case,
        answer: Result<Answer, LookError>,
        now: Monotonic,
    ) -> Option<Verdict> {
        let Needs::Look(Question::Remaining { pid, .. }) = &case.needs else { return None };
        let place = place(case.target_id, *pid);
        let storm = self.storms.get_mut(&place)?;
        let gone = matches!(answer, Err(LookError::Refused(_)));
        let empty =
            matches!(answer, Ok(Answer::Remaining(Remaining { seen: 0, complete: true, .. })));
        if storm.stalled(now) && (gone || empty) {
            self.storms.remove(&place);
            let target_id = if case.target_id == 0 { u64::from(*pid) } else { case.target_id };
            let path = Some(case.path.clone());
            // An empty directory that stays is no longer a matter of many entries, but it may be
            // busy: that finding is not cleared.
            return gone.then_some(Verdict::Cleared { target_id, path, at: now });
        }
        storm.incomplete = storm.stalled(now);
        storm.look = Look::new(answer, storm.deleted()).or(storm.look.take());
        None
    }

    pub(super) fn progress(&self, now: Monotonic) -> Vec<Progress> {
        let moving = |place: Where, storm: &Storm| storm.matters(place, now) && !storm.stalled(now);
        let running = self.storms.iter().filter(|(place, storm)| moving(**place, storm));
        running
            .filter_map(|(_, storm)| {
                let rate = storm.rate(now);
                let estimate = Estimate::of(storm.look.as_ref(), storm.deleted(), rate);
                Some(Progress {
                    path: JsonPath(storm.root()?),
                    pod: storm.op.as_ref()?.target.pod.clone(),
                    deleted: storm.deleted(),
                    directories: storm.directories,
                    rate_per_s: rate,
                    remaining_estimate: estimate.remaining,
                    remaining_range: estimate.remaining_range,
                    eta_s: estimate.eta_s,
                    eta_range_s: estimate.eta_range_s,
                })
            })
            .collect()
    }

    pub(super) fn verdicts(&self, now: Monotonic) -> Vec<Verdict> {
        let running = self.storms.iter().filter(|(place, storm)| storm.matters(**place, now));
        running.filter_map(|(_, storm)| draft(storm, now)).map(Verdict::Found).collect()
    }

    /// Entries deleted of a target.
    pub(super) fn count(&self, target_id: u64) -> Option<u64> {
        self.storms.get(&Where::Target(target_id)).map(Storm::deleted)
    }

    /// Forgets a target.
    pub(super) fn forget(&mut self, target_id: u64) {
        self.storms.remove(&Where::Target(target_id));
    }
}

/// Asks how much is left, now and then.
fn ask(place: Where, storm: &mut Storm, now: Monotonic) -> Option<Case> {
    let due = storm.asked.is_none_or(|asked| {
        let before_it_stalled = storm.stalled(now) && asked.since(storm.last) <= STALLED;
        before_it_stalled || now.since(asked) >= LOOK_EVERY
    });
    if !due || !storm.matters(place, now) {
        return None;
    }
    let directory = storm.root()?;
    storm.asked = Some(now);
    let op = storm.op.as_ref()?;
    let question =
        Question::Remaining { pid: op.actor.pid, directory: directory.clone().into_os_string() };
    Some(Case {
        family: Family::Mass,
        target_id: op.target_id,
        path: directory,
        needs: Needs::Look(question),
    })
}
