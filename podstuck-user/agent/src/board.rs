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
    stuck::{Pod, Stuck, event_name},
};

/// Interval between two new Events or renewals.
pub(crate) const EVERY: Duration = Duration::from_secs(60);
/// Interval between two writes about causes that are over, after the first [`AT_ONCE`].
const OVER_EVERY: Duration = Duration::from_secs(12);
/// Number of writes about causes that are over that may follow each other directly.
const AT_ONCE: u32 = 5;
/// Age at which an Event is renewed. The API server deletes an Event after an hour.
const RENEW: Duration = Duration::from_secs(30 * 60);
/// Minimum interval between corrections of the count in a node's Event.
const RECOUNT: Duration = Duration::from_secs(10 * 60);
/// Time within which a restarted agent's watch repeats the findings of the previous run.
const SETTLE: Duration = Duration::from_secs(5 * 60);
/// Maximum number of pods that a node's Event names.
const NAMED: usize = 10;
/// Maximum number of remembered findings.
pub(crate) const REMEMBERED: usize = 10_000;

/// An Event in the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Posted {
    /// Its name.
    pub(crate) name: String,
    /// Number of times that it was written.
    pub(crate) count: i32,
    /// Time of the last write, by the agent's own clock. `None` after a restart; then the Event is renewed.
    #[serde(skip)]
    pub(crate) at: Option<Duration>,
}

/// A request to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// A new Event about a pod. `replaces` is the Event of an older verdict.
    Pod { stuck: Box<Stuck>, replaces: Option<String> },
    /// A new Event about the node, with the number of pods that this cause holds. `replaces` is the Event with
    /// another number.
    Node { cause: String, name: String, note: String, replaces: Option<String> },
    /// Renews an Event before the API server deletes it.
    Renew { namespace: String, name: String, count: i32 },
    /// The cause is over, so its Event is removed. `released` is the pod, if no other cause holds it.
    Over { namespace: String, name: String, released: Option<Pod>, cause: String },
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The write succeeded.
    Done,
    /// The Event no longer exists.
    Gone,
    /// The API server refused it permanently: the namespace is being deleted, or the right is missing.
    Refused,
    /// The API server did not answer or is overloaded.
    Later,
}

#[derive(Debug)]
struct Entry {
    stuck: Stuck,
    posted: Option<Posted>,
    refused: bool,
}

#[derive(Debug)]
struct OfNode {
    posted: Posted,
    pods: usize,
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
    over: VecDeque<Write>,
    /// Events of the previous agent that no finding has claimed yet.
    before: Memory,
    next: Duration,
    over_next: Duration,
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
            failures: 0,
            counts: Counts::default(),
        }
    }

    /// Processes a finding. `random` is in 0..1.
    pub(crate) fn take(&mut self, finding: &Finding, now: Duration, random: f64) {
        match Stuck::of(finding) {
            Some(stuck) => self.add(stuck, now, random),
            None => {
                let uid = finding.pod.as_ref().map_or("", |pod| &pod.uid);
                self.remove(uid, &finding.id);
            }
        }
    }

    fn add(&mut self, stuck: Stuck, now: Duration, random: f64) {
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
            self.next = self.next.max(now + EVERY.mul_f64(random));
        }
        let is_same = |(pod, cause, _): &(Pod, String, Posted)| {
            pod.uid == stuck.pod.uid && *cause == stuck.cause
        };
        let at = self.before.pods.iter().position(is_same);
        let posted = at.map(|at| self.before.pods.remove(at).2);
        self.keys.insert(key, self.next_key);
        self.stuck.insert(self.next_key, Entry { stuck, posted, refused: false });
        self.next_key += 1;
    }

    fn remove(&mut self, uid: &str, cause: &str) {
        let key = self.keys.remove(&(uid.to_owned(), cause.to_owned()));
        let Some(entry) = key.and_then(|key| self.stuck.remove(&key)) else { return };
        match entry.posted {
            Some(posted) => self.is_over(entry.stuck.pod, entry.stuck.cause, posted),
            None if !entry.refused => self.counts.outrun += 1,
            None => {}
        }
    }

    /// Queues the removal of an Event. Another verdict about the pod may follow at once, so [`Board::due`] decides
    /// whether the pod is released.
    fn is_over(&mut self, pod: Pod, cause: String, posted: Posted) {
        let namespace = pod.namespace.clone();
        self.over.push_back(Write::Over {
            namespace,
            name: posted.name,
            released: Some(pod),
            cause,
        });
    }

    fn has_new(&self) -> bool {
        self.stuck.values().any(|entry| entry.posted.is_none() && !entry.refused)
    }

    /// The next write that is due, if any. Call [`Board::done`] with its outcome before the next call.
    pub(crate) fn due(&mut self, now: Duration) -> Option<Write> {
        if now >= SETTLE {
            for (pod, cause, posted) in std::mem::take(&mut self.before.pods) {
                self.is_over(pod, cause, posted);
            }
        }
        self.drop_counts_of_node(now);
        if now + OVER_EVERY * AT_ONCE >= self.over_next + OVER_EVERY
            && let Some(write) = self.over.pop_front()
        {
            self.over_next = self.over_next.max(now) + OVER_EVERY;
            return Some(self.decided(write));
        }
        if now < self.next {
            return None;
        }
        let write = self.of_node(now).or_else(|| self.of_pod()).or_else(|| self.renewal(now))?;
        self.next = now + EVERY;
        Some(write)
    }

    fn decided(&self, write: Write) -> Write {
        match write {
            Write::Over { namespace, name, released, cause } => {
                let held = |pod: &Pod| self.stuck.values().any(|it| it.stuck.pod.uid == pod.uid);
                let released = released.filter(|pod| !held(pod));
                Write::Over { namespace, name, released, cause }
            }
            write => write,
        }
    }

    /// The pods that each cause holds, the longest stuck first.
    fn by_cause(&self) -> BTreeMap<&str, Vec<&Stuck>> {
        let mut causes: BTreeMap<&str, Vec<&Stuck>> = BTreeMap::new();
        for entry in self.stuck.values() {
            causes.entry(&entry.stuck.cause).or_default().push(&entry.stuck);
        }
        causes
    }

    fn drop_counts_of_node(&mut self, now: Duration) {
        if self.of_node.is_empty() && self.before.node.is_empty() {
            return;
        }
        let several: BTreeSet<String> = {
            let causes = self.by_cause();
            causes
                .iter()
                .filter(|(_, pods)| pods.len() > 1)
                .map(|(it, _)| (*it).to_owned())
                .collect()
        };
        let gone: Vec<String> =
            self.of_node.keys().filter(|cause| !several.contains(*cause)).cloned().collect();
        for cause in gone {
            if let Some(OfNode { posted, .. }) = self.of_node.remove(&cause) {
                self.over_of_node(cause, posted);
            }
        }
        let left = std::mem::take(&mut self.before.node);
        for (cause, posted) in left {
            if several.contains(&cause) {
                // The count in the Event may be outdated; 0 makes `of_node` correct it.
                self.of_node.insert(cause, OfNode { posted, pods: 0 });
            } else if now >= SETTLE {
                self.over_of_node(cause, posted);
            } else {
                self.before.node.push((cause, posted));
            }
        }
    }

    fn over_of_node(&mut self, cause: String, posted: Posted) {
        let (namespace, name) = (OF_NODES.into(), posted.name);
        self.over.push_back(Write::Over { namespace, name, released: None, cause });
    }

    fn of_node(&self, now: Duration) -> Option<Write> {
        let is_stale = |known: &OfNode, pods: usize| {
            known.pods != pods && known.posted.at.is_none_or(|at| now.saturating_sub(at) >= RECOUNT)
        };
        let causes = self.by_cause();
        let mut several = causes.iter().filter(|(_, pods)| pods.len() > 1);
        let (cause, pods) = several.find(|(cause, pods)| {
            self.of_node.get(**cause).is_none_or(|known| is_stale(known, pods.len()))
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
        let replaces = self.of_node.get(*cause).map(|known| known.posted.name.clone());
        let replaces = replaces.filter(|old| *old != name);
        Some(Write::Node { cause: (*cause).into(), name, note, replaces })
    }

    /// The first pod without an Event, or with an Event of another verdict.
    fn of_pod(&self) -> Option<Write> {
        let is_due = |entry: &&Entry| {
            let is_right = |posted: &Posted| posted.name == entry.stuck.event_name();
            !entry.refused && !entry.posted.as_ref().is_some_and(is_right)
        };
        let entry = self.stuck.values().find(is_due)?;
        let replaces = entry.posted.as_ref().map(|posted| posted.name.clone());
        Some(Write::Pod { stuck: Box::new(entry.stuck.clone()), replaces })
    }

    fn renewal(&self, now: Duration) -> Option<Write> {
        let pods = self
            .stuck
            .values()
            .filter_map(|entry| Some((entry.stuck.pod.namespace.as_str(), entry.posted.as_ref()?)));
        let of_node = self.of_node.values().map(|known| (OF_NODES, &known.posted));
        let is_old = |posted: &Posted| posted.at.is_none_or(|at| now.saturating_sub(at) >= RENEW);
        let (namespace, posted) = pods.chain(of_node).find(|(_, posted)| is_old(posted))?;
        let (namespace, name) = (namespace.to_owned(), posted.name.clone());
        Some(Write::Renew { namespace, name, count: posted.count.saturating_add(1).max(2) })
    }

    /// Processes the outcome of a write.
    pub(crate) fn done(&mut self, write: Write, outcome: Outcome, now: Duration) {
        if outcome == Outcome::Later {
            self.failures = (self.failures + 1).min(4);
            // Back-off: 1, 2, 4, 8 minutes.
            self.next = now + EVERY * (1 << (self.failures - 1));
            if let Write::Over { .. } = write {
                self.over_next = self.next + OVER_EVERY * AT_ONCE;
                self.over.push_front(write);
            }
            return;
        }
        self.failures = 0;
        let is_done = outcome == Outcome::Done;
        self.counts.written += u64::from(is_done);
        self.counts.refused += u64::from(outcome == Outcome::Refused);
        match write {
            Write::Pod { stuck, .. } => {
                let key = self.keys.get(&(stuck.pod.uid.clone(), stuck.cause.clone()));
                let posted = Posted { name: stuck.event_name(), count: 1, at: Some(now) };
                match key.and_then(|key| self.stuck.get_mut(key)) {
                    Some(entry) if is_done => entry.posted = Some(posted),
                    Some(entry) => entry.refused = true,
                    // The cause ended while the request was under way.
                    None if is_done => self.is_over(stuck.pod, stuck.cause, posted),
                    None => {}
                }
            }
            Write::Node { cause, name, .. } => {
                // A refused Event counts as written, too: it is only retried with another count.
                let pods = self.by_cause().get(cause.as_str()).map_or(0, Vec::len);
                let posted = Posted { name, count: 1, at: Some(now) };
                self.of_node.insert(cause, OfNode { posted, pods });
            }
            Write::Renew { name, .. } if outcome == Outcome::Gone => {
                self.of_node.retain(|_, known| known.posted.name != name);
                let mut pods = self.stuck.values_mut();
                let is_it = |entry: &&mut Entry| {
                    entry.posted.as_ref().is_some_and(|posted| posted.name == name)
                };
                if let Some(entry) = pods.find(is_it) {
                    entry.posted = None;
                }
            }
            Write::Renew { name, count, .. } => {
                let pods = self.stuck.values_mut().filter_map(|entry| entry.posted.as_mut());
                let of_node = self.of_node.values_mut().map(|known| &mut known.posted);
                let mut all = pods.chain(of_node);
                if let Some(posted) = all.find(|posted| posted.name == name) {
                    (posted.count, posted.at) = (count, Some(now));
                }
            }
            Write::Over { .. } => {}
        }
    }

    /// The state to save for the next agent.
    pub(crate) fn memory(&self) -> Memory {
        let mut memory = self.before.clone();
        for entry in self.stuck.values() {
            if let Some(posted) = &entry.posted {
                let (pod, cause) = (entry.stuck.pod.clone(), entry.stuck.cause.clone());
                memory.pods.push((pod, cause, posted.clone()));
            }
        }
        for write in &self.over {
            if let Write::Over { name, released: Some(pod), cause, .. } = write {
                let posted = Posted { name: name.clone(), count: 1, at: None };
                memory.pods.push((pod.clone(), cause.clone(), posted));
            }
        }
        let of_node = self.of_node.iter();
        memory.node.extend(of_node.map(|(cause, known)| (cause.clone(), known.posted.clone())));
        memory
    }

    /// The stuck pods, the longest stuck first.
    pub(crate) fn stuck(&self) -> impl Iterator<Item = &Stuck> {
        self.stuck.values().map(|entry| &entry.stuck)
    }

    /// Number of findings without an Event.
    pub(crate) fn pending(&self) -> usize {
        self.stuck.values().filter(|entry| entry.posted.is_none() && !entry.refused).count()
    }

    /// The counters.
    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }
}

/// Namespace of Events about nodes. API servers before 1.21 accept an `events.k8s.io` Event about an object without a
/// namespace only here, later ones also in `default` (`legacyValidateEvent`). `kubectl describe node` reads all
/// namespaces.
pub(crate) const OF_NODES: &str = "kube-system";

#[cfg(test)]
#[path = "board_tests.rs"]
mod tests;
