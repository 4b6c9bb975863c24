//! Answers the engine's queries, outside it and without anybody waiting for them.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, Semaphore, mpsc::UnboundedSender},
    task::spawn_blocking,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::task::TaskTracker;

use crate::{
    model::{
        degraded::{Degraded, Feed},
        holder::{About, Snapshot},
    },
    query::{Answer, NoAnswer, Query, Wants},
    state::{file_system, holders, mount_point, queries},
};

/// Looks that run at a time; each is a process of its own.
const AT_A_TIME: usize = 4;
/// Queries that may wait. Many failures of one kind ask the same again; what does not fit is counted, and
/// asked with the next failure.
const WAITING: usize = 256;

/// After a snapshot of holders there is none for so many times as long as it took: it reads the
/// descriptors of all processes, and shall cost little of one CPU however much fails.
const REST: u32 = 9;
/// Later than this, an answer says nothing about the call that made us ask.
const STALE: Duration = Duration::from_secs(2);
/// When the next snapshot may be taken.
static RESTED: Mutex<Option<Instant>> = Mutex::const_new(None);

/// Answers queries, a few at a time.
pub(crate) struct Asker {
    answers: UnboundedSender<(Query, Answer)>,
    turns: Arc<Semaphore>,
    open: TaskTracker,
    dropped: u64,
}

impl Asker {
    /// Sends its answers there.
    pub(crate) fn new(answers: UnboundedSender<(Query, Answer)>) -> Self {
        let turns = Arc::new(Semaphore::new(AT_A_TIME));
        Self { answers, turns, open: TaskTracker::new(), dropped: 0 }
    }

    /// How many queries wait for their answer.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// How many queries were not asked because too many wait.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// While too many wait.
    pub(crate) fn degraded(&self) -> Option<Degraded> {
        let what =
            "too many questions about objects wait for their answer, and no others are asked";
        (self.open() >= WAITING).then(|| Degraded::new(what, &[Feed::Objects, Feed::Holders]))
    }

    /// Begins to look for an answer. To be called inside the runtime.
    pub(crate) fn ask(&mut self, query: Query) {
        if self.open() >= WAITING {
            self.dropped += 1;
            return;
        }
        let (answers, turns) = (self.answers.clone(), self.turns.clone());
        self.open.spawn(async move {
            let _turn = turns.acquire().await;
            let answer = answer(query.wants.clone()).await;
            // Nobody listens any more: the run is over.
            let _ = answers.send((query, answer));
        });
    }
}

async fn answer(wants: Wants) -> Answer {
    match wants {
        Wants::Mounts { pid, namespace, path, mount_id } => {
            let read = move || queries::mounts(pid, namespace, &path, mount_id);
            Answer::Mounts(from_proc(read).await.flatten())
        }
        Wants::MountsOn { pid, namespace, path } => {
            let read = move || queries::mounts_on(pid, namespace, &path);
            Answer::Mounts(from_proc(read).await.flatten())
        }
        Wants::FileSystem { pid, namespace, path } => {
            let look = move || file_system::of_path(pid, namespace, &path);
            Answer::FileSystem(from_proc(look).await.flatten())
        }
        Wants::FuseMounts { pid, path } => {
            let mounts = from_proc(move || mount_point::fuse_at(pid, &path)).await;
            let reach = move || queries::reach(pid, mounts.unwrap_or_default());
            Answer::FuseMounts(in_thread(reach).await.unwrap_or_default())
        }
        Wants::Attributes { pid, directory, name, expected } => {
            let read = move || queries::attributes(pid, directory, name, expected);
            Answer::Attributes(in_thread(read).await.and_then(|found| found))
        }
        Wants::Protected { pid, directory } => {
            let find = move || queries::protected(pid, directory);
            Answer::Protected(in_thread(find).await.and_then(|found| found))
        }
        Wants::Remaining { pid, directory } => {
            let count = move || queries::remaining(pid, directory);
            Answer::Remaining(in_thread(count).await.and_then(|left| left))
        }
        Wants::Directory { pid, namespace, directory } => {
            let path = directory.clone();
            let read = move || queries::mounts(pid, namespace, &path, 0);
            let mounts = from_proc(read).await.flatten();
            let look = move || queries::directory(pid, namespace, directory);
            let looked = in_thread(look).await;
            let (users, entries) = looked.unwrap_or_else(|error| (Vec::new(), Err(error)));
            Answer::Directory { mounts, entries, users }
        }
        Wants::Listener { address, port } => {
            let find = move || queries::listener(&address, port);
            Answer::Listener(in_thread(find).await.and_then(|found| found))
        }
        Wants::Clients { pid } => {
            let find = move || queries::clients(pid);
            Answer::Clients(in_thread(find).await.and_then(|found| found))
        }
        Wants::Holders(about) => Answer::Holders(rested_snapshot(about).await),
    }
}

/// Asks the helper process. That waits for as long as the helper may take, on a thread of its own.
async fn in_thread<T: Send + 'static>(
    ask: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NoAnswer> {
    spawn_blocking(ask).await.map_err(|error| NoAnswer::Helper(error.to_string()))
}

/// What `/proc` says, unless it takes too long: some of its files wait for a process that hangs in
/// execve. The thread that waits there is left behind.
async fn from_proc<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    timeout(STALE, spawn_blocking(read)).await.ok()?.ok()
}

/// A snapshot of holders, at once if there was none lately.
async fn rested_snapshot(about: About) -> Result<Snapshot, NoAnswer> {
    let turn = async {
        let rested = RESTED.lock().await;
        if let Some(end) = *rested {
            sleep_until(end).await;
        }
        rested
    };
    let Ok(mut rested) = timeout(STALE, turn).await else {
        return Err(NoAnswer::Helper("too many were asked for at a time".into()));
    };
    let begun = Instant::now();
    let taken = in_thread(move || holders::snapshot(&about)).await.and_then(|taken| taken);
    *rested = Some(Instant::now() + begun.elapsed() * REST);
    taken
}
