//! Reads the logs of the node's daemons again and again, each from where it was read before: by a helper for
//! each, within the same bounds as the first time. What an entry goes on with, who is deleted and whose a
//! container is, one read hands to the next.
//!
//! The kernel's log is read once: a run that has begun has no right to read it any more.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use podstuck_common::record::Caller;
use podstuck_model::bounded::Bounded;

use super::{
    Answered, Attempt, Lines, Logs, Place, ReadKernelLog, ReadLog, ReadRuntimeLog, caller, lines,
    mark::Mark,
    read::{Open, Part},
    told,
};
use crate::identity::{
    on_host,
    runtimes::{Daemons, running_daemons},
    trust::Belief,
};
use podstuck_confine::{back_off::BackOff, helper::ask_in_parts, proc};
use podstuck_model::{identity::Component, said::Heard};

/// How often it is looked who runs.
const DAEMONS_EVERY: Duration = Duration::from_secs(10);
/// How long the logs of all daemons that are no services may take together in one read: there may be many.
const SHARE: Duration = Duration::from_secs(2);
/// Containers and sandboxes whose pods are remembered: several of each pod of a large node.
const IDS: usize = 2048;

/// A daemon, by its start.
type Daemon = (u32, Option<u64>);

/// What is kept of a log from one read to the next.
struct Log<T> {
    /// Which it is, once it was read.
    source: Option<String>,
    after: Option<T>,
    back_off: BackOff,
}

impl<T> Log<T> {
    /// Goes on with what another daemon has written before.
    fn after(before: Option<Self>) -> Self {
        let after = before.and_then(|log| log.after);
        Self { source: None, after, back_off: BackOff::default() }
    }
}

/// Of all daemons of the node.
pub struct Follower {
    host_root: PathBuf,
    kubelets: BTreeMap<Daemon, Log<Box<Open>>>,
    runtimes: BTreeMap<Daemon, (Component, Log<Mark>)>,
    /// By the id of a container or a sandbox: the UID of its pod.
    ids: Bounded<String, String>,
    /// Of these daemons, those that are services of the node.
    services: BTreeSet<u32>,
    looked: Option<Instant>,
}

impl Follower {
    /// Has read nothing yet.
    pub fn new(host_root: &Path) -> Self {
        Self {
            host_root: host_root.into(),
            kubelets: BTreeMap::new(),
            runtimes: BTreeMap::new(),
            ids: Bounded::new(IDS),
            services: BTreeSet::new(),
            looked: None,
        }
    }

    /// What the kernel's log says, too.
    pub fn read_all(&mut self) -> Logs {
        let mut logs = self.read();
        logs.read_kernels(&self.host_root);
        logs
    }

    /// The end of each log that was not read before, and of the others what is new. Takes two seconds for each
    /// that does not answer.
    pub fn read(&mut self) -> Logs {
        let now = Instant::now();
        if self.looked.is_none_or(|last| now.duration_since(last) >= DAEMONS_EVERY) {
            self.looked = Some(now);
            self.look();
        }
        let mut logs = Logs::default();
        // What is left for the next time goes on from there.
        let may_read = |is_service| is_service || now.elapsed() < SHARE;
        // What containers are whose, kubelet says to those who only name containers.
        for (daemon, is_service, log) in services_first(&mut self.kubelets, &self.services) {
            if may_read(is_service) && log.back_off.is_due(now) && is_running(*daemon) {
                logs.read_kubelets(&self.host_root, daemon.0, log, &mut self.ids);
            }
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

    /// Who runs now. One that was started again goes on with the log of the one before.
    fn look(&mut self) {
        let daemons = running_daemons(&on_host(&self.host_root, Path::new("/proc")));
        let is_service = |pid: &u32| daemons.belief(*pid) == Belief::Service;
        self.services = daemons.standings.keys().copied().filter(is_service).collect();
        let Daemons { kubelets, runtimes, .. } = daemons;
        let now = |pid: u32| (pid, proc::started(pid));
        let kubelets: BTreeSet<Daemon> = kubelets.into_iter().map(now).collect();
        let mut gone = take_others(&mut self.kubelets, &kubelets);
        for daemon in kubelets {
            let log = || Log::after(gone.pop().map(|(_, log)| log));
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

/// All logs, with whether they are a service's: those come first.
fn services_first<'a, T>(
    logs: &'a mut BTreeMap<Daemon, T>,
    services: &BTreeSet<u32>,
) -> Vec<(&'a Daemon, bool, &'a mut T)> {
    let all = logs.iter_mut().map(|(daemon, log)| (daemon, services.contains(&daemon.0), log));
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(_, is_service, _)| !is_service);
    all
}

/// Whether the process is still the one that was looked at.
fn is_running((pid, started): Daemon) -> bool {
    proc::started(pid) == started
}

/// Those that are none of these.
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
        ids: &mut Bounded<String, String>,
    ) {
        let (caller, now) = (caller(pid), Timestamp::now());
        let question = ReadLog { host_root: host_root.into(), pid, now, after: log.after.take() };
        let after = question.after.clone();
        let (mut next, mut lines) = (None, Lines::default());
        let answer = ask_in_parts(question, |part| match part {
            Part::Next(open) => next = Some(open),
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
            // What it says meanwhile is not known.
            Err(_) => self.heard.extend(log.source.clone().map(|source| Heard {
                source,
                since: now,
                until: now,
                names_steps: false,
            })),
        }
        self.note(Component::Kubelet, pid, answer, lines);
    }

    fn read_kernels(&mut self, host_root: &Path) {
        let answer = ask_in_parts(ReadKernelLog { host_root: host_root.into() }, |said| {
            let (pid, caller) = (0, Caller::default());
            let whole = |said| Attempt { pid, caller, said, call: None };
            self.attempts.extend(said.into_iter().map(whole));
        });
        let read = told("log of the kernel".into(), answer);
        self.places.push(Place { component: Component::Other, read, lines: Lines::default() });
    }

    /// `seen` are the logs that were read: two daemons of one service write to the same.
    fn read_runtimes(
        &mut self,
        host_root: &Path,
        (pid, component): (u32, Component),
        log: &mut Log<Mark>,
        ids: &mut Bounded<String, String>,
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
                let whole = |said| Attempt { pid, caller, said, call: None };
                self.attempts.extend(part.said.into_iter().map(whole));
            }
        });
        log.back_off.came_to(answer.is_ok());
        self.note(component, pid, answer, lines);
    }

    fn note(&mut self, component: Component, pid: u32, answer: Answered<String>, lines: Lines) {
        let read = told(format!("log of {} (pid {pid})", component.name()), answer);
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
