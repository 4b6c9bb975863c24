//! Gets the facts that a case needs, outside the detectors and without waiting for them.

use tokio::sync::mpsc::UnboundedSender;

use crate::{
    detect::{Case, Facts, Needs},
    state::{
        look::{self, Answer, Question},
        mount_point, mounts, peek,
    },
};

/// Looks that run at a time; each is a process of its own.
const AT_A_TIME: usize = 4;
/// FUSE mounts that are looked at for one case.
const MOUNTS_MAX: usize = 4;
/// Cases that may wait. A storm of failures asks the same again; what does not fit is asked with
/// the next failure.
const WAITING: usize = 256;

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
            let mounts =
                tokio::task::spawn_blocking(move || mounts::of_namespace(pid, namespace)).await;
            Facts::Mounts(mounts.ok().flatten())
        }
        Needs::FuseMounts { pid, path } => {
            let (pid, path) = (*pid, path.clone());
            let mounts =
                tokio::task::spawn_blocking(move || mount_point::fuse_at(pid, &path)).await;
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
    }
}
