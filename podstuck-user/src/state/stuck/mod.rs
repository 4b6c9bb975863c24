//! Follows threads that may be stuck in a removal or an unmount, and says so when they are.
//!
//! A thread of its own looks at them. Reading `/proc/PID/task/TID/{syscall,stack}`, and on newer
//! kernels also `stat`, `wchan` and links, waits while that process executes a program, for as long
//! as its old files take to close (`exec_update_lock`), and for ever if one of them lies on a dead
//! file system. So they are read on a further thread, for at most 200 ms: a process that does not
//! answer is left alone until it does, and while four do not, nothing is learnt in this way.

mod calls;
mod followed;
mod object;
mod scan;
mod watchman;

use std::{
    path::PathBuf,
    sync::mpsc::{Sender, channel},
    thread::Builder,
    time::Duration,
};

use anyhow::{Context, Result};
use podstuck_common::record::{Actor, InFlight};
use tokio::{
    runtime::Handle,
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
};

use super::thread::{Thread, Times};
use crate::model::{
    hung::{MountPoint, Phase, Progress, Since},
    series::Span,
    time::Monotonic,
};
use watchman::Watchman;

/// What the rest has seen that may be of use here.
#[derive(Debug)]
pub enum Hint {
    /// All calls that were entered longer than the patience ago, by the probes' table. Each second.
    InFlight(Vec<InFlight>),
    /// These processes have deleted something since the last hint.
    Deleted(Vec<u32>),
    /// A call of a thread returned after longer than that; the probes have told it.
    Returned(Thread),
    /// `umount2` returned.
    Unmounted(Unmounted),
    /// A program that is there to unmount was executed.
    Executed {
        /// The process.
        pid: u32,
        /// When.
        at: Monotonic,
        /// Who it is now.
        actor: Actor,
    },
    /// The text that the helper was asked for, for a thread that was followed since then.
    Text {
        /// The thread.
        tid: u32,
        /// When it began.
        began: Monotonic,
        /// The text; `None` when it could not be read.
        text: Option<Vec<u8>>,
    },
    /// The run is over.
    End,
}

/// An `umount2` that has returned to the probes.
#[derive(Debug)]
pub struct Unmounted {
    /// Who called.
    pub thread: Thread,
    /// When it was entered.
    pub entered: Monotonic,
    /// When it returned.
    pub returned: Monotonic,
    /// Whether with success.
    pub ok: bool,
    /// The mount point.
    pub path: PathBuf,
    /// The caller.
    pub actor: Actor,
}

/// A thread that is stuck, or was.
#[derive(Clone, Debug)]
pub struct Sighting {
    /// The thread.
    pub thread: Thread,
    /// Where it is stuck.
    pub phase: Phase,
    /// The call, or the program.
    pub syscall: String,
    /// The object in the mount namespace of the thread.
    pub path: Option<PathBuf>,
    /// What the object is on, while it is mounted.
    pub mount: Option<MountPoint>,
    /// When it began.
    pub began: Monotonic,
    /// What that is.
    pub since: Since,
    /// Whether that was before the probes were there.
    pub before_start: bool,
    /// When it was seen.
    pub at: Monotonic,
    /// Whether it is over.
    pub over: bool,
    /// Who it is.
    pub actor: Actor,
    /// Its state.
    pub times: Option<Times>,
    /// The function it waits in.
    pub wait_channel: Option<String>,
    /// The functions that it is in, the innermost first.
    pub stack: Vec<String>,
    /// How it came on since it was told last, or since the first look.
    pub progress: Option<Progress>,
}

/// How long a phase took that no probe sees the end of.
#[derive(Debug)]
pub struct Took {
    /// The phase.
    pub span: Span,
    /// The mount point.
    pub path: PathBuf,
    /// The process.
    pub pid: u32,
    /// Who it was.
    pub actor: Actor,
    /// After the exit: at most so long, to a tenth of a second. Before the call: exact.
    pub duration: Duration,
}

/// What is told.
#[derive(Debug)]
pub enum News {
    /// A thread is stuck for a while, for twice as long as when it was told last, or no longer.
    Seen(Box<Sighting>),
    /// A phase is over that was measured.
    Took(Took),
}

/// The thread that follows, from outside.
pub struct Stuck {
    hints: Sender<Hint>,
    news: UnboundedReceiver<News>,
}

impl Stuck {
    /// Starts it. To be called inside the runtime, which asks the helper processes, and before
    /// privileges are given up: it keeps the one that shows kernel stacks.
    pub fn start(patience: Duration, sees_exec: bool) -> Result<Self> {
        let (hints, queue) = channel();
        let (sender, news) = unbounded_channel();
        let watchman = Watchman::new(patience, sees_exec, sender, Handle::current(), hints.clone());
        Builder::new()
            .name("stuck".into())
            .spawn(move || watchman.run(&queue))
            .context("starting the thread that follows stuck calls")?;
        Ok(Self { hints, news })
    }

    /// Tells it something. It never waits.
    pub fn hint(&self, hint: Hint) {
        // If the thread has died, there is nobody to tell.
        let _ = self.hints.send(hint);
    }

    /// Waits for news; for ever once the thread has ended. Safe to cancel.
    pub async fn next(&mut self) -> News {
        match self.news.recv().await {
            Some(news) => news,
            None => std::future::pending().await,
        }
    }

    /// News that are there now.
    pub fn rest(&mut self) -> Option<News> {
        self.news.try_recv().ok()
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        self.hint(Hint::End);
    }
}
