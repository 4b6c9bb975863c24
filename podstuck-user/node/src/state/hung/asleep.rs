//! How long a thread has been asleep at least, by the time that the scheduler notes when the thread runs. So a call
//! that was entered before podstuck was started has an age.
//!
//! `/proc/PID/task/TID/sched` has `se.exec_start`, in milliseconds of the clock of the processor's queue on
//! which the thread ran (`update_curr` in kernel/sched/fair.c, `proc_sched_show_task` in
//! kernel/sched/debug.c; needs CONFIG_SCHED_DEBUG before Linux 6.15). That clock differs from one processor to the
//! next and leaves out the time that interrupts and a hypervisor take, so it is compared with that of a
//! thread that runs there now, and the result is never too long.

use std::{fs, io, time::Duration};

use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};
use procfs::process::Process;

use podstuck_confine::timed_read::TimedReader;
use podstuck_model::thread::Thread;

/// `None` where the kernel does not show it, or where the thread is awake.
pub(super) fn at_least(thread: Thread, reader: &mut TimedReader) -> Option<Duration> {
    let Thread { pid, tid } = thread;
    let answer =
        reader.read(pid, move || Ok(measure(pid, tid)?.as_nanos().to_string().into_bytes()));
    let nanoseconds = String::from_utf8(answer?.ok()?).ok()?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

/// Moves to the thread's processor for a moment, and compares the clocks.
fn measure(pid: u32, tid: u32) -> io::Result<Duration> {
    let other = |what: procfs::ProcError| io::Error::other(what);
    let task = Process::new(pid.cast_signed())
        .and_then(|process| process.task_from_tid(tid.cast_signed()))
        .and_then(|task| task.stat())
        .map_err(other)?;
    let processor = task.processor.and_then(|processor| usize::try_from(processor).ok());
    let processor = processor.ok_or_else(|| io::Error::other("the kernel names no processor"))?;
    let of_thread = format!("/proc/{pid}/task/{tid}/sched");
    let ran = last_ran(&of_thread)?;
    let now = here(processor)?;
    if last_ran(&of_thread)? != ran {
        return Err(io::Error::other("it is awake"));
    }
    Duration::try_from_secs_f64((now - ran) / 1000.0).map_err(io::Error::other)
}

/// The time by the clock of a processor.
fn here(processor: usize) -> io::Result<f64> {
    let own = Pid::from_raw(0);
    let everywhere = sched_getaffinity(own)?;
    let mut there = CpuSet::new();
    there.set(processor)?;
    sched_setaffinity(own, &there)?;
    let now = last_ran("/proc/thread-self/sched");
    sched_setaffinity(own, &everywhere)?;
    now
}

fn last_ran(file: &str) -> io::Result<f64> {
    let text = fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix("se.exec_start"));
    let value = line.and_then(|line| line.trim_start_matches([' ', ':']).trim().parse().ok());
    // 0 where the thread has not run yet, or not since it came from another processor.
    let value = value.filter(|milliseconds| *milliseconds > 0.0);
    value.ok_or_else(|| io::Error::other("the scheduler does not report when it ran"))
}

#[cfg(test)]
mod tests {
    use std::{process::Command, thread::sleep};

    use podstuck_testing::skip;

    use super::*;

    #[test]
    fn the_time_asleep_grows_while_a_thread_sleeps() {
        if last_ran("/proc/thread-self/sched").is_err() {
            skip("a kernel whose scheduler does not tell when a thread ran");
            return;
        }
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let thread = Thread::main(child.id());
        let mut reader = TimedReader::default();
        // Until it sleeps.
        let first = loop {
            if let Some(slept) = at_least(thread, &mut reader) {
                break slept;
            }
        };
        sleep(Duration::from_millis(300));
        let then = at_least(thread, &mut reader).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(then > first, "{first:?}, then {then:?}");
        assert!(then < Duration::from_secs(60), "{then:?}");
        assert_eq!(at_least(thread, &mut reader), None, "it has ended");
    }
}
