//! The thread that follows stuck threads: it takes notices and sends reports.

mod notices;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    time::Duration,
};

use tokio::{runtime::Handle, sync::mpsc::UnboundedSender};

use super::{
    Notice, PhaseTook, Report,
    anchor::{Anchor, Position},
    followed::Followed,
    room::{Crowd, Owner, last_of},
    scan::Scan,
};
use crate::state::memory::{ReadCommandLine, ReadText};
use podstuck_confine::{alive, helper::ask, role::Role, timed_read::TimedReader};
use podstuck_model::{series::Span, thread::Thread, time::Monotonic};

/// Longest delay of the probes' record of a call that has returned.
const RECORD_LATE: Duration = Duration::from_millis(1500);
/// Most threads that are followed at a time; others are counted. The threads that hang for longest are kept, and no pod
/// takes the room of another, nor of the node (`room`).
const FOLLOWED_MAX: usize = 1024;

/// The state of the thread.
pub(super) struct Follower {
    threshold: Duration,
    followed: HashMap<u32, Followed>,
    /// The owners of the followed threads, where a thread was dropped since the last change.
    crowd: Option<Crowd>,
    reader: TimedReader,
    scan: Scan,
    /// Interval between two scans of the processes that remove files.
    scan_every: Duration,
    scanned: Monotonic,
    /// Processes whose `/proc` files do not answer, as last reported.
    silent: BTreeSet<u32>,
    reports: UnboundedSender<Report>,
    runtime: Handle,
    own: Sender<Notice>,
    /// Threads that were not followed because there were too many.
    dropped: Arc<AtomicU64>,
}

impl Follower {
    /// `own` sends to the channel that [`Self::run`] receives from.
    pub(super) fn new(
        threshold: Duration,
        (sees_exec, scan_every): (bool, Duration),
        reports: UnboundedSender<Report>,
        runtime: Handle,
        own: Sender<Notice>,
        dropped: Arc<AtomicU64>,
    ) -> Self {
        Self {
            threshold,
            followed: HashMap::new(),
            crowd: None,
            reader: TimedReader::default(),
            scan: Scan::new(threshold, sees_exec),
            scan_every,
            scanned: Monotonic::default(),
            silent: BTreeSet::new(),
            reports,
            runtime,
            own,
            dropped,
        }
    }

    /// Runs until [`Notice::End`]. Its reader threads are started from this thread, and so may read stacks as well.
    pub(super) fn run(mut self, notices: &Receiver<Notice>) {
        Role::ReadStacks.assume();
        for it in self.scan.at_start(&mut self.reader) {
            self.follow(it);
        }
        self.check_due();
        loop {
            match notices.recv_timeout(self.pause()) {
                Ok(Notice::End) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(notice) => self.take(notice),
                Err(RecvTimeoutError::Timeout) => {}
            }
            // All pending notices come before the next check.
            while let Ok(notice) = notices.try_recv() {
                if matches!(notice, Notice::End) {
                    return;
                }
                self.take(notice);
            }
            self.check_due();
        }
    }

    fn pause(&self) -> Duration {
        let now = podstuck_confine::clock::now();
        let next = self.followed.values().map(|it| it.next_look.since(now)).min();
        let scan = self.scan_every.saturating_sub(now.since(self.scanned));
        next.map_or(scan, |next| next.min(scan))
    }

    fn follow(&mut self, it: Followed) {
        let Thread { pid, tid } = it.thread;
        if self.followed.len() >= FOLLOWED_MAX && !self.followed.contains_key(&tid) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            let crowd = self.crowd.get_or_insert_with(|| Crowd::of(&self.followed));
            let gives = crowd.gives_way(&Owner::of(pid));
            let Some(gives) = gives.and_then(|whose| last_of(&self.followed, whose)) else {
                return;
            };
            self.forget(gives);
        }
        self.crowd = None;
        self.followed.insert(tid, it);
    }

    fn forget(&mut self, tid: u32) -> Option<Followed> {
        alive::hangs_no_more(tid);
        self.crowd = None;
        self.followed.remove(&tid)
    }

    /// Stops following a thread; reports the end if the thread was reported.
    fn end(&mut self, tid: u32, at: Monotonic) {
        let Some(mut it) = self.forget(tid) else { return };
        if it.anchor == Anchor::Exit {
            self.took(&it, Span::AfterExit, at);
        }
        if it.is_reported {
            let seen = it.sight(at, true, &mut self.reader);
            let _ = self.reports.send(Report::Seen(Box::new(seen)));
        }
    }

    fn took(&self, it: &Followed, span: Span, end: Monotonic) {
        let path = it.object.path().map(ToOwned::to_owned).unwrap_or_default();
        let (pid, actor, duration) = (it.thread.pid, it.actor, it.age(end));
        // The receiver is gone when the run is over.
        let _ = self.reports.send(Report::Took(PhaseTook { span, path, pid, actor, duration }));
    }

    fn check_due(&mut self) {
        let now = podstuck_confine::clock::now();
        let due = self.followed.values().filter(|it| it.next_look <= now).map(|it| it.thread.tid);
        for tid in due.collect::<Vec<_>>() {
            self.check(tid, now);
        }
        if now.since(self.scanned) >= self.scan_every {
            self.scanned = now;
            for it in self.scan.run(now, &mut self.reader) {
                if !self.followed.contains_key(&it.thread.tid) {
                    self.follow(it);
                }
            }
            if *self.scan.silent() != self.silent {
                self.silent.clone_from(self.scan.silent());
                let _ = self.reports.send(Report::Silent(self.silent.clone()));
            }
        }
    }

    fn check(&mut self, tid: u32, now: Monotonic) {
        let Some(it) = self.followed.get_mut(&tid) else { return };
        let position = it.check(now, &mut self.reader);
        // The probes see the return of a call that they saw entered, and know its exact time.
        if matches!(it.anchor, Anchor::Entry(_)) && position == Position::Over {
            it.ended.get_or_insert(now);
        }
        match (it.ended, position) {
            (Some(ended), _) if now.since(ended) >= RECORD_LATE => return self.end(tid, ended),
            (Some(_), _) | (None, Position::ForChild) => return,
            (None, Position::Over) => return self.end(tid, now),
            (None, Position::Still) => {}
        }
        if !it.asked && it.age(now) >= it.ask_at {
            it.asked = true;
            let (pid, address) = (it.thread.pid, it.text);
            let (began, own) = (it.began, self.own.clone());
            let ask = move || {
                let text = match address {
                    Some(address) => ask(ReadText { pid, address }),
                    None => ask(ReadCommandLine { pid }),
                };
                let _ = own.send(Notice::Text { tid, began, text: text.ok() });
            };
            // Started by a runtime thread: threads that this one starts may read stacks.
            self.runtime.spawn(async { tokio::task::spawn_blocking(ask).await });
        }
        if it.is_due(now) {
            let seen = it.sight(now, false, &mut self.reader);
            seen.mount.iter().for_each(|on| alive::hangs(tid, on));
            let _ = self.reports.send(Report::Seen(Box::new(seen)));
        }
    }
}
