//! Follows threads that may be stuck in a removal or an unmount, and reports those that are.
//!
//! A thread of its own checks them. Reading `/proc/PID/task/TID/{syscall,stack}`, and on newer
//! kernels also `stat`, `wchan` and links, waits while that process executes a program, for as long
//! as its old files take to close (`exec_update_lock`), and for ever if one of them is on a dead
//! file system. So they are read on a further thread, for at most 200 ms: a process that does not
//! answer is not read until it does, and while four do not answer, none is read.

mod anchor;
mod asleep;
mod calls;
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
    kernel_lock::LockHolder,
    series::Span,
    thread::{Thread, Times},
    time::Monotonic,
};

/// What the rest of podstuck reports to the follower.
#[derive(Debug)]
pub enum Notice {
    /// All calls in the probes' table that were entered longer ago than the threshold. Sent every second.
    InFlight(Vec<InFlight>),
    /// These processes have deleted something since the last notice.
    Deleted(Vec<u32>),
    /// A call that took longer than the threshold returned, by the probes' record.
    Returned(Thread),
    /// `umount2` returned.
    Unmounted(Unmounted),
    /// A program that is there to unmount was executed.
    Executed {
        /// The process.
        pid: u32,
        /// When.
        at: Monotonic,
        /// The process as the probes saw it.
        actor: Caller,
    },
    /// The helper's answer for a followed thread: the object's path, or a command line.
    Text {
        /// The thread.
        tid: u32,
        /// When its call or program began, to recognise the thread.
        began: Monotonic,
        /// The text; `None` when it could not be read.
        text: Option<Vec<u8>>,
    },
    /// The run is over.
    End,
}

/// An `umount2` whose return the probes saw.
#[derive(Debug)]
pub struct Unmounted {
    /// The thread that called it.
    pub thread: Thread,
    /// When it was entered.
    pub entered: Monotonic,
    /// When it returned.
    pub returned: Monotonic,
    /// Whether it succeeded.
    pub ok: bool,
    /// The mount point.
    pub path: PathBuf,
    /// The caller.
    pub actor: Caller,
}

/// How long a phase took whose end no probe sees.
#[derive(Debug)]
pub struct PhaseTook {
    /// The phase.
    pub span: Span,
    /// The mount point.
    pub path: PathBuf,
    /// The process.
    pub pid: u32,
    /// The process, as it was described then.
    pub actor: Caller,
    /// After the exit: an upper bound, to a tenth of a second. Before the call: exact.
    pub duration: Duration,
}

/// A thread that is stuck, or was.
#[derive(Clone, Debug)]
pub struct Sighting {
    /// The thread.
    pub thread: Thread,
    /// Where it is stuck.
    pub phase: Phase,
    /// The name of the call, or of the program.
    pub syscall: String,
    /// The object in the mount namespace of the thread.
    pub path: Option<PathBuf>,
    /// The mount that the object is on, while it is mounted.
    pub mount: Option<MountPoint>,
    /// When it began.
    pub began: Monotonic,
    /// What `began` was taken from.
    pub since: Since,
    /// Whether it began before the probes were attached.
    pub before_start: bool,
    /// When it was seen.
    pub at: Monotonic,
    /// Whether it is over.
    pub over: bool,
    /// The thread's process.
    pub actor: Caller,
    /// Its state and times.
    pub times: Option<Times>,
    /// The kernel function it waits in.
    pub wait_channel: Option<String>,
    /// Its kernel stack, the innermost function first.
    pub stack: Vec<String>,
    /// Its progress since the last report, or since the first check.
    pub progress: Option<WaitProgress>,
    /// Completed requests of block devices, where it may wait for one.
    pub disks: Vec<DiskWork>,
    /// The threads that hold the kernel locks it waits for.
    pub lock: Vec<LockHolder>,
}

/// What the follower reports.
#[derive(Debug)]
pub enum Report {
    /// A thread is stuck for longer than the threshold, for twice as long as at its last report, or no longer.
    Seen(Box<Sighting>),
    /// The duration of a phase that is over.
    Took(PhaseTook),
    /// The processes whose `/proc` files do not answer, at the second attempt or later.
    Silent(BTreeSet<u32>),
}

/// Handle of the thread that follows stuck threads.
pub struct HungCalls {
    notices: Sender<Notice>,
    reports: UnboundedReceiver<Report>,
    dropped: Arc<AtomicU64>,
}

impl HungCalls {
    /// Starts the thread, which scans the processes that remove files at this interval. To be called inside the runtime, which asks the helper processes, and before the main thread
    /// drops its privileges: the thread keeps those for reading kernel stacks.
    ///
    /// # Errors
    /// Fails when no thread can be started.
    pub fn start(threshold: Duration, sees_exec: bool, scan_every: Duration) -> Result<Self> {
        let (notices, queue) = channel();
        let (sender, reports) = unbounded_channel();
        let dropped = Arc::default();
        let follower = Follower::new(
            threshold,
            (sees_exec, scan_every),
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

    /// Whether the thread has ended, which happens only on a fault.
    pub fn has_ended(&self) -> bool {
        self.reports.is_closed()
    }

    /// Sends a notice. Never waits.
    pub fn notify(&self, notice: Notice) {
        // The receiver is gone if the thread has died.
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
