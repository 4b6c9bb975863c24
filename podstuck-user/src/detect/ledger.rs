//! The life of findings: new, updated when there is news, cleared when the call succeeds.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{Draft, Family, Verdict};
use crate::model::{
    finding::{FaultyCall, Finding, FindingState},
    path::JsonPath,
    time::{Clock, Monotonic},
};

/// Two updates of one finding are at least this far apart, unless the verdict itself changes.
const UPDATE_EVERY: Duration = Duration::from_secs(5);
/// Findings kept. More at once would be a fault of ours, and none is dropped silently: the oldest
/// cleared ones go first, and open ones are never dropped.
const KEPT: usize = 4096;

struct Entry {
    finding: Finding,
    path: PathBuf,
    told: Monotonic,
}

/// All findings of a run.
pub struct Ledger {
    clock: Clock,
    entries: HashMap<(Family, u64), Entry>,
    cleared: Vec<Finding>,
    found: u64,
}

impl Ledger {
    /// Empty; `clock` turns the kernel's time into the calendar's.
    pub fn new(clock: Clock) -> Self {
        Self { clock, entries: HashMap::new(), cleared: Vec::new(), found: 0 }
    }

    /// How many findings there were, cleared ones included.
    pub fn found(&self) -> u64 {
        self.found
    }

    /// All findings as they stand.
    pub fn all(&self) -> impl Iterator<Item = &Finding> {
        self.cleared.iter().chain(self.entries.values().map(|entry| &entry.finding))
    }

    /// Takes a verdict; what is to be told because of it.
    pub fn admit(&mut self, verdict: Verdict) -> Vec<Finding> {
        match verdict {
            Verdict::Found(draft) => self.found_one(*draft),
            Verdict::Counted { family, target_id, count } => {
                if let Some(entry) = self.entries.get_mut(&(family, target_id)) {
                    entry.finding.count = count;
                }
                Vec::new()
            }
            Verdict::Cleared { target_id, path, at } => self.clear(target_id, path.as_deref(), at),
            Verdict::Over { family, target_id, at } => {
                self.clear_one((family, target_id), at).into_iter().collect()
            }
        }
    }

    fn found_one(&mut self, draft: Draft) -> Vec<Finding> {
        let key = (draft.family, draft.target_id);
        let (path, last) = (draft.path.clone(), draft.last);
        let mut finding = self.finding(draft);
        let mut told = Vec::new();
        match self.entries.get_mut(&key) {
            Some(entry) if entry.finding.id == finding.id => {
                finding.state = FindingState::Update;
                let changed = entry.finding.confidence.total_cmp(&finding.confidence).is_ne()
                    || entry.finding.severity != finding.severity;
                let news = changed || entry.finding.count != finding.count;
                let due = last.since(entry.told) >= UPDATE_EVERY;
                if changed || (news && due) {
                    entry.told = last;
                    told.push(finding.clone());
                }
                entry.finding = finding;
                entry.path = path;
                return told;
            }
            Some(_) => told.extend(self.clear_one(key, last)),
            None => {}
        }
        self.found += 1;
        told.push(finding.clone());
        self.entries.insert(key, Entry { finding, path, told: last });
        told
    }

    fn clear(&mut self, target_id: u64, path: Option<&Path>, at: Monotonic) -> Vec<Finding> {
        let concerned = self.entries.iter().filter(|((_, target), entry)| {
            *target == target_id && path.is_none_or(|path| path == entry.path)
        });
        let keys: Vec<_> = concerned.map(|(key, _)| *key).collect();
        keys.into_iter().filter_map(|key| self.clear_one(key, at)).collect()
    }

    fn clear_one(&mut self, key: (Family, u64), at: Monotonic) -> Option<Finding> {
        let mut finding = self.entries.remove(&key)?.finding;
        finding.state = FindingState::Cleared;
        finding.last = self.clock.at(at);
        if self.cleared.len() >= KEPT {
            self.cleared.remove(0);
        }
        self.cleared.push(finding.clone());
        Some(finding)
    }

    fn finding(&self, draft: Draft) -> Finding {
        Finding {
            id: draft.id,
            state: FindingState::New,
            severity: draft.severity,
            confidence: draft.confidence,
            blocks_deletion: draft.blocks_deletion,
            pod: draft.target.pod.clone(),
            container: draft.target.container.clone(),
            volume: draft.target.volume.clone(),
            actor: draft.actor.as_deref().cloned(),
            call: FaultyCall {
                syscall: draft.call,
                path: JsonPath(draft.path),
                errno: draft.outcome,
            },
            count: draft.count,
            first: self.clock.at(draft.first),
            last: self.clock.at(draft.last),
            evidence: draft.evidence,
            explanation: draft.explanation,
            remedies: draft.remedies,
            likely_causes_ruled_out: draft.ruled_out,
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::{super::sample::failed, *};
    use crate::model::call::Call;

    fn draft(id: &'static str, second: f64, count: u64) -> Verdict {
        let op = failed(Call::UnlinkatDir, Errno::EBUSY, "m", second);
        let mut draft = Draft::about(Family::Busy, id, &op);
        draft.count = count;
        Verdict::Found(Box::new(draft))
    }

    fn states(told: &[Finding]) -> Vec<(&str, FindingState)> {
        told.iter().map(|f| (f.id, f.state)).collect()
    }

    #[test]
    fn a_finding_is_new_then_updated_now_and_then_then_cleared() {
        use FindingState::{Cleared, New, Update};
        let mut ledger = Ledger::new(Clock::start());
        assert_eq!(states(&ledger.admit(draft("a", 1.0, 1))), [("a", New)]);
        assert!(ledger.admit(draft("a", 2.0, 2)).is_empty(), "too soon");
        assert_eq!(states(&ledger.admit(draft("a", 7.0, 3))), [("a", Update)]);
        assert!(ledger.admit(draft("a", 20.0, 3)).is_empty(), "no news");
        let cleared = Verdict::Cleared { target_id: 7, path: None, at: Monotonic(0) };
        assert_eq!(states(&ledger.admit(cleared)), [("a", Cleared)]);
        assert_eq!((ledger.found(), ledger.all().count()), (1, 1));
    }

    #[test]
    fn a_better_verdict_replaces_the_one_before() {
        use FindingState::{Cleared, New};
        let mut ledger = Ledger::new(Clock::start());
        ledger.admit(draft("a", 1.0, 1));
        let told = ledger.admit(draft("b", 2.0, 2));
        assert_eq!(states(&told), [("a", Cleared), ("b", New)]);
    }

    #[test]
    fn only_the_object_that_succeeded_is_cleared() {
        let mut ledger = Ledger::new(Clock::start());
        ledger.admit(draft("a", 1.0, 1));
        let other = Some(PathBuf::from("/elsewhere"));
        let cleared = Verdict::Cleared { target_id: 7, path: other, at: Monotonic(0) };
        assert!(ledger.admit(cleared).is_empty());
    }
}
