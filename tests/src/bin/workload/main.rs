//! Makes system calls in a timed loop and counts them itself: what `cargo xtask bench` measures
//! tracers with. Only the calls are timed; what they need is made before. Prints one JSON object.

mod count;
mod each;
mod pause;
mod stopwatch;
mod tree;

use std::{
    path::{Path, PathBuf},
    sync::Barrier,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use clap::{Parser, ValueEnum};
use nix::{
    sched::{CpuSet, sched_setaffinity},
    time::{ClockId, clock_gettime},
    unistd::Pid,
};
use serde::Serialize;

use crate::count::{Count, Tally};
use crate::stopwatch::Stopwatch;

#[derive(Parser)]
struct Arguments {
    /// What to do
    kind: Kind,
    /// Where to do it
    #[arg(long)]
    dir: PathBuf,
    /// How many calls, or how many entries of a tree
    #[arg(long)]
    calls: u64,
    /// How many objects exist at a time, so that memory and inodes suffice
    #[arg(long, default_value_t = 20_000)]
    portion: u64,
    /// On how many threads, each with its share of the calls
    #[arg(long, default_value_t = 1)]
    threads: u64,
    /// The processor to stay on
    #[arg(long)]
    cpu: Option<usize>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// Delete files by their directory's descriptor
    Unlinkat,
    /// Try to remove the mount point `mounted` in the directory
    Busy,
    /// Remove volumes beside the directory, each with as many directories in it as exist at a time
    Volumes,
    /// Remove trees as Go's `os.RemoveAll` does
    Tree,
    /// Remove what is in the directory in that order, and stop (SIGSTOP) after this number of entries
    Pause,
    /// Only call getppid
    Getppid,
    /// Mount a tmpfs and unmount it; only unmounting is timed
    Umount,
    /// Rename a file in the directory, to and fro
    Rename,
    /// Execute this program, which ends at once; starting and waiting are timed, too
    Exec,
    /// One call each millisecond for a missing file, with the time of each
    Tick,
}

/// What one thread did.
#[derive(Default)]
struct Done {
    /// Time in the calls.
    time: Stopwatch,
    count: Count,
    /// When each call began, if that is wanted, in nanoseconds of the monotonic clock.
    began_ns: Vec<u64>,
}

#[derive(Serialize)]
struct Report {
    /// Calls made.
    calls: u64,
    /// The mean over all threads' calls.
    ns_per_call: f64,
    /// The same without the time in which something else had the processor.
    cpu_ns_per_call: f64,
    /// By call, then outcome.
    tally: Tally,
    /// When the program was up, by the monotonic clock, which is one for all processes.
    up_ns: u64,
    /// When the calls were over.
    over_ns: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    began_ns: Vec<u64>,
}

fn main() -> Result<()> {
    let up_ns = now_ns()?;
    let arguments = Arguments::parse();
    if let Some(cpu) = arguments.cpu {
        let mut set = CpuSet::new();
        set.set(cpu).with_context(|| format!("there is no CPU {cpu}"))?;
        sched_setaffinity(Pid::from_raw(0), &set)
            .with_context(|| format!("cannot stay on CPU {cpu}"))?;
    }
    let done = on_threads(&arguments)?;
    let over_ns = now_ns()?;
    let elapsed: Duration = done.iter().map(|one| one.time.elapsed).sum();
    let on_cpu: Duration = done.iter().map(|one| one.time.on_cpu).sum();
    let mut count = Count::default();
    let mut began_ns = Vec::new();
    for one in done {
        count.add(&one.count);
        began_ns.extend(one.began_ns);
    }
    let calls = count.total().max(1) as f64;
    let report = Report {
        calls: count.total(),
        ns_per_call: elapsed.as_nanos() as f64 / calls,
        cpu_ns_per_call: on_cpu.as_nanos() as f64 / calls,
        tally: count.tally(),
        up_ns,
        over_ns,
        began_ns,
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

fn on_threads(arguments: &Arguments) -> Result<Vec<Done>> {
    let threads = arguments.threads.max(1);
    let calls = arguments.calls / threads;
    let together = Barrier::new(usize::try_from(threads).context("so many threads")?);
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|number| {
                let (dir, together) = (arguments.dir.join(format!("work-{number}")), &together);
                scope.spawn(move || {
                    together.wait();
                    work(arguments, number, &dir, calls)
                })
            })
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
            .collect()
    })
}

fn work(arguments: &Arguments, thread: u64, dir: &Path, calls: u64) -> Result<Done> {
    match arguments.kind {
        Kind::Unlinkat => each::unlinkat_files(dir, calls, arguments.portion),
        Kind::Busy => each::remove_mount_point(&arguments.dir, calls),
        Kind::Volumes => each::remove_volumes(&arguments.dir, thread, calls, arguments.portion),
        Kind::Tree => tree::remove_trees(dir, calls, arguments.portion),
        Kind::Pause => pause::remove_and_stop(&arguments.dir, calls),
        Kind::Getppid => each::get_parent(calls),
        Kind::Umount => each::unmount(dir, calls),
        Kind::Rename => each::rename_file(dir, calls),
        Kind::Exec => each::execute(calls),
        Kind::Tick => each::tick(&arguments.dir, calls),
    }
}

fn now_ns() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).context("cannot read the clock")?;
    u64::try_from(Duration::from(now).as_nanos()).context("the clock is beyond its range")
}
