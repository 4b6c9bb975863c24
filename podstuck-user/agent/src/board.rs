//! Decides which Event is written next, from the findings and the time alone; `events.rs` writes.
//!
//! A node writes at most one new Event per minute; the first is delayed by a random part of a minute. So an outage
//! that blocks thousands of pods reaches the API server as a trickle. If a cause holds several pods, an Event of the
//! node with their number comes first; the pods' Events follow, the longest stuck first. Writes about causes that are
//! over have a rate limit of their own.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    line::Finding,
    posted::{DENIALS, Posted, Said},
    stuck::{Pod, Stuck, event_name},
};

/// Interval between two new Events or renewals.
pub(crate) const EVERY: Duration = Duration::from_secs(60);
/// Interval between two writes about causes that are over. The first is delayed by a random part of it: the end of an
/// outage releases the pods of all nodes at once.
const OVER_EVERY: Duration = Duration::from_secs(30);
/// Age at which an Event is renewed. The API server deletes an Event after an hour.
const RENEW: Duration = Duration::from_secs(30 * 60);
/// Age at which a renewal goes before new Events, which may be many.
const LATEST: Duration = Duration::from_secs(45 * 60);
/// Minimum interval between corrections of the count in a node's Event.
const RECOUNT: Duration = Duration::from_secs(10 * 60);
/// Time within which a restarted agent's watch repeats the findings of the previous run.
const SETTLE: Duration = Duration::from_secs(5 * 60);
/// Maximum number of pods that a node's Event names.
const NAMED: usize = 10;
/// Maximum number of remembered findings.
pub(crate) const REMEMBERED: usize = 10_000;

/// A request to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// A new Event about a pod. `replaces` are the Events of older verdicts.
    Pod { stuck: Box<Stuck>, replaces: Vec<String> },
    /// A new Event about the node, with the number of pods that this cause holds. `replaces` are the Events with
    /// another number.
    Node { cause: String, name: String, note: String, replaces: Vec<String> },
    /// Renews an Event before the API server deletes it.
    Renew { namespace: String, name: String, count: i32 },
    /// The cause is over, so its Events are removed.
    Over(Over),
}

/// What is removed once a cause is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Over {
    pub(crate) cause: String,
    pub(crate) namespace: String,
    pub(crate) names: Vec<String>,
    /// Whether one of the Events is known to have been there.
    pub(crate) is_sure: bool,
    /// The pod; `None` for the node.
    pub(crate) pod: Option<Pod>,
    /// Whether no other cause holds the pod.
    pub(crate) is_released: bool,
    denials: u8,
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The write succeeded.
    Done,
    /// The Event no longer exists.
    Gone,
    /// The API server refused it permanently: the namespace is being deleted, or the Event is invalid.
    Refused,
    /// The API server denied it: the right is missing, or it has just started and does not know the rights yet.
    Denied,
    /// The API server did not answer or is overloaded.
    Later,
}

#[derive(Debug)]
struct Entry {
    stuck: Stuck,
    said: Said,
}

impl Entry {
    const fn is_pending(&self) -> bool {
        self.said.posted.is_none() && !self.said.is_refused()
    }

    fn is_due(&self) -> bool {
        let name = self.stuck.event_name();
        let is_right = self.said.unsure.is_empty()
            && self.said.posted.as_ref().is_some_and(|posted| posted.name == name);
        !is_right && !self.said.is_refused()
    }
}

#[derive(Debug, Default)]
struct OfNode {
    said: Said,
    pods: usize,
    /// Time from which the count is corrected, since it has changed.
    recount: Option<Duration>,
}

/// Counters for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Events written.
    pub(crate) written: u64,
    /// Findings that were over before their Event was written.
    pub(crate) outrun: u64,
    /// Findings whose Event the API server refused.
    pub(crate) refused: u64,
    /// Findings that exceeded [`REMEMBERED`].
    pub(crate) dropped: u64,
}

/// The state that an agent keeps across a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// Events about pods: pod, cause, Event.
    pub(crate) pods: Vec<(Pod, String, Posted)>,
    /// Events about the node: cause, Event.
    pub(crate) node: Vec<(String, Posted)>,
}

/// All stuck pods of a node, and the Events about them.
#[derive(Debug)]
pub(crate) struct Board {
    node: String,
    /// By key. Keys increase with time, so the oldest entry comes first.
    stuck: BTreeMap<u64, Entry>,
    keys: BTreeMap<(String, String), u64>,
    next_key: u64,
    of_node: BTreeMap<String, OfNode>,
    over: VecDeque<Over>,
    /// Events of the previous agent that no finding has claimed yet.
    before: Memory,
    next: Duration,
    over_next: Duration,
    /// The last random number.
    random: f64,
    /// No write is due before this time.
    closed_until: Duration,
    failures: u32,
    counts: Counts,
}

impl Board {
    /// For a node, with the state that the previous agent saved.
    pub(crate) fn new(node: &str, before: Memory) -> Self {
        Self {
            node: node.into(),
            stuck: BTreeMap::new(),
            keys: BTreeMap::new(),
            next_key: 0,
            of_node: BTreeMap::new(),
            over: VecDeque::new(),
            before,
            next: Duration::ZERO,
            over_next: Duration::ZERO,
            random: 0.0,
            closed_until: Duration::ZERO,
            failures: 0,
            counts: Counts::default(),
        }
    }

    /// Processes a finding. `random` is in 0..1.
    pub(crate) fn take(&mut self, finding: &Finding, now: Duration, random: f64) {
        self.random = random;
        match Stuck::of(finding) {
            Some(stuck) => self.add(stuck, now),
            None => {
                let uid = finding.pod.as_ref().map_or("", |pod| &pod.uid);
                self.remove(uid, &finding.id, now);
            }
        }
    }

    fn add(&mut self, stuck: Stuck, now: Duration) {
        let key = (stuck.pod.uid.clone(), stuck.cause.clone());
        if let Some(entry) = self.keys.get(&key).and_then(|key| self.stuck.get_mut(key)) {
            // A refusal is kept: a namespace that is being deleted does not return.
            entry.stuck = stuck;
            return;
        }
        if self.stuck.len() >= REMEMBERED {
            self.counts.dropped += 1;
            return;
        }
        if !self.has_new() {
            self.next = self.next.max(now + EVERY.mul_f64(self.random));
        }
        let is_same = |(pod, cause, _): &mut (Pod, String, Posted)| {
            pod.uid == stuck.pod.uid && *cause == stuck.cause
        };
        let mut said = Said::default();
        self.before.pods.extract_if(.., is_same).for_each(|(_, _, posted)| said.add(posted));
        self.keys.insert(key, self.next_key);
        self.stuck.insert(self.next_key, Entry { stuck, said });
        self.next_key += 1;
    }

    fn remove(&mut self, uid: &str, cause: &str, now: Duration) {
        let key = self.keys.remove(&(uid.to_owned(), cause.to_owned()));
        let Some(entry) = key.and_then(|key| self.stuck.remove(&key)) else { return };
        let was_never_written = entry.said.names().is_empty() && !entry.said.is_refused();
        self.counts.outrun += u64::from(was_never_written);
        self.is_over(Some(entry.stuck.pod), entry.stuck.cause, &entry.said, now);
    }

    /// Queues the removal of Events. Another verdict about the pod may follow at once, so [`Board::due`] decides
    /// whether the pod is released.
    fn is_over(&mut self, pod: Option<Pod>, cause: String, said: &Said, now: Duration) {
        let (names, is_sure) = (said.names(), pod.is_none() || said.posted.is_some());
        if names.is_empty() {
            return;
        }
        if self.over.is_empty() {
            self.over_next = self.over_next.max(now + OVER_EVERY.mul_f64(self.random));
        }
        let namespace = pod.as_ref().map_or(OF_NODES, |pod| &pod.namespace).into();
        let (is_released, denials) = (false, 0);
        self.over.push_back(Over { cause, namespace, names, is_sure, pod, is_released, denials });
    }

    fn has_new(&self) -> bool {
        self.stuck.values().any(Entry::is_pending)
    }

    /// The next write that is due, if any. Call [`Board::done`] with its outcome before the next call.
    pub(crate) fn due(&mut self, now: Duration) -> Option<Write> {
        if now >= SETTLE {
            for (pod, cause, posted) in std::mem::take(&mut self.before.pods) {
                let said = Said::of(posted);
                self.is_over(Some(pod), cause, &said, now);
            }
        }
        self.drop_counts_of_node(now);
        if now < self.closed_until {
            return None;
        }
        if now >= self.over_next
            && let Some(over) = self.over.front().cloned()
        {
            self.over_next = now + OVER_EVERY;
            let held = |pod: &Pod| self.stuck.values().any(|it| it.stuck.pod.uid == pod.uid);
            let is_released = over.pod.as_ref().is_some_and(|pod| !held(pod));
            return Some(Write::Over(Over { is_released, ..over }));
        }
        if now < self.next {
            return None;
        }
        let write = self
            .of_node(now)
            .or_else(|| self.renewal(now, LATEST))
            .or_else(|| self.of_pod())
            .or_else(|| self.renewal(now, RENEW))?;
        self.next = now + EVERY;
        Some(write)
    }

    fn drop_counts_of_node(&mut self, now: Duration) {
        if self.of_node.is_empty() && self.before.node.is_empty() {
            return;
        }
        let several: BTreeSet<String> = {
            let causes = by_cause(&self.stuck);
            causes
                .iter()
                .filter(|(_, pods)| pods.len() > 1)
                .map(|(it, _)| (*it).to_owned())
                .collect()
        };
        let gone: Vec<String> =
            self.of_node.keys().filter(|cause| !several.contains(*cause)).cloned().collect();
        for cause in gone {
            if let Some(OfNode { said, .. }) = self.of_node.remove(&cause) {
                self.is_over(None, cause, &said, now);
            }
        }
        let left = std::mem::take(&mut self.before.node);
        for (cause, posted) in left {
            if several.contains(&cause) {
                // The count in the Event may be outdated; 0 makes `of_node` correct it.
                self.of_node.entry(cause).or_default().said.add(posted);
            } else if now >= SETTLE {
                let said = Said::of(posted);
                self.is_over(None, cause, &said, now);
            } else {
                self.before.node.push((cause, posted));
            }
        }
    }

    fn of_node(&mut self, now: Duration) -> Option<Write> {
        // The end of an outage changes the counts of all nodes at once, and most pods go within a minute.
        let settled = now + EVERY.mul_f64(1.0 + self.random);
        let is_due = |known: &mut OfNode, pods: usize| match &known.said.posted {
            _ if known.said.is_refused() => false,
            None => true,
            Some(_) if known.pods == pods => {
                known.recount = None;
                false
            }
            Some(posted) => {
                let is_old = posted.at.is_none_or(|at| now.saturating_sub(at) >= RECOUNT);
                *known.recount.get_or_insert(settled) <= now && is_old
            }
        };
        let causes = by_cause(&self.stuck);
        let mut several = causes.iter().filter(|(_, pods)| pods.len() > 1);
        let (cause, pods) = several.find(|(cause, pods)| {
            self.of_node.get_mut(**cause).is_none_or(|known| is_due(known, pods.len()))
        })?;
        let count = pods.len();
        let names: Vec<String> = pods
            .iter()
            .take(NAMED)
            .map(|it| format!("{}/{}", it.pod.namespace, it.pod.name))
            .collect();
        let rest = count.saturating_sub(NAMED);
        let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        let note = format!("{count} pods are stuck by {cause}: {}{rest}", names.join(", "));
        let name = event_name(&self.node, &[&self.node, cause, &count.to_string()]);
        let cause = (*cause).to_owned();
        let replaces = self.of_node.entry(cause.clone()).or_default().said.begin(&name);
        Some(Write::Node { cause, name, note, replaces })
    }

    /// The first pod without an Event, or with an Event of another verdict. Those that were denied come last.
    fn of_pod(&mut self) -> Option<Write> {
        let due = self.stuck.values_mut().filter(|entry| entry.is_due());
        let entry = due.min_by_key(|entry| entry.said.denials)?;
        let replaces = entry.said.begin(&entry.stuck.event_name());
        Some(Write::Pod { stuck: Box::new(entry.stuck.clone()), replaces })
    }

    /// An Event of this age. After a restart, its age is unknown and may be as much as [`RENEW`].
    fn renewal(&self, now: Duration, age: Duration) -> Option<Write> {
        let pods = self.stuck.values().filter_map(|entry| {
            Some((entry.stuck.pod.namespace.as_str(), entry.said.posted.as_ref()?))
        });
        let of_node = self.of_node.values();
        let of_node = of_node.filter_map(|known| Some((OF_NODES, known.said.posted.as_ref()?)));
        let is_old =
            |posted: &Posted| posted.at.map_or(now + RENEW, |at| now.saturating_sub(at)) >= age;
        let (namespace, posted) = pods.chain(of_node).find(|(_, posted)| is_old(posted))?;
        let (namespace, name) = (namespace.to_owned(), posted.name.clone());
        Some(Write::Renew { namespace, name, count: posted.count.saturating_add(1).max(2) })
    }

    /// Processes the outcome of a write.
    pub(crate) fn done(&mut self, write: Write, outcome: Outcome, now: Duration) {
        match outcome {
            Outcome::Later | Outcome::Denied => {
                self.failures = (self.failures + 1).min(4);
                // Back-off: 1, 2, 4, 8 minutes.
                self.closed_until = now + EVERY * (1 << (self.failures - 1));
                self.failed(write, outcome == Outcome::Denied);
            }
            Outcome::Done | Outcome::Gone | Outcome::Refused => {
                self.failures = 0;
                self.counts.written += u64::from(outcome == Outcome::Done);
                self.counts.refused += u64::from(outcome == Outcome::Refused);
                self.answered(write, outcome, now);
            }
        }
    }

    /// Another write may come first next time: this one must not stop all others.
    fn failed(&mut self, write: Write, is_denied: bool) {
        let said = match write {
            Write::Over(over) => {
                self.over.pop_front();
                let over = Over { denials: over.denials + u8::from(is_denied), ..over };
                if over.denials < DENIALS {
                    self.over.push_back(over);
                }
                return;
            }
            Write::Pod { stuck, .. } => self.entry(&stuck).map(|entry| &mut entry.said),
            Write::Node { cause, .. } => self.of_node.get_mut(&cause).map(|known| &mut known.said),
            Write::Renew { .. } => return,
        };
        // The cause may have ended while the request was under way.
        let Some(said) = said else { return };
        if is_denied {
            said.is_denied()
        } else {
            said.is_unanswered()
        }
        self.counts.refused += u64::from(is_denied && said.is_refused());
    }

    fn answered(&mut self, write: Write, outcome: Outcome, now: Duration) {
        let is_done = outcome == Outcome::Done;
        match write {
            Write::Pod { stuck, .. } => match self.entry(&stuck) {
                Some(entry) if is_done => entry.said.is_there(stuck.event_name(), now),
                Some(entry) => entry.said.is_refused_for_good(),
                // The cause ended while the request was under way.
                None => {}
            },
            Write::Node { cause, name, .. } => {
                // A refused Event counts as written, too: it is only retried with another count.
                let pods = by_cause(&self.stuck).get(cause.as_str()).map_or(0, Vec::len);
                if let Some(known) = self.of_node.get_mut(&cause) {
                    known.said.is_there(name, now);
                    (known.pods, known.recount) = (pods, None);
                }
            }
            Write::Renew { name, count, .. } => {
                let pods = self.stuck.values_mut().map(|entry| &mut entry.said);
                let of_node = self.of_node.values_mut().map(|known| &mut known.said);
                let mut posted = pods.chain(of_node).map(|said| &mut said.posted);
                let is_it = |posted: &&mut Option<Posted>| {
                    posted.as_ref().is_some_and(|posted| posted.name == name)
                };
                let Some(posted) = posted.find(is_it) else { return };
                let renewed = Posted { name, count, at: Some(now) };
                *posted = (outcome != Outcome::Gone).then_some(renewed);
            }
            Write::Over(_) => {
                self.over.pop_front();
                self.counts.outrun += u64::from(outcome == Outcome::Gone);
            }
        }
    }

    fn entry(&mut self, stuck: &Stuck) -> Option<&mut Entry> {
        let key = self.keys.get(&(stuck.pod.uid.clone(), stuck.cause.clone()))?;
        self.stuck.get_mut(key)
    }

    /// The state to save for the next agent.
    pub(crate) fn memory(&self) -> Memory {
        let mut memory = self.before.clone();
        for entry in self.stuck.values() {
            let about = |posted| (entry.stuck.pod.clone(), entry.stuck.cause.clone(), posted);
            memory.pods.extend(entry.said.remembered().map(about));
        }
        for over in &self.over {
            let posted = |name: &String| Posted { name: name.clone(), count: 1, at: None };
            let (posted, cause) = (over.names.iter().map(posted), &over.cause);
            match &over.pod {
                Some(pod) => {
                    memory.pods.extend(posted.map(|posted| (pod.clone(), cause.clone(), posted)));
                }
                None => memory.node.extend(posted.map(|posted| (cause.clone(), posted))),
            }
        }
        for (cause, known) in &self.of_node {
            memory.node.extend(known.said.remembered().map(|posted| (cause.clone(), posted)));
        }
        memory
    }

    /// The stuck pods, the longest stuck first.
    pub(crate) fn stuck(&self) -> impl Iterator<Item = &Stuck> {
        self.stuck.values().map(|entry| &entry.stuck)
    }

    /// Number of findings without an Event.
    pub(crate) fn pending(&self) -> usize {
        self.stuck.values().filter(|entry| entry.is_pending()).count()
    }

    /// The counters.
    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }
}

/// The pods that each cause holds, the longest stuck first.
fn by_cause(stuck: &BTreeMap<u64, Entry>) -> BTreeMap<&str, Vec<&Stuck>> {
    let mut causes: BTreeMap<&str, Vec<&Stuck>> = BTreeMap::new();
    for entry in stuck.values() {
        causes.entry(&entry.stuck.cause).or_default().push(&entry.stuck);
    }
    causes
}

/// Namespace of Events about nodes. API servers before 1.21 accept an `events.k8s.io` Event about an object without a
/// namespace only here, later ones also in `default` (`legacyValidateEvent`). `kubectl describe node` reads all
/// namespaces.
pub(crate) const OF_NODES: &str = "kube-system";

#[cfg(test)]
#[path = "board_tests.rs"]
mod tests;
