//! All data that is read by system calls on maps, by one thread, so that the thread that empties the ring never waits
//! for the kernel.
//!
//! While a task is inside such a call, or inside a program on a tracepoint, its CPU runs no other program on a
//! tracepoint: the kernel holds `bpf_prog_active` up (`bpf_disable_instrumentation` in include/linux/bpf.h,
//! `trace_call_bpf` in kernel/trace/bpf_trace.c); a program on a function is not run inside itself. If the task is
//! preempted there, the calls of the task that runs instead are not seen. The kernel counts that since 6.7 (see
//! `cost::skipped`). On Linux 7.2, which preempts lazily, with two writers on one emulated CPU of a loaded machine,
//! it happened to 7,047 of 175,799 calls with tracepoints, and to 4,549 of 132,031 with fentry; on 6.12 to none of
//! 108,670. Real-time priority for this thread did not lower the number: the programs themselves are preempted.

use std::{
    collections::{HashMap, HashSet},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use aya::Ebpf;
use podstuck_common::{
    count::{CallTotals, CountKey},
    in_flight::InFlight,
    record::{Caller, Process},
};
use tokio::sync::oneshot;

use super::{
    actors::Actors,
    announced::Announced,
    counts::Counts,
    failures::Failures,
    in_flight::InFlightTable,
    losses::{LossCounters, Losses},
};
use podstuck_confine::role::Role;

/// Interval between searches for abandoned entries, in drains.
const REMOVE_EVERY: u64 = 30;
/// Interval between checks whether a table of counts is filling up: in memory, without a system call on a map.
const LOOK: Duration = Duration::from_millis(10);
/// The same while the table is nearly empty: each wakeup takes CPU time, also on an idle node.
const LOOK_AT_REST: Duration = Duration::from_millis(50);

/// The content of the tables since the last drain.
#[derive(Debug, Default)]
pub struct Drained {
    /// Exact counts.
    pub counts: Vec<(CountKey, CallTotals)>,
    /// The processes in them, if the probes still know them.
    pub actors: HashMap<Process, Caller>,
    /// Losses since the probes were loaded.
    pub losses: Losses,
    /// Calls that have not returned for longer than the threshold.
    pub in_flight: Vec<InFlight>,
    /// Calls, since the probes were loaded, whose return was missed and whose thread has ended.
    pub abandoned: u64,
    /// Drains, since the probes were loaded, that could not read or empty a map completely.
    pub failed: u64,
}

struct Maps {
    counts: Counts,
    actors: Actors,
    announced: Announced,
    losses: LossCounters,
    in_flight: InFlightTable,
    threshold: Duration,
    abandoned: u64,
    drains: u64,
    last_losses: Losses,
    failed: Failures,
}

/// The kind of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The first one. Counts that the process before has left are not drained yet: the targets of calls that are still
    /// made there are then known by name.
    First,
    /// A periodic drain.
    Usual,
    /// The last one: abandoned entries are searched for once more, since no later drain does.
    Last,
}

/// A request for a drain; the totals of all drains before, where they outlive this process. The paths of the `forgotten` targets are to be sent again, because user space has forgotten
/// them.
struct Request {
    turn: Turn,
    forgotten: Vec<u64>,
    totals: Option<Vec<u8>>,
    answer: oneshot::Sender<Drained>,
}

/// The handle of the thread that owns the tables.
pub struct Tables {
    requests: mpsc::Sender<Request>,
}

impl Tables {
    /// Takes the maps out of the loaded probes and starts the thread. A call in flight is reported once it has lasted
    /// `threshold`. `is_kept` says whether the counts outlive this process.
    pub fn take(ebpf: &mut Ebpf, threshold: Duration, is_kept: bool) -> Result<Self> {
        let maps = Maps {
            threshold,
            counts: Counts::take(ebpf, is_kept)?,
            actors: Actors::take(ebpf)?,
            announced: Announced::take(ebpf)?,
            losses: LossCounters::take(ebpf)?,
            in_flight: InFlightTable::take(ebpf)?,
            abandoned: 0,
            drains: 0,
            last_losses: Losses::default(),
            failed: Failures::default(),
        };
        let (requests, queue) = mpsc::channel();
        thread::Builder::new()
            .name("tables".into())
            .spawn(move || serve(maps, queue))
            .context("starting the thread that reads the tables")?;
        Ok(Self { requests })
    }

    /// Requests a drain; the answer arrives when it is done. The probes send the path of a forgotten target again at
    /// its next call.
    pub fn drain(
        &self,
        turn: Turn,
        forgotten: Vec<u64>,
        totals: Option<Vec<u8>>,
    ) -> oneshot::Receiver<Drained> {
        let (answer, receiver) = oneshot::channel();
        // If the thread is gone, the receiver says so.
        let _ = self.requests.send(Request { turn, forgotten, totals, answer });
        receiver
    }
}

/// The thread ended before it answered.
pub fn gone() -> anyhow::Error {
    anyhow!("the thread that reads the tables has ended")
}

fn serve(mut maps: Maps, queue: mpsc::Receiver<Request>) {
    Role::ReadMaps.assume();
    let mut look = LOOK;
    loop {
        match queue.recv_timeout(look) {
            Ok(Request { turn, forgotten, totals, answer }) => {
                maps.announced.forget(&forgotten);
                totals.iter().for_each(|totals| maps.counts.save(totals));
                // The caller may have stopped waiting.
                let _ = answer.send(maps.drain(turn));
            }
            Err(RecvTimeoutError::Timeout) if maps.counts.fills() => {
                maps.failed.begin();
                maps.counts.empty(&mut maps.failed);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        look = if maps.counts.is_at_rest() { LOOK_AT_REST } else { LOOK };
    }
}

impl Maps {
    fn drain(&mut self, turn: Turn) -> Drained {
        self.failed.begin();
        if turn == Turn::Last {
            self.counts.end();
        }
        let waits = turn == Turn::First && self.counts.is_kept();
        let counts = if waits { Vec::new() } else { self.counts.drain(&mut self.failed) };
        let callers: HashSet<Process> = counts.iter().map(|(key, _)| key.process()).collect();
        let seen = |process| Some((process, self.actors.get(process)?));
        let actors = callers.into_iter().filter_map(seen).collect();
        self.drains += 1;
        if turn == Turn::Last || self.drains.is_multiple_of(REMOVE_EVERY) {
            self.abandoned += self.in_flight.remove_abandoned(&mut self.failed);
        }
        let in_flight = self.in_flight.older_than(self.threshold);
        // They are totals: the previous ones are nearly right.
        let losses = self.failed.note("reading the probes' losses", self.losses.read());
        let losses = losses.unwrap_or(self.last_losses);
        self.last_losses = losses;
        let (abandoned, failed) = (self.abandoned, self.failed.drains());
        Drained { counts, actors, losses, in_flight, abandoned, failed }
    }
}
