//! Scans processes for what the probes do not see: calls from before the start, programs that unmount where no probe
//! sees their execution, and removals that hang while they read an object.

use std::{collections::BTreeSet, path::Path, time::Duration};

use podstuck_model::bounded::Bounded;

use super::{
    anchor::Anchor,
    asleep,
    calls::{Known, known},
    followed::Followed,
    object::Object,
};
use crate::{
    identity::{component::by_name, living::may_be_root},
    state::thread::{Doing, ReadThread as _, of_process, since_boot},
};
use podstuck_confine::{proc, timed_read::TimedReader};
use podstuck_model::{
    hung::{Phase, Since},
    identity::Component,
    thread::Thread,
    time::Monotonic,
};

/// Interval between two searches for the processes that remove files, by name.
const FIND_EVERY: Duration = Duration::from_secs(5);
/// Most other processes that are scanned because they deleted something lately.
const DELETERS: usize = 32;

/// The state that is kept from one scan to the next.
#[derive(Debug)]
pub(super) struct Scan {
    threshold: Duration,
    /// Whether a probe sees the execution of programs.
    sees_exec: bool,
    found: Option<Monotonic>,
    /// Processes whose `/proc` files did not answer at the last attempt.
    unanswered: BTreeSet<u32>,
    /// Those that did not answer at the next attempt either.
    silent: BTreeSet<u32>,
    /// kubelet and the runtimes: a few.
    removers: BTreeSet<u32>,
    names: proc::Names,
    deleters: Bounded<u32, (), DELETERS>,
}

impl Scan {
    /// A scan that has seen no process yet.
    pub(super) fn new(threshold: Duration, sees_exec: bool) -> Self {
        let deleters = Bounded::default();
        let none = BTreeSet::new;
        let (unanswered, silent, removers) = (none(), none(), none());
        let (found, names) = (None, proc::Names::default());
        Self { threshold, sees_exec, found, unanswered, silent, removers, names, deleters }
    }

    /// Notes processes that delete.
    pub(super) fn deleted(&mut self, pids: impl IntoIterator<Item = u32>) {
        for pid in pids {
            self.deleters.insert(pid, ());
        }
    }

    /// All threads on the node that were in a deleting call, or about to unmount, before the probes were attached.
    pub(super) fn at_start(&mut self, reader: &mut TimedReader) -> Vec<Followed> {
        let mut found = Vec::new();
        for pid in others() {
            let first = Thread::main(pid);
            if is_unmounting(&first.comm()) && may(pid) {
                found.push(self.program(first, reader));
            }
            found.extend(self.before(pid, reader));
        }
        found
    }

    /// Threads of a process in deleting calls, from before the probes were attached. A process with a thread that does
    /// not answer is read again later: on an overloaded node any read may have no answer.
    fn before(&mut self, pid: u32, reader: &mut TimedReader) -> Vec<Followed> {
        let mut found = Vec::new();
        for thread in of_process(pid) {
            let doing = thread.doing(reader);
            if doing == Doing::Unreported {
                self.unanswered.insert(pid);
            }
            let stuck = self.in_call(thread, doing, reader, |call| call.deletes);
            found.extend(stuck.map(|it| classify(it, reader)));
        }
        found
    }

    /// Runs a scan: the threads of removing processes that are in a reading call now.
    pub(super) fn run(&mut self, now: Monotonic, reader: &mut TimedReader) -> Vec<Followed> {
        let mut found = Vec::new();
        let before_start = self.found.is_none();
        if self.found.is_none_or(|then| now.since(then) >= FIND_EVERY) {
            self.found = Some(now);
            let asked = std::mem::take(&mut self.unanswered);
            for pid in &asked {
                found.extend(self.before(*pid, reader));
            }
            // Right after the start the reason may be overload.
            if !before_start {
                self.silent = &asked & &self.unanswered;
            }
            self.removers.clear();
            let mut unmounting = Vec::new();
            for (pid, comm) in self.names.look(Path::new("/proc")).filter(|(pid, _)| is_other(*pid))
            {
                if is_removing(comm) && may(pid) {
                    self.removers.insert(pid);
                }
                if !self.sees_exec && is_unmounting(comm) && may(pid) {
                    unmounting.push(Thread::main(pid));
                }
            }
            found.extend(unmounting.into_iter().map(|first| self.program(first, reader)));
        }
        let pids: BTreeSet<u32> = self
            .removers
            .iter()
            .chain(self.deleters.iter().map(|(pid, ())| pid))
            .copied()
            .filter(|pid| is_other(*pid))
            .collect();
        for thread in pids.into_iter().flat_map(of_process) {
            let doing = thread.doing(reader);
            let reading = self.in_call(thread, doing, reader, |call| !call.deletes);
            found.extend(reading.map(|it| Followed { before_start, ..it }));
        }
        found
    }

    /// Processes whose `/proc` files repeatedly do not answer.
    pub(super) fn silent(&self) -> &BTreeSet<u32> {
        &self.silent
    }

    fn in_call(
        &self,
        thread: Thread,
        doing: Doing,
        reader: &mut TimedReader,
        wanted: impl Fn(&Known) -> bool,
    ) -> Option<Followed> {
        let Doing::Call { number, arguments } = doing else { return None };
        let call = known(number, &arguments).filter(wanted)?;
        // A thread that has slept for an hour has been in this call for at least as long.
        let now = podstuck_confine::clock::now();
        let slept = asleep::at_least(thread, reader).unwrap_or_default();
        let began = Monotonic(now.0.saturating_sub(slept.as_nanos() as u64));
        let anchor = Anchor::Call(doing);
        let found = Followed::new(thread, anchor, call.name, began, self.threshold, reader);
        let actor = thread.actor(reader);
        Some(Followed { since: Since::FirstLook, actor, ..found.about(call.argument, reader) })
    }

    /// A running program that unmounts.
    fn program(&self, thread: Thread, reader: &mut TimedReader) -> Followed {
        let started = thread.times(reader).and_then(|times| times.start_ticks).map(since_boot);
        let began = started.unwrap_or_else(podstuck_confine::clock::now);
        let name = String::from_utf8_lossy(&thread.comm()).into_owned();
        let found = Followed::new(thread, Anchor::Program, &name, began, self.threshold, reader);
        Followed {
            since: Since::ProcessStart,
            before_start: true,
            actor: thread.actor(reader),
            object: Object::of_program(thread, reader),
            asked: false,
            ..found
        }
    }
}

/// A thread that was in `umount2` before the probes were attached may be past the return that they would have seen:
/// then it is in task work.
fn classify(mut it: Followed, reader: &mut TimedReader) -> Followed {
    it.before_start = true;
    let stack = if it.name == "umount2" { it.thread.stack(reader) } else { Vec::new() };
    if stack.iter().any(|frame| frame == "task_work_run") {
        it.phase = Phase::AfterExit;
    }
    it
}

fn others() -> impl Iterator<Item = u32> {
    proc::processes().into_iter().filter(|pid| is_other(*pid))
}

fn is_other(pid: u32) -> bool {
    pid != std::process::id()
}

/// Whether a process may unmount or remove for the node, or as a driver: any process can be named `umount`. The check
/// takes no lock of the process.
pub(super) fn may(pid: u32) -> bool {
    may_be_root(Path::new(&format!("/proc/{pid}")))
}

/// `umount`, `umount.nfs`, `fusermount3` and the like, by name.
pub(super) fn is_unmounting(comm: &[u8]) -> bool {
    comm == b"umount" || comm.starts_with(b"umount.") || comm.starts_with(b"fusermount")
}

/// Whether it is a daemon that removes directory trees.
fn is_removing(comm: &[u8]) -> bool {
    use Component::{Containerd, CriO, Dockerd, Kubelet};
    [Kubelet, Containerd, Dockerd, CriO].contains(&by_name(comm))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_deleters_are_remembered_once_each() {
        let mut scan = Scan::new(Duration::from_secs(2), true);
        scan.deleted([1, 2, 1]);
        assert_eq!(scan.deleters.len(), 2);
        scan.deleted(0..100);
        let last = scan.deleters.iter().next().map(|(pid, ())| *pid);
        assert_eq!((scan.deleters.len(), last), (DELETERS, Some(99)));
    }

    #[test]
    fn programs_are_known_by_name() {
        for name in [b"umount".as_slice(), b"umount.nfs4", b"fusermount3"] {
            assert!(is_unmounting(name));
        }
        assert!(!is_unmounting(b"umountd") && !is_unmounting(b"mount"));
        assert!(is_removing(b"kubelet") && !is_removing(b"containerd-shim"));
    }
}
