//! The thread that follows: hints in, news out.

use std::{
    collections::HashMap,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender},
    time::Duration,
};

use podstuck_common::record::InFlight;
use tokio::{runtime::Handle, sync::mpsc::UnboundedSender};

use super::{
    Hint, News, Took, Unmounted,
    calls::entered,
    followed::{Anchor, Followed, Look},
    object::{Object, to_unmount},
    scan::Scan,
};
use crate::{
    kernel::privilege,
    model::{
        hung::{Phase, Since},
        series::Span,
        time::Monotonic,
    },
    state::{
        bounded::Bounded,
        look::{self, Answer, Question},
        peek,
        thread::Thread,
    },
};

/// Between two scans of the node's removing processes.
const SCAN_EVERY: Duration = Duration::from_secs(1);
/// The record of a call that has returned may be on its way for so long.
const RECORD_LATE: Duration = Duration::from_millis(1500);
/// More than this at a time are not followed: a node on which so much hangs is described by fewer.
const FOLLOWED_MAX: usize = 1024;

/// All that the thread knows.
pub(super) struct Watchman {
    patience: Duration,
    followed: HashMap<u32, Followed>,
    bounded: Bounded,
    scan: Scan,
    scanned: Monotonic,
    news: UnboundedSender<News>,
    runtime: Handle,
    own: Sender<Hint>,
}

impl Watchman {
    /// `own` leads to the hints that it will be given.
    pub(super) fn new(
        patience: Duration,
        sees_exec: bool,
        news: UnboundedSender<News>,
        runtime: Handle,
        own: Sender<Hint>,
    ) -> Self {
        Self {
            patience,
            followed: HashMap::new(),
            bounded: Bounded::default(),
            scan: Scan::new(patience, sees_exec),
            scanned: Monotonic::default(),
            news,
            runtime,
            own,
        }
    }

    /// Follows until it is told to end. What reads for it is started from here, and so may read
    /// stacks as well.
    pub(super) fn run(mut self, hints: &Receiver<Hint>) {
        if let Err(error) = privilege::reduce_but_stacks() {
            tracing::info!("keeping all privileges in the thread that reads stacks: {error:#}");
        }
        for it in self.scan.at_start(&mut self.bounded) {
            self.follow(it);
        }
        self.look();
        loop {
            match hints.recv_timeout(self.pause()) {
                Ok(Hint::End) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(hint) => self.take(hint),
                Err(RecvTimeoutError::Timeout) => {}
            }
            // All that are there, before anything is looked at by what they say.
            while let Ok(hint) = hints.try_recv() {
                if matches!(hint, Hint::End) {
                    return;
                }
                self.take(hint);
            }
            self.look();
        }
    }

    fn pause(&self) -> Duration {
        let now = Monotonic::now();
        let next = self.followed.values().map(|it| it.next_look.since(now)).min();
        let scan = SCAN_EVERY.saturating_sub(now.since(self.scanned));
        next.map_or(scan, |next| next.min(scan))
    }

    fn follow(&mut self, it: Followed) {
        if self.followed.len() < FOLLOWED_MAX {
            self.followed.insert(it.thread.tid, it);
        }
    }

    fn take(&mut self, hint: Hint) {
        match hint {
            Hint::InFlight(entries) => self.compare(&entries),
            Hint::Deleted(pids) => self.scan.deleted(pids),
            Hint::Returned(thread) => {
                let returned = self.followed.get(&thread.tid);
                if returned.is_some_and(|it| it.phase == Phase::InSyscall) {
                    self.followed.remove(&thread.tid);
                }
            }
            Hint::Unmounted(unmounted) => self.unmounted(unmounted),
            Hint::Executed { pid, at, actor } => {
                let thread = Thread::main(pid);
                let name = String::from_utf8_lossy(&thread.comm()).into_owned();
                let found = Followed::new(
                    thread,
                    Anchor::Program,
                    &name,
                    at,
                    self.patience,
                    &mut self.bounded,
                );
                let object = Object::of_program(thread, &mut self.bounded);
                self.follow(Followed { actor, object, asked: false, ..found });
            }
            Hint::Text { tid, began, text } => {
                let Some(it) = self.followed.get_mut(&tid).filter(|it| it.began == began) else {
                    return;
                };
                if it.anchor != Anchor::Program {
                    return it.object.complete(text.as_deref());
                }
                match text.as_deref().map(to_unmount) {
                    // It mounts, or prints its usage.
                    Some(None) => drop(self.followed.remove(&tid)),
                    Some(object) => it.object.complete(object),
                    None => it.object.complete(None),
                }
            }
            Hint::End => {}
        }
    }

    /// Compares with the probes' table of calls that have not returned.
    fn compare(&mut self, entries: &[InFlight]) {
        let now = Monotonic::now();
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
                Followed::new(thread, anchor, call.name, began, self.patience, &mut self.bounded);
            // An entry whose return was missed is not a call that hangs.
            if it.look(now, &mut self.bounded) == Look::Over {
                continue;
            }
            it = it.about(call.argument, &mut self.bounded);
            it.actor = thread.actor(&mut self.bounded);
            self.reached_call(thread, began);
            self.end(thread.tid, began);
            self.follow(it);
        }
    }

    /// A program has come to `umount2`, so it was before it until then.
    fn reached_call(&mut self, thread: Thread, entered: Monotonic) {
        let Some(program) = self.followed.get(&thread.pid) else { return };
        if program.anchor != Anchor::Program {
            return;
        }
        // Of one that ran before the probes were there, the start is known roughly only.
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
        if !ok {
            return;
        }
        let found = Followed::new(
            thread,
            Anchor::Exit,
            "umount2",
            returned,
            self.patience,
            &mut self.bounded,
        );
        self.follow(Followed { object: Object::Known(Some(path)), actor, ..found });
    }

    /// Ends what a thread was followed for; says so if it was told.
    fn end(&mut self, tid: u32, at: Monotonic) {
        let Some(mut it) = self.followed.remove(&tid) else { return };
        if it.anchor == Anchor::Exit {
            self.took(&it, Span::AfterExit, at);
        }
        if it.told {
            let seen = it.sight(at, true, &mut self.bounded);
            let _ = self.news.send(News::Seen(Box::new(seen)));
        }
    }

    fn took(&self, it: &Followed, span: Span, end: Monotonic) {
        let path = it.object.path().map(ToOwned::to_owned).unwrap_or_default();
        let (pid, actor, duration) = (it.thread.pid, it.actor, it.age(end));
        // Nobody listens any more: the run is over.
        let _ = self.news.send(News::Took(Took { span, path, pid, actor, duration }));
    }

    fn look(&mut self) {
        let now = Monotonic::now();
        let due = self.followed.values().filter(|it| it.next_look <= now).map(|it| it.thread.tid);
        for tid in due.collect::<Vec<_>>() {
            self.look_at(tid, now);
        }
        if now.since(self.scanned) >= SCAN_EVERY {
            self.scanned = now;
            for it in self.scan.look(now, &mut self.bounded) {
                if !self.followed.contains_key(&it.thread.tid) {
                    self.follow(it);
                }
            }
        }
    }

    fn look_at(&mut self, tid: u32, now: Monotonic) {
        let Some(it) = self.followed.get_mut(&tid) else { return };
        let look = it.look(now, &mut self.bounded);
        // The probes see the end of what they saw begin, and know better when it was.
        if matches!(it.anchor, Anchor::Entry(_)) && look == Look::Over {
            it.ended.get_or_insert(now);
        }
        match (it.ended, look) {
            (Some(ended), _) if now.since(ended) >= RECORD_LATE => return self.end(tid, ended),
            (Some(_), _) | (None, Look::ForChild) => return,
            (None, Look::Over) => return self.end(tid, now),
            (None, Look::Still) => {}
        }
        if !it.asked && it.age(now) >= self.patience / 2 {
            it.asked = true;
            let question = match it.text {
                Some(address) => peek::Question::Text { pid: it.thread.pid, address },
                None => peek::Question::CommandLine { pid: it.thread.pid },
            };
            let (began, own) = (it.began, self.own.clone());
            self.runtime.spawn(async move {
                let text = match look::ask(&Question::Peek(question)).await {
                    Ok(Answer::Peek(peek::Answer::Bytes(text))) => Some(text),
                    _ => None,
                };
                let _ = own.send(Hint::Text { tid, began, text });
            });
        }
        if it.is_due(now) {
            let seen = it.sight(now, false, &mut self.bounded);
            let _ = self.news.send(News::Seen(Box::new(seen)));
        }
    }
}

fn same(a: &InFlight, b: &InFlight) -> bool {
    (a.thread, a.start_ns) == (b.thread, b.start_ns)
}
