//! Follows threads that may be stuck in a removal or an unmount, and says so when they are.
//!
//! A thread of its own looks at them. Reading `/proc/PID/task/TID/{syscall,stack}`, and on newer
//! kernels also `stat`, `wchan` and links, waits while that process executes a program, for as long
//! as its old files take to close (`exec_update_lock`), and for ever if one of them lies on a dead
//! file system. So they are read on a further thread, for at most 200 ms: a process that does not
//! answer is left alone until it does, and while four do not, nothing is learnt in this way.

mod anchor;
mod asleep;
mod calls;
mod disks;
mod followed;
mod follower;
mod object;
mod room;
mod scan;

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Sender, channel},
    },
    thread::Builder,
    time::Duration,
};

use anyhow::{Context, Result};
use podstuck_common::{in_flight::InFlight, record::Caller};
use tokio::{
    runtime::Handle,
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
};

use follower::Follower;
use podstuck_model::{
    hung::{DiskWork, MountPoint, Phase, Since, WaitProgress},
    series::Span,
    thread::{Thread, Times},
    time::Monotonic,
};

/// What the rest has seen that may be of use here.
#[derive(Debug)]
pub enum Notice {
    /// All calls that were entered longer than the threshold ago, by the probes' table. Each second.
    InFlight(Vec<InFlight>),
    /// These processes have deleted something since the last notice.
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
        actor: Caller,
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
    pub actor: Caller,
}

/// How long a phase took that no probe sees the end of.
#[derive(Debug)]
pub struct PhaseTook {
    /// The phase.
    pub span: Span,
    /// The mount point.
    pub path: PathBuf,
    /// The process.
    pub pid: u32,
    /// Who it was.
    pub actor: Caller,
    /// After the exit: at most so long, to a tenth of a second. Before the call: exact.
    pub duration: Duration,
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
    pub actor: Caller,
    /// Its state.
    pub times: Option<Times>,
    /// The function it waits in.
    pub wait_channel: Option<String>,
    /// The functions that it is in, the innermost first.
    pub stack: Vec<String>,
    /// How it came on since it was told last, or since the first look.
    pub progress: Option<WaitProgress>,
    /// What block devices have done so far, where it may wait for one.
    pub disks: Vec<DiskWork>,
}

/// What is told.
#[derive(Debug)]
pub enum Report {
    /// A thread is stuck for a while, for twice as long as when it was told last, or no longer.
    Seen(Box<Sighting>),
    /// A phase is over that was measured.
    Took(PhaseTook),
    /// The processes that do not say, at the second look or later, what they are doing.
    Silent(BTreeSet<u32>),
}

/// The thread that follows, from outside.
pub struct HungCalls {
    notices: Sender<Notice>,
    reports: UnboundedReceiver<Report>,
    dropped: Arc<AtomicU64>,
}

impl HungCalls {
    /// Starts it. To be called inside the runtime, which asks the helper processes, and before
    /// the main thread limits itself: this one keeps what shows kernel stacks.
    ///
    /// # Errors
    /// Fails when no thread can be had.
    pub fn start(threshold: Duration, sees_exec: bool) -> Result<Self> {
        let (notices, queue) = channel();
        let (sender, reports) = unbounded_channel();
        let dropped = Arc::default();
        let follower = Follower::new(
            threshold,
            sees_exec,
            sender,
            Handle::current(),
            notices.clone(),
            Arc::clone(&dropped),
        );
        Builder::new()
            .name("stuck".into())
            .spawn(move || follower.run(&queue))
            .context("starting the thread that follows stuck calls")?;
        Ok(Self { notices, reports, dropped })
    }

    /// How many threads were not followed because there were too many.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Whether the thread has ended, as none does that works.
    pub fn has_ended(&self) -> bool {
        self.reports.is_closed()
    }

    /// Tells it something. It never waits.
    pub fn notify(&self, notice: Notice) {
        // If the thread has died, there is nobody to tell.
        let _ = self.notices.send(notice);
    }

    /// Waits for reports; for ever once the thread has ended. Safe to cancel.
    pub async fn next(&mut self) -> Report {
        match self.reports.recv().await {
            Some(reports) => reports,
            None => std::future::pending().await,
        }
    }
}

impl Drop for HungCalls {
    fn drop(&mut self) {
        self.notify(Notice::End);
    }
}
