//! Gets the facts that a case needs, outside the detectors and without waiting for them.

use std::time::Duration;

use tokio::{
    sync::{Mutex, mpsc::UnboundedSender},
    time::{Instant, sleep_until, timeout},
};

use crate::{
    detect::{Case, Facts, Needs},
    state::{
        file_system,
        holders::{self, About, Snapshot},
        look::{self, Answer, LookError, Question},
        mount_point, mounts, peek, users,
    },
};

/// Looks that run at a time; each is a process of its own.
const AT_A_TIME: usize = 4;
/// FUSE mounts that are looked at for one case.
const MOUNTS_MAX: usize = 4;
/// Cases that may wait. A storm of failures asks the same again; what does not fit is asked with
/// the next failure.
const WAITING: usize = 256;

/// After a snapshot of holders there is none for so many times as long as it took: it reads the
/// descriptors of all processes, and shall cost little of one CPU even in a storm of failures.
const REST: u32 = 9;
/// Later than this, an answer says nothing about the call that made us ask.
const STALE: Duration = Duration::from_secs(2);
/// When the next snapshot may be taken.
static RESTED: Mutex<Option<Instant>> = Mutex::const_new(None);

/// Answers cases, a few at a time.
pub(super) struct Clerk {
    answers: UnboundedSender<(Case, Facts)>,
    turns: std::sync::Arc<tokio::sync::Semaphore>,
    open: std::sync::Arc<std::sync::atomic::AtomicUsize>,
}

impl Clerk {
    /// Sends its answers there.
    pub(super) fn new(answers: UnboundedSender<(Case, Facts)>) -> Self {
        let turns = std::sync::Arc::new(tokio::sync::Semaphore::new(AT_A_TIME));
        Self { answers, turns, open: Default::default() }
    }

    /// How many cases wait for facts.
    pub(super) fn open(&self) -> usize {
        self.open.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Begins to get the facts of a case.
    pub(super) fn ask(&self, case: Case) {
        use std::sync::atomic::Ordering::Relaxed;
        if self.open() >= WAITING {
            return;
        }
        self.open.fetch_add(1, Relaxed);
        let (answers, turns, open) = (self.answers.clone(), self.turns.clone(), self.open.clone());
        tokio::spawn(async move {
            let _turn = turns.acquire().await;
            let facts = gather(&case.needs).await;
            // Nobody listens any more: the run is over.
            let _ = answers.send((case, facts));
            open.fetch_sub(1, Relaxed);
        });
    }
}

async fn gather(needs: &Needs) -> Facts {
    match needs {
        Needs::Mounts { pid, namespace } => {
            let (pid, namespace) = (*pid, *namespace);
            Facts::Mounts(from_proc(move || mounts::of_namespace(pid, namespace)).await.flatten())
        }
        Needs::FileSystem { pid, namespace, path } => {
            let (pid, namespace, path) = (*pid, *namespace, path.clone());
            let look = move || file_system::of_path(pid, namespace, &path);
            Facts::FileSystem(from_proc(look).await.flatten())
        }
        Needs::FuseMounts { pid, path } => {
            let (pid, path) = (*pid, path.clone());
            let mounts = from_proc(move || mount_point::fuse_at(pid, &path)).await;
            let mut looked = Vec::new();
            for mount in mounts.unwrap_or_default().into_iter().take(MOUNTS_MAX) {
                let path = mount.point.clone().into();
                let question = Question::Peek(peek::Question::Reach { pid, path });
                // One that does not answer is a call that hangs, and is found as such.
                if let Ok(Answer::Peek(peek::Answer::Errno(errno))) = look::ask(&question).await {
                    looked.push((mount, errno));
                }
            }
            Facts::FuseMounts(looked)
        }
        Needs::Look(question) => Facts::Looked(look::ask(question).await),
        Needs::Directory { pid, namespace, directory } => {
            let question =
                look::Question::Entries { pid: *pid, directory: directory.clone().into() };
            let entries = look::ask(&question).await;
            let (pid, namespace, directory) = (*pid, *namespace, directory.clone());
            let read =
                move || (mounts::of_namespace(pid, namespace), users::below(&directory, pid));
            let (mounts, users) = from_proc(read).await.unwrap_or_default();
            Facts::Directory { mounts, entries, users }
        }
        Needs::Holders(about) => Facts::Holders(rested_snapshot(about).await),
    }
}

/// What `/proc` says, unless it takes too long: some of its files wait for a process that hangs in
/// execve. The thread that waits there is left behind.
async fn from_proc<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    timeout(STALE, tokio::task::spawn_blocking(read)).await.ok()?.ok()
}

/// A snapshot of holders, at once if there was none lately.
async fn rested_snapshot(about: &About) -> Result<Snapshot, LookError> {
    let turn = async {
        let rested = RESTED.lock().await;
        if let Some(end) = *rested {
            sleep_until(end).await;
        }
        rested
    };
    let Ok(mut rested) = timeout(STALE, turn).await else {
        return Err(LookError::Helper("too many were asked for at a time".into()));
    };
    let begun = Instant::now();
    let taken = holders::snapshot(about).await;
    *rested = Some(Instant::now() + begun.elapsed() * REST);
    taken
}
