//! From operations and counts to named causes. A detector collects what it was shown; when it has
//! a case it asks for facts (`Needs`), and decides from both. It reads nothing itself.

pub mod backoff;
mod busy;
mod busy_umount;
mod busy_verdict;
mod case;
mod command;
mod crossing;
mod dead;
mod draft;
mod errno;
mod errno_verdict;
mod holder_words;
mod hung;
mod hung_draft;
mod hung_verdict;
mod leaked;
pub mod ledger;
mod leftover;
mod leftover_verdict;
mod mass;
mod mass_estimate;
mod mass_verdict;
mod orphan;
mod permission;
pub mod rank;
pub mod record;
mod space;
pub mod stage;
mod storm;
mod survivor;
mod survivor_verdict;
mod umounts;
mod untried;
mod untried_verdict;
mod untried_words;
mod wait;

pub use case::{Case, Facts, Needs, Patience, Verdict};
pub use draft::{Draft, Family};
pub use hung::Sighted;

use crate::{
    aggregate::Delta,
    attribute::Attributor,
    model::{
        call::Call,
        finding::Progress,
        identity::{Component, TargetKind},
        operation::Operation,
        time::Monotonic,
    },
    state::sample::NodeSample,
};
use busy::Busy;
use crossing::Crossing;
use dead::Dead;
use errno::Errnos;
use hung::Hung;
use leaked::Leaked;
use leftover::Leftover;
use mass::Mass;
use orphan::Orphans;
use permission::Permission;
use podstuck_common::record::reason;
use space::Spaces;
use survivor::Survivor;
use untried::Untried;

/// Ticks between the end of a target and its findings': the counts of its last calls come with the
/// drain after the next.
const TICKS_TO_CLEAR: u8 = 2;

/// A target whose root was removed.
struct Gone {
    target_id: u64,
    at: Monotonic,
    ticks: u8,
}

/// All detectors.
#[derive(Default)]
pub struct Detectors {
    patience: Patience,
    gone: Vec<Gone>,
    busy: Busy,
    permission: Permission,
    crossing: Crossing,
    leaked: Leaked,
    mass: Mass,
    untried: Untried,
    orphans: Orphans,
    leftover: Leftover,
    survivor: Survivor,
    errnos: Errnos,
    spaces: Spaces,
    hung: Hung,
    dead: Dead,
}

impl Detectors {
    /// Detectors that have seen nothing yet.
    pub fn new(patience: Patience) -> Self {
        Self { patience, ..Self::default() }
    }

    /// Shows how the node looks now.
    pub fn sampled(
        &mut self,
        sample: &NodeSample,
        names: &mut Attributor,
    ) -> (Vec<Case>, Vec<Verdict>) {
        let Self { busy, leftover, orphans, hung, dead, .. } = self;
        let others = untried::Others {
            umounts: &busy.umounts,
            explain: &|target| {
                let fails = busy.count(target).is_some() || leftover.explains(target);
                fails || hung.is_stuck(target) || dead.is_found(target)
            },
            is_orphan: &|uid| orphans.is_at(uid, sample.at),
        };
        let mut verdicts = self.untried.sampled(sample, self.patience, names, &others);
        verdicts.extend(self.orphans.over(sample.at));
        verdicts.extend(self.survivor.sampled(sample, names));
        verdicts.extend(self.spaces.sampled(sample));
        let (cases, leaked) = self.leaked.sampled(sample);
        verdicts.extend(leaked);
        (cases, verdicts)
    }

    /// Shows a thread that is stuck, or no longer is.
    pub fn sighted(&mut self, seen: Sighted) -> Option<Verdict> {
        let owned = !matches!(seen.target.kind, TargetKind::Other);
        let by_node = seen.actor.component != Component::Workload;
        if owned && by_node { self.hung.seen(seen) } else { None }
    }

    /// Shows an operation to all.
    pub fn observe(&mut self, op: &Operation) -> (Vec<Case>, Vec<Verdict>) {
        let mut cases = Vec::new();
        let mut verdicts = Vec::new();
        if op.call == Call::Umount2 {
            self.busy.umounts.note(op);
            self.leaked.observe(op);
        }
        if op.has(reason::SLOW) {
            verdicts.extend(self.hung.returned(op.tid, op.end));
        }
        if op.has(reason::ROOT_GONE) {
            let gone = Gone { target_id: op.target_id, at: op.end, ticks: TICKS_TO_CLEAR };
            self.gone.push(gone);
        } else if op.has(reason::RECOVERED) {
            verdicts.extend(self.counted(op.target_id));
            self.busy.forget(op.target_id, Some(&op.path));
            self.permission.forget(op.target_id, Some(&op.path));
            self.errnos.forget(op.target_id, Some(&op.path));
            verdicts.extend(self.dead.forget(op.target_id, Some(&op.path)));
            let path = Some(op.path.clone());
            verdicts.push(Verdict::Cleared { target_id: op.target_id, path, at: op.end });
        }
        cases.extend(self.crossing.observe(op));
        let uid = op.target.pod.as_ref().map_or("", |pod| pod.uid.as_str());
        // The mount that a removal went through is busy afterwards: that is the same fault. And no
        // pod waits for an orphan.
        if !self.crossing.explains(op.target_id) && !self.orphans.is_orphan(uid) {
            if !self.dead.explains(op.target_id, &op.path) {
                cases.extend(self.busy.observe(op));
            }
            cases.extend(self.dead.observe(op));
        }
        cases.extend(self.permission.observe(op));
        if !self.orphans.is_orphan(uid) {
            cases.extend(self.errnos.observe(op));
        }
        self.survivor.observe(op);
        self.mass.observe(op);
        self.untried.observe(op);
        verdicts.extend(self.orphans.observe(op));
        let housekept = self.orphans.is_at(uid, op.end);
        if leftover::ends_target(op) {
            self.leftover.forget(op.target_id, None);
        }
        // What is above a dead mount stays because of that.
        if !self.dead.explains(op.target_id, &op.path) {
            cases.extend(self.leftover.observe(op, housekept));
        }
        (cases, verdicts)
    }

    /// Shows the counts of the last tick.
    pub fn tick(&mut self, now: Monotonic, deltas: &[Delta], names: &Attributor) -> Vec<Case> {
        self.mass.tick(now, deltas, names)
    }

    /// What there is to tell at this tick: mass deletions, and targets that are gone.
    pub fn tick_verdicts(&mut self, now: Monotonic) -> Vec<Verdict> {
        let mut verdicts = self.mass.verdicts(now);
        self.gone.iter_mut().for_each(|gone| gone.ticks -= 1);
        let (over, waiting) = self.gone.drain(..).partition(|gone| gone.ticks == 0);
        self.gone = waiting;
        let over: Vec<Gone> = over;
        for gone in over {
            verdicts.extend(self.counted(gone.target_id));
            self.busy.forget(gone.target_id, None);
            self.permission.forget(gone.target_id, None);
            self.errnos.forget(gone.target_id, None);
            self.crossing.forget(gone.target_id);
            verdicts.extend(self.dead.forget(gone.target_id, None));
            self.mass.forget(gone.target_id);
            self.leftover.forget(gone.target_id, None);
            let Gone { target_id, at, .. } = gone;
            verdicts.push(Verdict::Cleared { target_id, path: None, at });
        }
        verdicts
    }

    /// Final counts of a target's findings.
    fn counted(&self, target_id: u64) -> Vec<Verdict> {
        let counts = [
            (Family::Busy, self.busy.count(target_id)),
            (Family::Permission, self.permission.count(target_id)),
            (Family::Crossing, self.crossing.count(target_id)),
            (Family::Mass, self.mass.count(target_id)),
            (Family::Leftover, self.leftover.count(target_id)),
            (Family::Space, self.errnos.count(target_id)),
        ];
        let known = counts.into_iter().filter_map(|(family, count)| Some((family, count?)));
        known.map(|(family, count)| Verdict::Counted { family, target_id, count }).collect()
    }

    /// How far the mass deletions have come.
    pub fn progress(&self, now: Monotonic) -> Vec<Progress> {
        self.mass.progress(now)
    }

    /// Decides a case by its facts.
    pub fn conclude(&mut self, case: &Case, facts: Facts) -> Vec<Verdict> {
        let draft = match (case.family, facts) {
            (Family::Busy, Facts::Mounts(mounts)) => self.busy.conclude(case, mounts.as_ref()),
            (Family::Busy, Facts::Holders(taken)) => self.busy.held(case, taken),
            (Family::Pinned, Facts::Holders(taken)) => {
                return self.leaked.conclude(case, taken).into_iter().collect();
            }
            (Family::Crossing, Facts::Mounts(mounts)) => {
                self.crossing.conclude(case, mounts.as_ref())
            }
            (Family::Space, Facts::FileSystem(found)) => self.errnos.conclude(case, found.as_ref()),
            (Family::Hung, Facts::FuseMounts(looked)) => self.dead.conclude(case, &looked),
            (Family::Permission, Facts::Looked(answer)) => self.permission.conclude(case, answer),
            (Family::Mass, Facts::Looked(answer)) => {
                return self.mass.learn(case, answer, Monotonic::now()).into_iter().collect();
            }
            (Family::Leftover, Facts::Directory { mounts, entries, users }) => {
                let seen =
                    leftover::Seen { mounts: mounts.as_ref(), entries: &entries, users: &users };
                let now = Monotonic::now();
                self.leftover.conclude(case, &seen, &self.busy.umounts, now)
            }
            _ => None,
        };
        draft.into_iter().map(|draft| Verdict::Found(Box::new(draft))).collect()
    }
}

/// Whether this is a part of the node's own clean-up: of something that has an owner, and not by a
/// container that tidies up its own volume.
fn is_clean_up(op: &Operation) -> bool {
    let owned = !matches!(op.target.kind, TargetKind::Other);
    owned && op.actor.component != Component::Workload
}

#[cfg(test)]
mod sample;

#[cfg(test)]
mod tests;
