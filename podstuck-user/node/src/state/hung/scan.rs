//! Looks at processes for what the probes do not see: calls from before the start, programs that
//! unmount where their execution is not told, and removals that hang while they look at an object.

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

/// How often the node's removing processes are looked for by name.
const FIND_EVERY: Duration = Duration::from_secs(5);
/// Other processes that deleted lately and are looked at, too.
const DELETERS: usize = 32;

/// What is kept from one scan to the next.
#[derive(Debug)]
pub(super) struct Scan {
    threshold: Duration,
    /// Whether the execution of programs is seen by a probe.
    sees_exec: bool,
    found: Option<Monotonic>,
    /// Processes that did not say what they were doing when the probes had come.
    untold: BTreeSet<u32>,
    /// Those of them that did not when they were asked again.
    silent: BTreeSet<u32>,
    /// kubelet and the runtimes: a few.
    removers: BTreeSet<u32>,
    deleters: Bounded<u32, ()>,
}

impl Scan {
    /// Has looked at nothing yet.
    pub(super) fn new(threshold: Duration, sees_exec: bool) -> Self {
        let deleters = Bounded::new(DELETERS);
        let none = BTreeSet::new;
        let (untold, silent, removers) = (none(), none(), none());
        Self { threshold, sees_exec, found: None, untold, silent, removers, deleters }
    }

    /// Takes note of processes that delete.
    pub(super) fn deleted(&mut self, pids: impl IntoIterator<Item = u32>) {
        for pid in pids {
            self.deleters.insert(pid, ());
        }
    }

    /// Everything on the node that was in a deleting call, or about to unmount, before the probes
    /// were there.
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

    /// Threads of a process in calls that delete, from before the probes were there. Where one of them does not
    /// say what it is doing, the process is asked again: on a node that is short of time any of them may not.
    fn before(&mut self, pid: u32, reader: &mut TimedReader) -> Vec<Followed> {
        let mut found = Vec::new();
        for thread in of_process(pid) {
            let doing = thread.doing(reader);
            if doing == Doing::Untold {
                self.untold.insert(pid);
            }
            let stuck = self.in_call(thread, doing, reader, |call| call.deletes);
            found.extend(stuck.map(|it| classify(it, reader)));
        }
        found
    }

    /// Threads of the node's removing processes that look at an object just now.
    pub(super) fn look(&mut self, now: Monotonic, reader: &mut TimedReader) -> Vec<Followed> {
        let mut found = Vec::new();
        let before_start = self.found.is_none();
        if self.found.is_none_or(|then| now.since(then) >= FIND_EVERY) {
            self.found = Some(now);
            let asked = std::mem::take(&mut self.untold);
            for pid in &asked {
                found.extend(self.before(*pid, reader));
            }
            // Right after the start it may be for want of time.
            if !before_start {
                self.silent = &asked & &self.untold;
            }
            self.removers.clear();
            for pid in others() {
                let first = Thread::main(pid);
                let comm = first.comm();
                if is_removing(&comm) && may(pid) {
                    self.removers.insert(pid);
                }
                if !self.sees_exec && is_unmounting(&comm) && may(pid) {
                    found.push(self.program(first, reader));
                }
            }
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
            let looking = self.in_call(thread, doing, reader, |call| !call.deletes);
            found.extend(looking.map(|it| Followed { before_start, ..it }));
        }
        found
    }

    /// Processes that do not say what they are doing, however often they are asked.
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
        // Who has slept for an hour, has been in this call for as long at least.
        let now = podstuck_confine::clock::now();
        let slept = asleep::at_least(thread, reader).unwrap_or_default();
        let began = Monotonic(now.0.saturating_sub(slept.as_nanos() as u64));
        let anchor = Anchor::Call(doing);
        let found = Followed::new(thread, anchor, call.name, began, self.threshold, reader);
        let actor = thread.actor(reader);
        Some(Followed { since: Since::FirstLook, actor, ..found.about(call.argument, reader) })
    }

    /// A program that unmounts, which runs already.
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

/// A thread that was in `umount2` before the probes were there may already be past the return that
/// they would have seen: then it is in task work.
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

/// Whether a process may unmount or remove for the node, or as a driver. Everybody may call himself `umount`.
/// It takes no lock of the process.
pub(super) fn may(pid: u32) -> bool {
    may_be_root(Path::new(&format!("/proc/{pid}")))
}

/// `umount`, `umount.nfs`, `fusermount3` and the like, by name.
pub(super) fn is_unmounting(comm: &[u8]) -> bool {
    comm == b"umount" || comm.starts_with(b"umount.") || comm.starts_with(b"fusermount")
}

/// Those that remove trees, and do not end between two removals.
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
