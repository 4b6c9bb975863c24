//! The client's side: any thread of the tool.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use nix::{
    sys::signal::{SigSet, Signal},
    unistd::{ForkResult, fork},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    process::{
        Pid, PidfdFlags, WaitOptions, getpid, getppid, pidfd_open, pidfd_send_signal,
        set_parent_process_death_signal, waitpid,
    },
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout},
};

use super::{
    Work,
    protocol::{Order, Started, heard, order},
    server,
};
use crate::role::Role;

/// Time limit of a fork.
const LIMIT: Duration = Duration::from_secs(2);
/// Time limit of the server's end.
const END: Duration = Duration::from_millis(200);

const ENDED: &str = "the process that starts all others has ended";
static GONE: AtomicBool = AtomicBool::new(false);
static SERVER: OnceLock<Server> = OnceLock::new();

struct Server {
    orders: OwnedFd,
    pid: Pid,
}

/// Forks the server. Call it while there is one thread; returns in this process only. Each process that the server
/// starts runs `work`. Once the run has begun and the server has nothing to do, it runs `prepare`: what that leaves in
/// memory, no process has to make again.
///
/// # Errors
/// Fails when there is no room for another process.
pub fn start(work: fn(Work, UnixStream) -> Result<()>, prepare: fn()) -> Result<()> {
    let (orders, served) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let parent = getpid();
    // SAFETY: there is one thread, so nothing that the new process needs is held by another.
    match unsafe { fork() }.context("starting the fork server")? {
        ForkResult::Parent { child } => {
            let pid = Pid::from_raw(child.as_raw()).context("a process without an id")?;
            // A second start keeps the first: it is for tests only.
            let _ = SERVER.set(Server { orders, pid });
            Ok(())
        }
        ForkResult::Child => {
            drop(orders);
            if let Err(error) = settle(parent) {
                tracing::warn!("the fork server: {error:#}");
                std::process::exit(1);
            }
            server::run(served, work, prepare)
        }
    }
}

/// The new process keeps nothing of the old one open, and ends with it and with nothing else.
fn settle(parent: Pid) -> Result<()> {
    set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    anyhow::ensure!(getppid() == Some(parent), "the process that started it has ended");
    // Ctrl-C at a terminal is for the run, which still asks questions then.
    let signals: SigSet = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM].into_iter().collect();
    signals.thread_block()?;
    // A working directory in the volume in question would keep it busy.
    std::env::set_current_dir("/").context("changing to /")?;
    // A process that reads the run's output waits until it is closed.
    let nothing = File::options().read(true).write(true).open("/dev/null").context("/dev/null")?;
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;
    dup2_stderr(&nothing)?;
    rustix::thread::set_name(c"fork server")?;
    Role::Fork.assume();
    Ok(())
}

/// From now on the server, and each process that it starts, has at most the privileges of a run.
pub fn limit() {
    if let Some(server) = SERVER.get()
        && let Err(error) = order(&server.orders, &Order::Limit)
    {
        tracing::info!("the fork server was not limited: {error}");
    }
}

/// Ends the server, and with it all helpers. Does not wait for those that cannot end.
pub fn end() {
    let Some(server) = SERVER.get() else { return };
    let _ = rustix::net::shutdown(&server.orders, rustix::net::Shutdown::Both);
    if let Ok(pidfd) = pidfd_open(server.pid, PidfdFlags::empty())
        && is_over(&pidfd, END)
    {
        // So that its CPU time counts as ours.
        let _ = waitpid(Some(server.pid), WaitOptions::NOHANG);
    }
}

/// A process that was started.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    pidfd: OwnedFd,
}

/// Why no further process can be started, if so.
pub fn lost() -> Option<&'static str> {
    GONE.load(Ordering::Relaxed).then_some(ENDED)
}

/// Starts a process; with the channel to it.
///
/// # Errors
/// Fails with the reason why none can be started.
pub fn spawn(work: Work) -> Result<(Process, UnixStream), String> {
    let server = SERVER.get().ok_or("there is no process to start it from")?;
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("the process that starts it did not do so within {LIMIT:?}")
        }
        io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset => {
            GONE.store(true, Ordering::Relaxed);
            ENDED.to_owned()
        }
        _ => error.to_string(),
    };
    let (channel, theirs) = UnixStream::pair().map_err(failed)?;
    channel.set_read_timeout(Some(LIMIT)).map_err(failed)?;
    channel.set_write_timeout(Some(LIMIT)).map_err(failed)?;
    order(&server.orders, &Order::Start(work, theirs.into())).map_err(failed)?;
    match heard(&channel).map_err(failed)? {
        Started::Process(pid, pidfd) => Ok((Process { pid: pid.cast_unsigned(), pidfd }, channel)),
        Started::TooMany => Err("the limit of helper processes is reached".into()),
        Started::Failed(errno) => Err(io::Error::from_raw_os_error(errno).to_string()),
    }
}

impl Process {
    /// A process that a test has started.
    #[cfg(test)]
    pub fn of_child(child: &std::process::Child) -> Self {
        let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).unwrap();
        Self { pid: child.id(), pidfd }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.pid
    }

    /// Whether it ends within that time.
    pub fn is_over(&self, within: Duration) -> bool {
        is_over(&self.pidfd, within)
    }

    /// Kills it, without waiting for its end.
    pub fn kill(&self) {
        // Fails for a process that has just ended.
        let _ = pidfd_send_signal(&self.pidfd, rustix::process::Signal::KILL);
    }
}

/// Whether a process ends within that time; `false` when that cannot be determined.
fn is_over(pidfd: &OwnedFd, within: Duration) -> bool {
    is_ready(pidfd, Instant::now() + within).unwrap_or(false)
}

/// Waits until `file` is readable, or until `end`.
///
/// # Errors
/// Fails when `poll` fails.
pub fn is_ready(file: &impl AsFd, end: Instant) -> io::Result<bool> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let limit = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut wanted = [PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN)];
        match poll(&mut wanted, Some(&limit)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, time::Duration};

    use podstuck_testing::{again, is_started_again};

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn wait_for_the_end(_: Work, mut channel: UnixStream) -> Result<()> {
        channel.read_to_end(&mut Vec::new())?;
        Ok(())
    }

    #[test]
    fn no_more_processes_than_may_be_and_none_without_the_server() {
        // There is one server for each process.
        if !is_started_again() {
            let ended = again().output().unwrap();
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
            return;
        }
        start(wait_for_the_end, || {}).unwrap();
        let mut all: Vec<_> = (0..server::MOST).map(|_| spawn(Work::Look).unwrap()).collect();
        assert!(spawn(Work::Look).unwrap_err().contains("the limit of helper processes"));
        // One ends when its channel is closed, another when it is killed.
        let (process, channel) = all.remove(0);
        drop(channel);
        assert!(process.is_over(LONG));
        all[0].0.kill();
        assert!(all[0].0.is_over(LONG));
        let end = Instant::now() + LONG;
        while all.len() < server::MOST {
            all.extend(spawn(Work::Look));
            assert!(Instant::now() < end);
        }
        let (writer, _channel) = loop {
            all.pop();
            if let Ok(started) = spawn(Work::Export) {
                break started;
            }
        };
        super::end();
        assert!(all.iter().all(|(process, _)| process.is_over(LONG)));
        // A writer first writes what it was given.
        assert!(!writer.is_over(Duration::from_millis(100)));
        assert_eq!((spawn(Work::Look).unwrap_err().as_str(), lost()), (ENDED, Some(ENDED)));
    }
}
