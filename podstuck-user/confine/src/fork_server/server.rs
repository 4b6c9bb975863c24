//! The server's side: one thread, which waits for orders and for the ends of its processes.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::exit,
};

use nix::unistd::{ForkResult, fork};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{
        Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, pidfd_open,
        set_parent_process_death_signal, waitpid,
    },
};

use super::{
    Work,
    protocol::{Order, Started, next_order, say},
};
use crate::role::Role;

/// Limit of processes at a time, including those that hang. A run has two writers and one that holds its probes, asks
/// seven questions at a time for the engine, and a few more.
pub(super) const MOST: usize = 24;

/// Pause between two orders in which the server prepares: in the first moments of a run, an answer may be waited for.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Serves until the client has ended. Each process that is started runs `work`; see [`super::start`] for `prepare`.
pub(super) fn run(
    orders: OwnedFd,
    work: fn(Work, UnixStream) -> anyhow::Result<()>,
    prepare: fn(),
) -> ! {
    let started = serve(&orders, prepare);
    // A started process gives no orders.
    drop(orders);
    let ended = match started {
        Ok(None) => Ok(()),
        Ok(Some(Forked { work: of, channel, parent })) => {
            begin(of, parent).and_then(|()| work(of, channel.into()))
        }
        Err(error) => Err(error.into()),
    };
    exit(i32::from(ended.is_err()));
}

/// A newly forked process.
struct Forked {
    work: Work,
    channel: OwnedFd,
    parent: Pid,
}

/// `Some` in the forked process; `None` when the server is to end.
fn serve(orders: &OwnedFd, prepare: fn()) -> io::Result<Option<Forked>> {
    let mut alive: Vec<(Pid, OwnedFd)> = Vec::new();
    // Until the run begins there is no pause, and none after it was used.
    let mut pause = None;
    loop {
        let ends =
            alive.iter().map(|(_, pidfd)| PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN));
        let first = PollFd::from_borrowed_fd(orders.as_fd(), PollFlags::IN);
        let mut awaited: Vec<PollFd<'_>> = std::iter::once(first).chain(ends).collect();
        match poll(&mut awaited, pause.as_ref()) {
            Ok(0) => {
                pause = None;
                prepare();
                continue;
            }
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let is_ordered = awaited.first().is_some_and(|first| !first.revents().is_empty());
        // So that its CPU time counts as ours.
        alive.retain(|(pid, _)| matches!(waitpid(Some(*pid), WaitOptions::NOHANG), Ok(None)));
        if !is_ordered {
            continue;
        }
        match next_order(orders)? {
            None => return Ok(None),
            Some(Order::Limit) => {
                Role::Look.assume();
                pause = Some(PAUSE);
            }
            Some(Order::Start(_, channel)) if alive.len() >= MOST => {
                // The client may have ended.
                let _ = say(channel, &Started::TooMany);
            }
            Some(Order::Start(work, channel)) => {
                let parent = getpid();
                // SAFETY: this process has one thread, so nothing that the new one needs is held by another.
                match unsafe { fork() } {
                    Ok(ForkResult::Child) => return Ok(Some(Forked { work, channel, parent })),
                    Ok(ForkResult::Parent { child }) => {
                        alive.extend(tell(child.as_raw(), channel)?);
                    }
                    Err(errno) => {
                        let _ = say(channel, &Started::Failed(errno as i32));
                    }
                }
            }
        }
    }
}

/// Reports the new process to the client.
fn tell(child: i32, channel: OwnedFd) -> io::Result<Option<(Pid, OwnedFd)>> {
    let Some(pid) = Pid::from_raw(child) else { return Ok(None) };
    // Not yet waited for: the process id cannot be reused.
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    // Without its client the process ends by itself: its channel is closed.
    let _ = say(&channel, &Started::Process(child, pidfd.as_fd()));
    Ok(Some((pid, pidfd)))
}

/// In the new process.
fn begin(work: Work, parent: Pid) -> anyhow::Result<()> {
    let name = match work {
        Work::Look => c"helper",
        Work::Export => c"exporter",
        Work::Record => c"recorder",
        Work::Hold => c"holder",
    };
    rustix::thread::set_name(name)?;
    if work == Work::Look {
        // A writer ends when all is written, a holder with its client; a helper without a client would never end.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        anyhow::ensure!(getppid() == Some(parent), "the process that asked has ended");
    }
    Ok(())
}
