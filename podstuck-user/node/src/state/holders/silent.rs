//! Processes that do not answer, before a helper asks each of them: it would wait for the first one, and the
//! caller with it.

use std::{
    sync::mpsc::{RecvTimeoutError, channel},
    thread::{self, Builder},
    time::{Duration, Instant},
};

use podstuck_confine::{
    proc,
    silent::{self, Owner},
};

/// Interval between checks whether the thread waits: a read takes microseconds.
const CHECKED: Duration = Duration::from_millis(50);
/// Until when a process may answer late: on a busy node one of low priority takes some time to execute a program.
const LATE: Duration = Duration::from_secs(1);
/// Limit of the whole check. A silent process that it does not find blocks the helper.
const LIMIT: Duration = Duration::from_secs(2);

/// The PIDs of all silent processes found, ascending.
pub(super) fn find() -> Vec<u32> {
    let begun = Instant::now();
    let mut owner = Owner::default();
    while begun.elapsed() < LIMIT && !all_answer(&mut owner, begun) {}
    while begun.elapsed() < LATE && !silent::all().is_empty() {
        thread::sleep(CHECKED);
    }
    silent::all()
}

/// Whether every process answers. `false` after one more silent process was found, or at the limit.
fn all_answer(owner: &mut Owner, begun: Instant) -> bool {
    let (reading, (done, is_done)) = (owner.reading(), channel());
    let ask = move || {
        reading.of_this_thread();
        for pid in proc::processes() {
            proc::started(pid);
            if reading.is_left_behind() {
                return;
            }
        }
        // The receiver is gone if that took too long.
        let _ = done.send(());
    };
    if Builder::new().name("asker".into()).spawn(ask).is_err() {
        return true;
    }
    while begun.elapsed() < LIMIT {
        match is_done.recv_timeout(CHECKED) {
            Err(RecvTimeoutError::Timeout) if owner.has_to_leave() => return false,
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return true,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_answers_late_is_not_silent() {
        // No process has a number this high.
        const PID: u32 = 4_194_998;
        let mut owner = Owner::default();
        let (reading, (begins, has_begun)) = (owner.reading(), channel());
        let late = thread::spawn(move || {
            reading.of_this_thread();
            silent::read(Path::new(&format!("/proc/{PID}")), |_| {
                begins.send(()).unwrap();
                thread::sleep(CHECKED * 4);
                Some(())
            })
        });
        has_begun.recv().unwrap();
        while !owner.has_to_leave() {
            thread::yield_now();
        }
        assert!(silent::all().contains(&PID));
        assert!(!find().contains(&PID));
        late.join().unwrap();
    }

    #[test]
    fn where_all_answer_none_is_silent() {
        let own = std::process::id();
        assert!(!find().contains(&own));
    }
}
