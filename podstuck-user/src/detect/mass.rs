//! Deletions by the thousand: not stuck, but long, and nobody else tells how long.

use std::{
    collections::{HashMap, VecDeque},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use nix::errno::Errno;

use super::{
    Case, Draft, Family, Needs, Verdict,
    draft::PROBE,
    mass_estimate::{Estimate, Look},
};
use crate::{
    aggregate::Delta,
    attribute::Attributor,
    model::{
        call::{Call, Outcome},
        finding::{Progress, Severity},
        identity::{Actor, Component, Target, TargetKind},
        operation::Operation,
        path::{JsonPath, safe_path},
        time::Monotonic,
    },
    state::look::{Answer, LookError, Question},
};

/// When a deletion is worth a word: entries, for how long, and how fast at the least.
struct Threshold {
    entries: u64,
    lasting: Duration,
    per_second: f64,
}

/// A volume: its pod waits meanwhile.
const OF_VOLUME: Threshold =
    Threshold { entries: 5_000, lasting: Duration::from_secs(2), per_second: 50.0 };
/// Anything else: only what can slow the whole disk down.
const ELSEWHERE: Threshold =
    Threshold { entries: 50_000, lasting: Duration::from_secs(5), per_second: 1_000.0 };
/// Rates are means over this time.
const RATE_WINDOW: Duration = Duration::from_secs(10);
/// Silence after which a deletion that is not complete counts as stalled.
const STALLED: Duration = Duration::from_secs(10);
/// How often the remaining entries are counted.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Deletions followed at a time.
const STORMS: usize = 256;
/// Directory samples that the common ancestor is taken from.
const SAMPLES: usize = 64;

/// A target, or, for what has none, a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Where {
    Target(u64),
    Process(u32),
}

pub(super) struct Storm {
    pub(super) files: u64,
    pub(super) directories: u64,
    /// EISDIR on `unlinkat`: Go's way to find out that something is a directory.
    eisdir: u64,
    first: Monotonic,
    last: Monotonic,
    /// (time, entries) at each tick that had any.
    recent: VecDeque<(Monotonic, u64)>,
    op: Option<Operation>,
    samples: VecDeque<PathBuf>,
    look: Option<Look>,
    asked: Option<Monotonic>,
    /// Since it stalled, a look has shown that it was not complete.
    incomplete: bool,
}

impl Storm {
    fn new(now: Monotonic) -> Self {
        Self {
            files: 0,
            directories: 0,
            eisdir: 0,
            first: now,
            last: now,
            recent: VecDeque::new(),
            op: None,
            samples: VecDeque::new(),
            look: None,
            asked: None,
            incomplete: false,
        }
    }

    pub(super) fn deleted(&self) -> u64 {
        self.files + self.directories
    }

    fn rate(&self, now: Monotonic) -> f64 {
        let recent = self.recent.iter().filter(|(time, _)| now.since(*time) <= RATE_WINDOW);
        let entries: u64 = recent.map(|(_, entries)| entries).sum();
        let window = now.since(self.first).min(RATE_WINDOW).as_secs_f64().max(1.0);
        entries as f64 / window
    }

    fn stalled(&self, now: Monotonic) -> bool {
        now.since(self.last) > STALLED
    }

    fn matters(&self, place: Where, now: Monotonic) -> bool {
        let limit = if matches!(place, Where::Target(_)) { &OF_VOLUME } else { &ELSEWHERE };
        let fast = self.rate(now) >= limit.per_second || self.stalled(now);
        self.deleted() >= limit.entries && self.last.since(self.first) >= limit.lasting && fast
    }

    /// The directory that is being emptied.
    fn root(&self) -> Option<PathBuf> {
        let target = &self.op.as_ref()?.target;
        if target.kind != TargetKind::Other || !target.root.as_os_str().is_empty() {
            return Some(target.root.clone());
        }
        common_ancestor(self.samples.iter().map(PathBuf::as_path))
    }
}

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
        if storm.samples.len() == SAMPLES {
            storm.samples.pop_front();
        }
        storm.samples.extend(op.path.parent().map(Path::to_path_buf));
        storm.op = Some(op.clone());
    }

    pub(super) fn tick(
        &mut self,
        now: Monotonic,
        deltas: &[Delta],
        names: &Attributor,
    ) -> Vec<Case> {
        for delta in deltas {
            if let Some(storm) = self.storms.get_mut(&place(delta.target_id, delta.pid)) {
                count(storm, delta, now);
            }
        }
        self.storms.retain(|place, storm| {
            // A process without a target that is quiet has finished.
            matches!(place, Where::Target(_)) && storm.deleted() > 0 || !storm.stalled(now)
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
        let empty = matches!(answer, Ok(Answer::Remaining { seen: 0, complete: true, .. }));
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

fn count(storm: &mut Storm, delta: &Delta, now: Monotonic) {
    if delta.outcome.is(Errno::EISDIR) {
        storm.eisdir += delta.calls;
    }
    if delta.outcome != Outcome::OK || delta.call == Call::Umount2 {
        return;
    }
    if delta.call.removes_directory() {
        storm.directories += delta.calls;
    } else {
        storm.files += delta.calls;
    }
    storm.last = now;
    storm.incomplete = false;
    match storm.recent.back_mut().filter(|(time, _)| *time == now) {
        Some((_, entries)) => *entries += delta.calls,
        None => storm.recent.push_back((now, delta.calls)),
    }
    while storm.recent.front().is_some_and(|(time, _)| now.since(*time) > RATE_WINDOW) {
        storm.recent.pop_front();
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

fn cause(target: &Target, actor: &Actor) -> &'static str {
    let plugin = target.volume.as_ref().map_or("", |v| v.plugin.as_str());
    match (target.kind, plugin, actor.component) {
        (TargetKind::DockerVolume, _, Component::Dockerd) => "docker-volume-unlink-storm",
        (TargetKind::PodVolume, "kubernetes.io/empty-dir", _) => "emptydir-mass-files",
        _ => "mass-deletion",
    }
}

fn draft(storm: &Storm, now: Monotonic) -> Option<Box<Draft>> {
    if storm.stalled(now) && !storm.incomplete {
        return None;
    }
    let op = storm.op.as_ref()?;
    let root = storm.root()?;
    let mut draft = Draft::about(Family::Mass, cause(&op.target, &op.actor), op);
    if op.target_id == 0 {
        // What belongs to no target is told apart by who does it.
        draft.target_id = u64::from(op.actor.pid);
        draft.target = Arc::new(Target::unknown());
    }
    draft.path = root.clone();
    draft.outcome = Outcome::OK;
    draft.count = storm.deleted();
    draft.first = storm.first;
    draft.last = storm.last;
    let rate = storm.rate(now);
    let estimate = Estimate::of(storm.look.as_ref(), storm.deleted(), rate);
    draft.fact(
        format!(
            "{} entries deleted below {} since the observation began ({} files, {} directories), \
             {rate:.0} per second now",
            storm.deleted(),
            safe_path(&root),
            storm.files,
            storm.directories
        ),
        PROBE,
    );
    if storm.eisdir > 0 {
        draft.fact(
            format!("{} EISDIR answers: one for each directory is Go's normal way", storm.eisdir),
            PROBE,
        );
    }
    for fact in estimate.facts(storm.look.as_ref()) {
        draft.fact(fact, "statx, statfs and a bounded look at the directory");
    }
    let volume = if draft.id == "mass-deletion" { "directory" } else { "volume" };
    if storm.stalled(now) {
        draft.severity = Severity::Warning;
        draft.confidence = 0.6;
        draft.blocks_deletion = (op.target.kind == TargetKind::PodVolume).then_some(true);
        draft.explanation = format!(
            "The deletion of this {volume} has stopped before it was complete: nothing was deleted \
             for {:.0} s. See the other findings, and whether the process is blocked.",
            now.since(storm.last).as_secs_f64()
        );
        let pid = op.actor.pid;
        draft.remedy(format!("cat /proc/{pid}/stack /proc/{pid}/wchan"), "none");
    } else {
        draft.severity = Severity::Info;
        draft.confidence = 0.95;
        draft.blocks_deletion = Some(false);
        draft.explanation = format!(
            "The {volume} is being deleted and gets smaller; it has many entries and this takes \
             time. It is not stuck: wait. Restarting the process that deletes only starts it \
             over.{}",
            if draft.id == "docker-volume-unlink-storm" {
                " dockerd holds its volume store's lock meanwhile: creating, listing and removing \
                 volumes waits, on all containers."
            } else {
                ""
            }
        );
        draft.ruled_out.push("a hang: entries disappear at the rate above".into());
    }
    Some(Box::new(draft))
}

fn common_ancestor<'a>(mut paths: impl Iterator<Item = &'a Path>) -> Option<PathBuf> {
    let first = paths.next()?.to_path_buf();
    let ancestor = paths.fold(first, |ancestor, path| {
        let mut candidate = ancestor.as_path();
        while !path.starts_with(candidate) {
            candidate = candidate.parent().unwrap_or(Path::new("/"));
        }
        candidate.to_path_buf()
    });
    Some(ancestor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_a_storm_is_what_its_samples_share() {
        let paths = ["/a/b/c/1", "/a/b/d", "/a/b/c/2/x"].map(Path::new);
        assert_eq!(common_ancestor(paths.into_iter()), Some("/a/b".into()));
        assert_eq!(common_ancestor(["/x", "/y"].map(Path::new).into_iter()), Some("/".into()));
    }

    #[test]
    fn a_rate_is_a_mean_of_the_last_seconds() {
        let mut storm = Storm::new(Monotonic(0));
        let delta =
            Delta { target_id: 1, pid: 1, call: Call::Unlink, outcome: Outcome::OK, calls: 3000 };
        for second in 1..=20_u64 {
            count(&mut storm, &delta, Monotonic(second * 1_000_000_000));
        }
        let now = Monotonic(20_000_000_000);
        assert!((storm.rate(now) - 3000.0).abs() < 400.0, "{}", storm.rate(now));
        assert!(storm.matters(Where::Target(1), now));
        let later = Monotonic(31_000_000_000);
        assert!(storm.stalled(later) && storm.rate(later) == 0.0);
    }
}
