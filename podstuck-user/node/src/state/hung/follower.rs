//! The thread that follows: notices in, reports out.

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

/// Between two scans of the node's removing processes.
const SCAN_EVERY: Duration = Duration::from_secs(1);
/// The record of a call that has returned may be on its way for so long.
const RECORD_LATE: Duration = Duration::from_millis(1500);
/// More than this at a time are not followed, but counted: a node on which so much hangs is described
/// by fewer, and those that hang for longest are not the ones to forget. No pod takes the room of another, nor of the
/// node (`room`).
const FOLLOWED_MAX: usize = 1024;

/// All that the thread knows.
pub(super) struct Follower {
    threshold: Duration,
    followed: HashMap<u32, Followed>,
    /// Whose they are, where somebody had to give way since the last change.
    crowd: Option<Crowd>,
    reader: TimedReader,
    scan: Scan,
    scanned: Monotonic,
    /// Processes that do not say what they are doing, as was told.
    silent: BTreeSet<u32>,
    reports: UnboundedSender<Report>,
    runtime: Handle,
    own: Sender<Notice>,
    /// Threads that were not followed because there were too many.
    dropped: Arc<AtomicU64>,
}

impl Follower {
    /// `own` leads to the notices that it will be given.
    pub(super) fn new(
        threshold: Duration,
        sees_exec: bool,
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
            scanned: Monotonic::default(),
            silent: BTreeSet::new(),
            reports,
            runtime,
            own,
            dropped,
        }
    }

    /// Follows until it is told to end. What reads for it is started from here, and so may read
    /// stacks as well.
    pub(super) fn run(mut self, notices: &Receiver<Notice>) {
        Role::ReadStacks.assume();
        for it in self.scan.at_start(&mut self.reader) {
            self.follow(it);
        }
        self.look();
        loop {
            match notices.recv_timeout(self.pause()) {
                Ok(Notice::End) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(notice) => self.take(notice),
                Err(RecvTimeoutError::Timeout) => {}
            }
            // All that are there, before anything is looked at by what they say.
            while let Ok(notice) = notices.try_recv() {
                if matches!(notice, Notice::End) {
                    return;
                }
                self.take(notice);
            }
            self.look();
        }
    }

    fn pause(&self) -> Duration {
        let now = podstuck_confine::clock::now();
        let next = self.followed.values().map(|it| it.next_look.since(now)).min();
        let scan = SCAN_EVERY.saturating_sub(now.since(self.scanned));
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

    /// Ends what a thread was followed for; says so if it was told.
    fn end(&mut self, tid: u32, at: Monotonic) {
        let Some(mut it) = self.forget(tid) else { return };
        if it.anchor == Anchor::Exit {
            self.took(&it, Span::AfterExit, at);
        }
        if it.told {
            let seen = it.sight(at, true, &mut self.reader);
            let _ = self.reports.send(Report::Seen(Box::new(seen)));
        }
    }

    fn took(&self, it: &Followed, span: Span, end: Monotonic) {
        let path = it.object.path().map(ToOwned::to_owned).unwrap_or_default();
        let (pid, actor, duration) = (it.thread.pid, it.actor, it.age(end));
        // Nobody listens any more: the run is over.
        let _ = self.reports.send(Report::Took(PhaseTook { span, path, pid, actor, duration }));
    }

    fn look(&mut self) {
        let now = podstuck_confine::clock::now();
        let due = self.followed.values().filter(|it| it.next_look <= now).map(|it| it.thread.tid);
        for tid in due.collect::<Vec<_>>() {
            self.look_at(tid, now);
        }
        if now.since(self.scanned) >= SCAN_EVERY {
            self.scanned = now;
            for it in self.scan.look(now, &mut self.reader) {
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

    fn look_at(&mut self, tid: u32, now: Monotonic) {
        let Some(it) = self.followed.get_mut(&tid) else { return };
        let look = it.look(now, &mut self.reader);
        // The probes see the end of what they saw begin, and know better when it was.
        if matches!(it.anchor, Anchor::Entry(_)) && look == Position::Over {
            it.ended.get_or_insert(now);
        }
        match (it.ended, look) {
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
            // Begun by the runtime's thread and not by this one, whose threads may read stacks.
            self.runtime.spawn(async { tokio::task::spawn_blocking(ask).await });
        }
        if it.is_due(now) {
            let seen = it.sight(now, false, &mut self.reader);
            seen.mount.iter().for_each(|on| alive::hangs(tid, on));
            let _ = self.reports.send(Report::Seen(Box::new(seen)));
        }
    }
}
