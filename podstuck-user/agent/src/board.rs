//! Which Event is written next. Decides by findings and the time alone; what writes is `events.rs`.
//!
//! A node writes at most one new Event a minute, the first after a random part of that, so that an outage which holds
//! thousands of pods at once reaches the API server as a trickle. Of a cause that holds several pods, the Event of the
//! node comes first and counts them; then come the pods', the longest stuck first. What is over does not wait for
//! that turn.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    line::Finding,
    stuck::{Pod, Stuck, event_name},
};

/// Between two new Events, or renewals of old ones.
pub(crate) const EVERY: Duration = Duration::from_secs(60);
/// Between two writes about what is over, after the first [`AT_ONCE`].
const OVER_EVERY: Duration = Duration::from_secs(12);
/// Writes about what is over that need not wait.
const AT_ONCE: u32 = 5;
/// The API server forgets an Event after an hour.
const RENEW: Duration = Duration::from_secs(30 * 60);
/// How soon the count in a node's Event is corrected.
const RECOUNT: Duration = Duration::from_secs(10 * 60);
/// A finding of the agent that ran before may take so long to be made again.
const SETTLE: Duration = Duration::from_secs(5 * 60);
/// Pods that the Event of a node names.
const NAMED: usize = 10;
/// Findings remembered.
pub(crate) const REMEMBERED: usize = 10_000;

/// An Event that is in the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Posted {
    /// Its name.
    pub(crate) name: String,
    /// How often it was written.
    pub(crate) count: i32,
    /// When it was written last, by the agent's own clock. Unknown after a restart: then it is renewed.
    #[serde(skip)]
    pub(crate) at: Option<Duration>,
}

/// What the API server is to be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// A new Event about a pod, in place of an older verdict's.
    Pod { stuck: Box<Stuck>, replaces: Option<String> },
    /// A new Event about the node, with the number of pods that this cause holds. It replaces the one with another count.
    Node { cause: String, name: String, note: String, replaces: Option<String> },
    /// An Event that would be forgotten.
    Renew { namespace: String, name: String, count: i32 },
    /// What an Event says holds no more; with the pod, if nothing else holds it.
    Over { namespace: String, name: String, released: Option<Pod>, cause: String },
}

/// What came of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is as was asked for.
    Done,
    /// There is no such Event any more.
    Gone,
    /// Never will be: the namespace is being deleted, or the right is missing.
    Refused,
    /// The API server did not answer, or has no time.
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

/// Counted, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Events written.
    pub(crate) written: u64,
    /// Findings that were over before it was their turn.
    pub(crate) outrun: u64,
    /// Findings of which the API server takes no Event.
    pub(crate) refused: u64,
    /// Findings that found no room.
    pub(crate) dropped: u64,
}

/// What an agent that restarts has to know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// Events about pods: pod, cause, Event.
    pub(crate) pods: Vec<(Pod, String, Posted)>,
    /// Events about the node: cause, Event.
    pub(crate) node: Vec<(String, Posted)>,
}

/// All that is stuck on a node, and which Events say so.
#[derive(Debug)]
pub(crate) struct Board {
    node: String,
    /// By age, which is the order of keys, and what it is.
    stuck: BTreeMap<u64, Entry>,
    keys: BTreeMap<(String, String), u64>,
    next_key: u64,
    of_node: BTreeMap<String, OfNode>,
    over: VecDeque<Write>,
    /// Events of the agent that ran before.
    before: Memory,
    next: Duration,
    over_next: Duration,
    failures: u32,
    counts: Counts,
}

impl Board {
    /// Of a node, by what an agent that ran before has left.
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

    /// Takes a finding. `random` is below 1.
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
            // What is refused stays so: a namespace that is being deleted is not taken back.
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

    /// Another verdict about the pod may follow at once, so whether it is released is decided when this is written.
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

    /// What is to be written now, if anything. To be answered by [`Board::done`] before the next.
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

    /// How many pods each cause holds, and the first of them.
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
                // With the count of then: it is corrected in its turn.
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

    /// One that no Event names yet, or names with another verdict.
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

    /// Takes what came of a write.
    pub(crate) fn done(&mut self, write: Write, outcome: Outcome, now: Duration) {
        if outcome == Outcome::Later {
            self.failures = (self.failures + 1).min(4);
            // One, two, four ... minutes.
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
                    // It was over while the API server took it.
                    None if is_done => self.is_over(stuck.pod, stuck.cause, posted),
                    None => {}
                }
            }
            Write::Node { cause, name, .. } => {
                // One that is refused counts as written, too: it is asked for again with another count only.
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

    /// What the next agent has to know.
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

    /// What is stuck now, the longest first.
    pub(crate) fn stuck(&self) -> impl Iterator<Item = &Stuck> {
        self.stuck.values().map(|entry| &entry.stuck)
    }

    /// Findings that wait for their Event.
    pub(crate) fn pending(&self) -> usize {
        self.stuck.values().filter(|entry| entry.posted.is_none() && !entry.refused).count()
    }

    /// What was counted.
    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }
}

/// Where Events about a node are. API servers before 1.21 take an `events.k8s.io` Event about an object without a
/// namespace here alone, later ones also in `default` (`legacyValidateEvent`). `kubectl describe node` reads all
/// namespaces.
pub(crate) const OF_NODES: &str = "kube-system";

#[cfg(test)]
#[path = "board_tests.rs"]
mod tests;
