//! Handles the notices that the rest of podstuck sends to the follower.

use podstuck_common::{in_flight::InFlight, record::Caller};

use super::{Follower, Notice};
use crate::state::{
    hung::{
        Unmounted,
        anchor::{Anchor, Position},
        calls::entered,
        followed::Followed,
        object::{Object, to_unmount},
        scan::may,
    },
    thread::ReadThread as _,
};
use podstuck_model::{
    hung::{Phase, Since},
    series::Span,
    thread::Thread,
    time::Monotonic,
};

impl Follower {
    pub(super) fn take(&mut self, notice: Notice) {
        match notice {
            Notice::InFlight(entries) => self.compare(&entries),
            // Other processes are of interest only in deleting calls, which the probes see.
            Notice::Deleted(pids) => self.scan.deleted(pids.into_iter().filter(|pid| may(*pid))),
            Notice::Returned(thread) => {
                let returned = self.followed.get(&thread.tid);
                if returned.is_some_and(|it| it.phase == Phase::InSyscall) {
                    self.forget(thread.tid);
                }
            }
            Notice::Unmounted(unmounted) => self.unmounted(unmounted),
            Notice::Executed { pid, at, actor } => {
                let thread = Thread::main(pid);
                // The start time of a process without the right to unmount is not read: the read may hang, and there may
                // be very many such processes.
                if !may(pid) || !self.is_still(pid, &actor) {
                    return;
                }
                let name = String::from_utf8_lossy(&thread.comm()).into_owned();
                let found = Followed::new(
                    thread,
                    Anchor::Program,
                    &name,
                    at,
                    self.threshold,
                    &mut self.reader,
                );
                let object = Object::of_program(thread, &mut self.reader);
                self.follow(Followed { actor, object, asked: false, ..found });
            }
            Notice::Text { tid, began, text } => {
                let Some(it) = self.followed.get_mut(&tid).filter(|it| it.began == began) else {
                    return;
                };
                let now = podstuck_confine::clock::now();
                let Some(text) = text else { return it.has_no_answer(now) };
                let object = if it.anchor == Anchor::Program {
                    to_unmount(&text)
                } else {
                    Some(text.as_slice())
                };
                let Some(object) = object else {
                    // It mounts, or prints its usage.
                    return drop(self.forget(tid));
                };
                if !it.object.complete(object, it.thread, &mut self.reader) {
                    it.has_no_answer(now);
                }
            }
            Notice::End => {}
        }
    }

    /// Whether a process id still belongs to the process that was seen.
    fn is_still(&mut self, pid: u32, seen: &Caller) -> bool {
        let times = Thread::main(pid).times(&mut self.reader);
        let started = times.and_then(|times| times.start_ticks);
        let tick = podstuck_confine::clock::tick_ns();
        started.is_none_or(|ticks| seen.started_ns == 0 || ticks == seen.started_ns / tick)
    }

    /// Compares with the probes' table of calls that have not returned.
    fn compare(&mut self, entries: &[InFlight]) {
        let now = podstuck_confine::clock::now();
        for it in self.followed.values_mut() {
            if let Anchor::Entry(mine) = it.anchor {
                let there = entries.iter().any(|e| same(e, &mine));
                it.ended = if there { it.ended } else { it.ended.or(Some(now)) };
            }
        }
        for entry in entries {
            let thread = Thread { pid: (entry.thread >> 32) as u32, tid: entry.thread as u32 };
            let before = self.followed.get(&thread.tid);
            let known =
                before.is_some_and(|it| matches!(&it.anchor, Anchor::Entry(e) if same(e, entry)));
            if known || thread.pid == std::process::id() {
                continue;
            }
            let Some(call) = entered(entry) else { continue };
            let (anchor, began) = (Anchor::Entry(*entry), Monotonic(entry.start_ns));
            let mut it =
                Followed::new(thread, anchor, call.name, began, self.threshold, &mut self.reader);
            // An entry whose return the probes missed is no call that hangs.
            if it.check(now, &mut self.reader) == Position::Over {
                continue;
            }
            it = it.about(call.argument, &mut self.reader);
            self.reached_call(thread, began);
            self.end(thread.tid, began);
            self.follow(it);
        }
    }

    /// A program has called `umount2`: its phase before the call is over.
    fn reached_call(&mut self, thread: Thread, entered: Monotonic) {
        let Some(program) = self.followed.get(&thread.pid) else { return };
        if program.anchor != Anchor::Program {
            return;
        }
        // The start of a program that ran before the probes were attached is known only roughly.
        if program.since == Since::Probe {
            self.took(program, Span::BeforeCall, entered);
        }
        self.end(thread.pid, entered);
    }

    fn unmounted(&mut self, unmounted: Unmounted) {
        let Unmounted { thread, entered, returned, ok, path, actor } = unmounted;
        if let Some(program) = self.followed.get_mut(&thread.pid)
            && program.anchor == Anchor::Program
        {
            program.object = Object::Known(Some(path.clone()));
        }
        self.reached_call(thread, entered);
        self.end(thread.tid, entered);
        if !ok || !self.is_still(thread.pid, &actor) {
            return;
        }
        let found = Followed::new(
            thread,
            Anchor::Exit,
            "umount2",
            returned,
            self.threshold,
            &mut self.reader,
        );
        self.follow(Followed { object: Object::Known(Some(path)), actor, ..found });
    }
}

fn same(a: &InFlight, b: &InFlight) -> bool {
    (a.thread, a.start_ns) == (b.thread, b.start_ns)
}
