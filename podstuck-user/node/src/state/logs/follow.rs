//! Reads the logs of the node's daemons repeatedly, each from where the last read ended, with one helper process per
//! log and the same bounds each time. A read passes on to the next one the unfinished entry, the deleted pods and the
//! pods of containers.
//!
//! The kernel's log is read once: a run drops the right to read it when it begins.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use podstuck_common::record::Caller;
use podstuck_model::bounded::Bounded;

use super::{
    Answered, Attempt, Lines, Logs, Place, ReadKernelLog, ReadLog, ReadRuntimeLog, caller, klog,
    lines,
    mark::Mark,
    outcome,
    place::Left,
    read::{Open, Part},
};
use crate::identity::{
    on_host,
    runtimes::{Daemons, daemons_among},
    trust::Belief,
};
use podstuck_confine::{back_off::BackOff, helper::ask_in_parts, proc};
use podstuck_model::{
    identity::Component,
    said::{Heard, Said},
};

/// Interval between two searches for daemons.
const DAEMONS_EVERY: Duration = Duration::from_secs(10);
/// Time that the logs of all daemons that are no services may take together in one read: there may be many.
const SHARE: Duration = Duration::from_secs(2);
/// Containers and sandboxes whose pods are remembered: several of each pod of a large node.
const IDS: usize = 2048;

/// A daemon: its process id and start time.
type Daemon = (u32, Option<u64>);

/// What is kept of a log from one read to the next.
struct Log<T> {
    /// Name of the log, once it was read.
    source: Option<String>,
    /// Where it is when its process has ended.
    left: Option<Left>,
    after: Option<T>,
    back_off: BackOff,
}

impl<T> Log<T> {
    /// Continues the log of an earlier daemon.
    fn after(before: Option<Self>) -> Self {
        let after = before.and_then(|log| log.after);
        Self { source: None, left: None, after, back_off: BackOff::default() }
    }
}

/// Reads the logs of all daemons of the node.
pub struct Follower {
    host_root: PathBuf,
    kubelets: BTreeMap<Daemon, Log<Box<Open>>>,
    /// The log of the kubelet that ran last, or of the node's service, while none runs.
    left: Option<Log<Box<Open>>>,
    runtimes: BTreeMap<Daemon, (Component, Log<Mark>)>,
    /// Id of a container or a sandbox to the UID of its pod.
    ids: Bounded<String, String, IDS>,
    /// The daemons that are services of the node.
    services: BTreeSet<u32>,
    looked: Option<Instant>,
    names: proc::Names,
}

impl Follower {
    /// A follower that reads each log from its end at first.
    pub fn new(host_root: &Path) -> Self {
        Self {
            host_root: host_root.into(),
            kubelets: BTreeMap::new(),
            left: None,
            runtimes: BTreeMap::new(),
            ids: Bounded::default(),
            services: BTreeSet::new(),
            looked: None,
            names: proc::Names::default(),
        }
    }

    /// The same as [`Self::read`], and the kernel's log.
    pub fn read_all(&mut self) -> Logs {
        let mut logs = self.read();
        logs.read_kernels(&self.host_root);
        logs
    }

    /// Reads the end of each log that was not read before, and what is new in the others. Takes two seconds for each
    /// log that does not answer.
    pub fn read(&mut self) -> Logs {
        let now = Instant::now();
        // A kubelet that ends at its start is gone before the next search.
        let has_ended = self.kubelets.keys().any(|daemon| !is_running(*daemon));
        if has_ended || self.looked.is_none_or(|last| now.duration_since(last) >= DAEMONS_EVERY) {
            self.looked = Some(now);
            self.find_daemons();
        }
        let mut logs = Logs::default();
        // A log that is left out now is continued by the next read.
        let may_read = |is_service| is_service || now.elapsed() < SHARE;
        // kubelet's logs first: they map containers to pods, and the runtimes' logs name only containers.
        for (daemon, is_service, log) in services_first(&mut self.kubelets, &self.services) {
            if may_read(is_service) && log.back_off.is_due(now) && is_running(*daemon) {
                logs.read_kubelets(&self.host_root, daemon.0, log, &mut self.ids);
            }
        }
        if let Some(log) = &mut self.left
            && log.back_off.is_due(now)
        {
            logs.read_kubelets(&self.host_root, 0, log, &mut self.ids);
        }
        let mut seen = BTreeSet::new();
        for (daemon, is_service, (component, log)) in
            services_first(&mut self.runtimes, &self.services)
        {
            if may_read(is_service) && log.back_off.is_due(now) && is_running(*daemon) {
                let whose = (daemon.0, *component);
                logs.read_runtimes(&self.host_root, whose, log, &mut self.ids, &mut seen);
            }
        }
        logs
    }

    /// Finds the running daemons. One that was restarted continues the log of the one before.
    fn find_daemons(&mut self) {
        let proc = on_host(&self.host_root, Path::new("/proc"));
        let daemons = daemons_among(&proc, &mut self.names);
        let is_service = |pid: &u32| daemons.belief(*pid) == Belief::Service;
        self.services = daemons.standings.keys().copied().filter(is_service).collect();
        let Daemons { kubelets, runtimes, .. } = daemons;
        let now = |pid: u32| (pid, proc::started(pid));
        let kubelets: BTreeSet<Daemon> = kubelets.into_iter().map(now).collect();
        let mut gone = take_others(&mut self.kubelets, &kubelets);
        if kubelets.is_empty() {
            // The last one's, or that of the services which may contain one.
            let last = gone.pop().map(|(_, log)| log).filter(|log| log.left.is_some());
            let of_services = || Log { left: Some(Left::Journal(Vec::new())), ..Log::after(None) };
            self.left = Some(last.or(self.left.take()).unwrap_or_else(of_services));
        }
        for daemon in kubelets {
            let log = || Log::after(gone.pop().map(|(_, log)| log).or(self.left.take()));
            self.kubelets.entry(daemon).or_insert_with(log);
        }
        let runtimes: BTreeMap<Daemon, Component> =
            runtimes.into_iter().map(|(pid, component)| (now(pid), component)).collect();
        let mut gone = take_others(&mut self.runtimes, &runtimes.keys().copied().collect());
        for (daemon, component) in runtimes {
            self.runtimes.entry(daemon).or_insert_with(|| {
                let before = gone.iter().position(|(_, (was, _))| *was == component);
                (component, Log::after(before.map(|at| gone.swap_remove(at).1.1)))
            });
        }
    }
}

/// All logs, those of services first, each with whether it is a service's.
fn services_first<'a, T>(
    logs: &'a mut BTreeMap<Daemon, T>,
    services: &BTreeSet<u32>,
) -> Vec<(&'a Daemon, bool, &'a mut T)> {
    let all = logs.iter_mut().map(|(daemon, log)| (daemon, services.contains(&daemon.0), log));
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(_, is_service, _)| !is_service);
    all
}

/// Whether the process id still belongs to this daemon.
fn is_running((pid, started): Daemon) -> bool {
    proc::started(pid) == started
}

/// Removes and returns the daemons that are not in `these`.
fn take_others<T>(known: &mut BTreeMap<Daemon, T>, these: &BTreeSet<Daemon>) -> Vec<(Daemon, T)> {
    let gone: Vec<Daemon> = known.keys().filter(|it| !these.contains(it)).copied().collect();
    gone.into_iter().filter_map(|daemon| known.remove_entry(&daemon)).collect()
}

impl Logs {
    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.attempts.is_empty() && self.heard.is_empty()
    }

    fn read_kubelets(
        &mut self,
        host_root: &Path,
        pid: u32,
        log: &mut Log<Box<Open>>,
        ids: &mut Bounded<String, String, IDS>,
    ) {
        let (caller, now) = (caller(pid), Timestamp::now());
        // A process's own log is looked up at each read: its unit may have been changed.
        let left = log.left.clone().filter(|_| pid == 0);
        let after = log.after.take();
        let question = ReadLog { host_root: host_root.into(), pid, left, now, after };
        let after = question.after.clone();
        let (mut next, mut lines) = (None, Lines::default());
        let answer = ask_in_parts(question, |part| match part {
            Part::Next(open) => next = Some(open),
            Part::Left(left) => log.left = Some(left),
            Part::Lines(found) => lines = found,
            Part::Pods(pods) => self.pods.extend(pods),
            Part::Containers(named) => {
                named.into_iter().for_each(|(id, uid)| ids.insert(id, uid));
            }
            Part::Heard(heard) => self.heard.push(heard),
            Part::Attempts(attempts) => {
                let whole = |(said, call)| Attempt { pid, caller, said, call };
                self.attempts.extend(attempts.into_iter().map(whole));
            }
        });
        log.after = next.or(after);
        log.back_off.came_to(answer.is_ok());
        match &answer {
            Ok(source) => log.source = Some(source.clone()),
            // What it logs meanwhile is not known.
            Err(_) => self.heard.extend(log.source.clone().map(|source| Heard {
                source,
                since: now,
                until: now,
                names_steps: false,
            })),
        }
        // Of a kubelet that does not run, it is no loss where there is no log.
        if pid != 0 || answer.is_ok() {
            self.note(Component::Kubelet, pid, answer, lines);
        }
    }

    fn read_kernels(&mut self, host_root: &Path) {
        let answer = ask_in_parts(ReadKernelLog { host_root: host_root.into() }, |said| {
            let (pid, caller) = (0, Caller::default());
            let whole = |said| Attempt { pid, caller, said, call: None };
            self.attempts.extend(said.into_iter().map(whole));
        });
        let read = outcome("log of the kernel".into(), answer);
        self.places.push(Place { component: Component::Other, read, lines: Lines::default() });
    }

    /// `seen` are the logs that were read: two daemons of one service write to the same log.
    fn read_runtimes(
        &mut self,
        host_root: &Path,
        (pid, component): (u32, Component),
        log: &mut Log<Mark>,
        ids: &mut Bounded<String, String, IDS>,
        seen: &mut BTreeSet<String>,
    ) {
        let caller = caller(pid);
        let known = ids.iter().map(|(id, uid)| (id.clone(), uid.clone())).collect();
        let (host_root, after) = (host_root.into(), log.after.clone());
        let question = ReadRuntimeLog { host_root, pid, component, known, after };
        let mut lines = Lines::default();
        let answer = ask_in_parts(question, |part| {
            lines = part.lines;
            part.ids.into_iter().for_each(|(id, uid)| ids.insert(id, uid));
            log.after = part.next;
            if seen.insert(part.place) {
                let whole = |said: Said| {
                    let call = klog::refused_removal(&said.text);
                    Attempt { pid, caller, said, call }
                };
                self.attempts.extend(part.said.into_iter().map(whole));
            }
        });
        log.back_off.came_to(answer.is_ok());
        self.note(component, pid, answer, lines);
    }

    fn note(&mut self, component: Component, pid: u32, answer: Answered<String>, lines: Lines) {
        let read = outcome(format!("log of {} (pid {pid})", component.name()), answer);
        let lines = read.as_ref().map_or(lines, |log| lines::read(pid, log, lines));
        self.places.push(Place { component, read, lines });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_services_are_read_first() {
        let mut logs: BTreeMap<Daemon, ()> = [3, 5, 7].map(|pid| ((pid, None), ())).into();
        let order = services_first(&mut logs, &[7].into());
        let pids: Vec<(u32, bool)> =
            order.iter().map(|(daemon, is_service, ())| (daemon.0, *is_service)).collect();
        assert_eq!(pids, [(7, true), (3, false), (5, false)]);
    }
}
