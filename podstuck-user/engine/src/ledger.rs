//! The life cycle of findings: new, updated when facts change, cleared when the call succeeds.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;

use crate::{
    cause::CauseId,
    lacking::{incomplete, lacking},
    model::{
        degraded::Degraded,
        evidence::{Certainty, Evidence, RuledOut},
        finding::{FaultyCall, Finding, FindingState},
        identity::Pod,
        path::JsonPath,
        remedy::Remedy,
        time::{Clock, Monotonic},
    },
    tracker::TrackerId,
    verdict::{Draft, Fact, NotThis, Unmounting, Verdict},
};

/// Minimum time between two updates of a finding, unless the verdict itself changes.
const UPDATE_EVERY: Duration = Duration::from_secs(5);
/// Maximum number of findings. The oldest cleared ones are dropped first; open ones are never dropped.
const KEPT: usize = 4096;

struct Entry {
    finding: Finding,
    /// Other trackers with the same finding that have not ended it.
    beside: Vec<TrackerId>,
    path: PathBuf,
    reported: Monotonic,
    /// The degraded parts when this was found, or seen again.
    lacked: Vec<String>,
    /// Whether the advised unmount would be refused, as last reported.
    unmounting: Unmounting,
}

/// All findings of a run.
pub(crate) struct Ledger {
    clock: Clock,
    /// Whether the run is a replay.
    pub(crate) is_replay: bool,
    /// Whether the node has `xargs` and `sh`.
    pub(crate) has_xargs: bool,
    entries: BTreeMap<(TrackerId, u64), Entry>,
    cleared: Vec<Finding>,
    found: u64,
    /// The degraded parts of podstuck.
    parts: Vec<Degraded>,
}

impl Ledger {
    /// An empty ledger; `clock` converts the kernel's time to calendar time.
    pub(crate) fn new(clock: Clock) -> Self {
        let (entries, cleared, parts) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { clock, is_replay: false, has_xargs: true, entries, cleared, found: 0, parts }
    }

    /// Number of findings so far, including cleared ones.
    pub(crate) fn found(&self) -> u64 {
        self.found
    }

    /// The current state of all findings.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Finding> {
        self.cleared.iter().chain(self.entries.values().map(|entry| &entry.finding))
    }

    /// Whether the finding of that key is open and has that cause.
    pub(crate) fn holds(&self, key: (TrackerId, u64), cause: CauseId) -> bool {
        self.entries.get(&key).is_some_and(|entry| entry.finding.id == cause)
    }

    /// The degraded parts of podstuck.
    pub(crate) fn parts(&self) -> &[Degraded] {
        &self.parts
    }

    /// Takes the degraded parts of podstuck; returns the findings to report.
    pub(crate) fn degraded(&mut self, parts: &[Degraded], at: Monotonic) -> Vec<Finding> {
        self.parts = parts.to_vec();
        let mut findings = Vec::new();
        for ((tracker, _), entry) in &mut self.entries {
            let mut now = lacking(parts, *tracker, &entry.path);
            now.retain(|what| !entry.lacked.contains(what));
            let lacks = [entry.lacked.as_slice(), &now].concat();
            let before = std::mem::replace(&mut entry.finding.degraded, lacks);
            if entry.finding.degraded.iter().any(|what| !before.contains(what)) {
                (entry.finding.state, entry.reported) = (FindingState::Update, at);
                findings.push(entry.finding.clone());
            }
        }
        findings
    }

    /// Takes a verdict; returns the findings to report.
    pub(crate) fn admit(&mut self, verdict: Verdict) -> Vec<Finding> {
        match verdict {
            Verdict::Found(draft) => self.found_one(*draft),
            Verdict::Counted { tracker, target_id, count } => {
                if let Some(entry) = self.entries.get_mut(&(tracker, target_id)) {
                    entry.finding.count = count;
                }
                Vec::new()
            }
            Verdict::Cleared { target_id, path, at } => self.clear(target_id, path.as_deref(), at),
            Verdict::Over { tracker, target_id, at } => {
                self.over((tracker, target_id), at).into_iter().collect()
            }
        }
    }

    fn found_one(&mut self, draft: Draft) -> Vec<Finding> {
        let key = (draft.tracker, draft.target_id);
        let (path, last, unmounting) = (draft.path.clone(), draft.last, draft.unmounting);
        let mut finding = self.finding(draft);
        let mut findings = Vec::new();
        if let Some(twin) = self.twin(key, &finding) {
            findings.extend(self.over(key, last));
            if let Some(mut entry) = self.entries.remove(&twin) {
                entry.beside.push(twin.0);
                self.entries.insert(key, entry);
            }
        }
        match self.entries.get_mut(&key) {
            Some(entry) if entry.finding.id == finding.id => {
                finding.state = FindingState::Update;
                finding.instance.clone_from(&entry.finding.instance);
                keep_times(&mut finding.evidence, &entry.finding.evidence);
                // A new holder, and a new reason why the advised unmount would fail, are reported at once.
                let is_named = entry.finding.held_by.is_none() && finding.held_by.is_some()
                    || unmounting > entry.unmounting;
                let changed = entry.finding.certainty != finding.certainty
                    || entry.finding.severity != finding.severity
                    || is_named;
                let news = changed
                    || entry.finding.count != finding.count
                    || entry.finding.degraded != finding.degraded;
                let due = last.since(entry.reported) >= UPDATE_EVERY;
                if changed || (news && due) {
                    entry.reported = last;
                    findings.push(finding.clone());
                }
                entry.lacked.clone_from(&finding.degraded);
                entry.unmounting = unmounting;
                entry.finding = finding;
                entry.path = path;
                return findings;
            }
            Some(_) => findings.extend(self.over(key, last)),
            None => self.leaves(key),
        }
        self.found += 1;
        finding.instance = format!("{}-{}", finding.id, self.found);
        findings.push(finding.clone());
        let lacked = finding.degraded.clone();
        let entry = Entry { finding, beside: Vec::new(), path, reported: last, lacked, unmounting };
        self.entries.insert(key, entry);
        findings
    }

    /// The same cause of the same target, found by another tracker: a scan and a later failed call may find one
    /// fault.
    fn twin(&self, key: (TrackerId, u64), finding: &Finding) -> Option<(TrackerId, u64)> {
        let is_twin = |(other, entry): &(&(TrackerId, u64), &Entry)| {
            other.0 != key.0 && other.1 == key.1 && entry.finding.id == finding.id
        };
        self.entries.iter().find(is_twin).map(|(other, _)| *other)
    }

    fn clear(&mut self, target_id: u64, path: Option<&Path>, at: Monotonic) -> Vec<Finding> {
        let concerned = self.entries.iter().filter(|((_, target), entry)| {
            *target == target_id && path.is_none_or(|path| path == entry.path)
        });
        let keys: Vec<_> = concerned.map(|(key, _)| *key).collect();
        keys.into_iter().filter_map(|key| self.clear_one(key, at)).collect()
    }

    /// A tracker ends a finding: it stays open while another tracker still finds it.
    fn over(&mut self, key: (TrackerId, u64), at: Monotonic) -> Option<Finding> {
        self.leaves(key);
        let Some(next) = self.entries.get_mut(&key).and_then(|entry| entry.beside.pop()) else {
            return self.clear_one(key, at);
        };
        let entry = self.entries.remove(&key)?;
        self.entries.insert((next, key.1), entry);
        None
    }

    /// Removes a tracker from findings that another tracker keeps.
    fn leaves(&mut self, (tracker, target): (TrackerId, u64)) {
        let of_target = self.entries.iter_mut().filter(|((_, other), _)| *other == target);
        of_target.for_each(|(_, entry)| entry.beside.retain(|beside| *beside != tracker));
    }

    fn clear_one(&mut self, key: (TrackerId, u64), at: Monotonic) -> Option<Finding> {
        let mut finding = self.entries.remove(&key)?.finding;
        finding.state = FindingState::Cleared;
        finding.last = self.clock.at(at);
        if self.cleared.len() >= KEPT {
            self.cleared.remove(0);
        }
        self.cleared.push(finding.clone());
        Some(finding)
    }

    /// A remedy as it is printed, for a conclusion of this certainty.
    pub(crate) fn given(
        &self,
        remedy: Remedy,
        certainty: Certainty,
        pod: Option<&Pod>,
        now: Timestamp,
    ) -> Remedy {
        let can_type = self.has_xargs || self.is_replay;
        let remedy = if can_type { remedy } else { remedy.without_xargs() };
        remedy.given(certainty, self.is_replay).followed(pod).dated(&self.clock, now)
    }

    fn finding(&self, draft: Draft) -> Finding {
        let (mut certainty, mut not_known) = (draft.certainty(), draft.not_known());
        if certainty == Certainty::Firm
            && let Some(why) = incomplete(&self.parts, draft.cause, &draft.path)
        {
            (certainty, not_known) = (Certainty::Likely, vec![why]);
        }
        let degraded = lacking(&self.parts, draft.tracker, &draft.path);
        let pod = draft.target.pod.as_ref();
        let now = self.clock.at(draft.last);
        let remedies = draft.remedies.into_iter().map(|it| self.given(it, certainty, pod, now));
        let since = |since: Option<Monotonic>| self.clock.at(since.unwrap_or(draft.last));
        let evidence = draft
            .evidence
            .into_iter()
            .map(|Fact { fact, source, since: at }| Evidence { fact, source, since: since(at) });
        let ruled_out = draft
            .ruled_out
            .into_iter()
            .map(|NotThis { cause, fact, since: at }| RuledOut { cause, fact, since: since(at) });
        Finding {
            id: draft.cause.id,
            kind: draft.cause.kind,
            instance: String::new(),
            state: FindingState::New,
            severity: draft.severity,
            certainty,
            confidence: certainty.confidence(),
            stage: draft.cause.stage,
            blocks_deletion: draft.blocks_deletion,
            pod: draft.target.pod.clone(),
            container: draft.target.container.clone(),
            container_name: draft.target.container_name.clone(),
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
            held_by: draft.held_by,
            chain: Vec::new(),
            must: draft.must,
            waits_for: draft.waits_for,
            evidence: evidence.collect(),
            explanation: draft.explanation,
            remedies: remedies.collect(),
            likely_causes_ruled_out: ruled_out.collect(),
            not_known,
            degraded,
            is_settled: draft.is_settled,
            is_later: draft.is_later,
        }
    }
}

/// Keeps the times of facts that were known before.
fn keep_times(now: &mut [Evidence], before: &[Evidence]) {
    for fact in now {
        let same = |known: &&Evidence| known.fact == fact.fact && known.source == fact.source;
        if let Some(known) = before.iter().find(same) {
            fact.since = fact.since.min(known.since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cause::Cause,
        causes::busy_mount::causes::{SUBMOUNT, SUBPATH_BUSY},
        model::{call::Call, degraded::Feed, errno::Errno, evidence::Source},
        testing::failed,
    };

    fn clock() -> Clock {
        Clock::new(jiff::Timestamp::UNIX_EPOCH, Monotonic(0))
    }

    fn draft(cause: &'static Cause, second: f64, count: u64) -> Verdict {
        draft_of(TrackerId::Busy, cause, second, count)
    }

    fn draft_of(tracker: TrackerId, cause: &'static Cause, second: f64, count: u64) -> Verdict {
        let op = failed(Call::UnlinkatDir, Errno::EBUSY, "m", second);
        let mut draft = Draft::about(tracker, cause, &op);
        draft.count = count;
        Verdict::Found(Box::new(draft))
    }

    fn states(findings: &[Finding]) -> Vec<(&str, FindingState)> {
        findings.iter().map(|f| (f.id.as_str(), f.state)).collect()
    }

    #[test]
    fn a_finding_is_new_then_updated_now_and_then_then_cleared() {
        use FindingState::{Cleared, New, Update};
        let mut ledger = Ledger::new(clock());
        assert_eq!(
            states(&ledger.admit(draft(&SUBMOUNT, 1.0, 1))),
            [("emptydir-bidirectional-submount", New)]
        );
        assert!(ledger.admit(draft(&SUBMOUNT, 2.0, 2)).is_empty(), "too soon");
        assert_eq!(
            states(&ledger.admit(draft(&SUBMOUNT, 7.0, 3))),
            [("emptydir-bidirectional-submount", Update)]
        );
        assert!(ledger.admit(draft(&SUBMOUNT, 20.0, 3)).is_empty(), "no news");
        let cleared = Verdict::Cleared { target_id: 7, path: None, at: Monotonic(0) };
        assert_eq!(states(&ledger.admit(cleared)), [("emptydir-bidirectional-submount", Cleared)]);
        assert_eq!((ledger.found(), ledger.all().count()), (1, 1));
    }

    #[test]
    fn a_better_verdict_replaces_the_one_before() {
        use FindingState::{Cleared, New};
        let mut ledger = Ledger::new(clock());
        ledger.admit(draft(&SUBMOUNT, 1.0, 1));
        let findings = ledger.admit(draft(&SUBPATH_BUSY, 2.0, 2));
        assert_eq!(
            states(&findings),
            [("emptydir-bidirectional-submount", Cleared), ("subpath-busy", New)]
        );
    }

    #[test]
    fn what_holds_for_one_tracker_is_not_over_for_another() {
        let of = |tracker, second| draft_of(tracker, &SUBMOUNT, second, 1);
        let over = |tracker| Verdict::Over { tracker, target_id: 7, at: Monotonic(9_000_000_000) };
        let (first, second) = (TrackerId::Busy, TrackerId::LeftRootfs);
        let mut ledger = Ledger::new(clock());
        ledger.admit(of(first, 1.0));
        ledger.admit(of(second, 2.0));
        assert!(ledger.admit(over(second)).is_empty(), "the first one holds");
        assert_eq!(states(&ledger.admit(over(first))).len(), 1);
        // In the other order, and if the first tracker finds another cause.
        ledger.admit(of(first, 1.0));
        ledger.admit(of(second, 2.0));
        assert!(ledger.admit(over(first)).is_empty());
        ledger.admit(draft_of(first, &SUBPATH_BUSY, 3.0, 1));
        assert_eq!(states(&ledger.admit(over(second))).len(), 1);
        assert_eq!(ledger.entries.len(), 1);
    }

    #[test]
    fn a_cause_that_another_tracker_has_found_too_is_one_finding() {
        let mut ledger = Ledger::new(clock());
        let seen = ledger.admit(draft_of(TrackerId::LeftRootfs, &SUBMOUNT, 1.0, 1));
        let findings = ledger.admit(draft(&SUBMOUNT, 7.0, 3));
        assert_eq!(states(&findings), [("emptydir-bidirectional-submount", FindingState::Update)]);
        assert_eq!(findings[0].instance, seen[0].instance);
        let over = Verdict::Over {
            tracker: TrackerId::LeftRootfs,
            target_id: 7,
            at: Monotonic(8_000_000_000),
        };
        assert!(ledger.admit(over).is_empty(), "the other one follows it now");
        assert_eq!((ledger.found(), ledger.all().count()), (1, 1));
    }

    #[test]
    fn only_the_object_that_succeeded_is_cleared() {
        let mut ledger = Ledger::new(clock());
        ledger.admit(draft(&SUBMOUNT, 1.0, 1));
        let other = Some(PathBuf::from("/elsewhere"));
        let cleared = Verdict::Cleared { target_id: 7, path: other, at: Monotonic(0) };
        assert!(ledger.admit(cleared).is_empty());
    }

    #[test]
    fn a_finding_has_one_name_through_its_states_and_the_next_one_another() {
        let mut ledger = Ledger::new(clock());
        let mut name = |verdict| ledger.admit(verdict).pop().unwrap().instance;
        let first = name(draft(&SUBMOUNT, 1.0, 1));
        assert_eq!(name(draft(&SUBMOUNT, 9.0, 2)), first);
        let cleared = || Verdict::Cleared { target_id: 7, path: None, at: Monotonic(0) };
        assert_eq!(name(cleared()), first);
        assert_ne!(name(draft(&SUBMOUNT, 20.0, 1)), first);
    }

    #[test]
    fn what_a_part_could_not_do_stands_beside_what_is_made_of_it() {
        let lost = |what: &str, feed| Degraded::new(what, &[feed]);
        let lacks = |findings: &[Finding]| -> Vec<Vec<String>> {
            findings.iter().map(|finding| finding.degraded.clone()).collect()
        };
        let mut ledger = Ledger::new(clock());
        let holders = lost("holders cannot be searched for", Feed::Holders);
        assert!(ledger.degraded(std::slice::from_ref(&holders), Monotonic(0)).is_empty());
        let findings = ledger.admit(draft(&SUBMOUNT, 1.0, 1));
        assert_eq!(lacks(&findings), [["holders cannot be searched for"]], "made meanwhile");
        let other = ledger.admit(draft_of(TrackerId::DiskFull, &SUBPATH_BUSY, 1.0, 1));
        assert_eq!(lacks(&other), [[""; 0]], "no search is needed for it");
        let node = lost("the node is not looked at", Feed::Node);
        let findings = ledger.degraded(&[holders, node.clone()], Monotonic(2));
        let both = ["holders cannot be searched for", "the node is not looked at"];
        assert_eq!(lacks(&findings), [both.to_vec(), vec!["the node is not looked at"]]);
        assert!(findings.iter().all(|finding| finding.state == FindingState::Update));
        assert!(ledger.degraded(&[node], Monotonic(3)).is_empty(), "nothing new");
        assert_eq!(lacks(&ledger.admit(draft(&SUBMOUNT, 9.0, 1))), [["the node is not looked at"]]);
        assert!(ledger.degraded(&[], Monotonic(4)).is_empty());
        let all: Vec<Finding> = ledger.all().cloned().collect();
        assert_eq!(lacks(&all), [vec!["the node is not looked at"], vec![]]);
    }

    #[test]
    fn what_was_known_is_known_for_as_long_as_before() {
        let mut ledger = Ledger::new(clock());
        let with_facts = |second: f64| {
            let Verdict::Found(mut draft) = draft(&SUBMOUNT, second, second as u64) else {
                panic!("a draft")
            };
            draft.fact("always the same", Source::Probe);
            draft.fact(format!("new at {second}"), Source::Probe);
            Verdict::Found(draft)
        };
        ledger.admit(with_facts(1.0));
        let finding = ledger.admit(with_facts(9.0)).pop().unwrap();
        let since: Vec<i64> = finding.evidence.iter().map(|fact| fact.since.as_second()).collect();
        assert_eq!(since, [1, 9]);
    }
}
