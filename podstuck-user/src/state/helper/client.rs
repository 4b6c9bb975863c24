//! The client's side: starts a helper, waits, and leaves it behind when it hangs.

use std::{
    io::{Read, Write},
    os::fd::AsFd,
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};
use serde::de::DeserializeOwned;

use super::{Message, Question, Request, left_behind::LeftBehind};
use crate::query::NoAnswer;

/// How long one step may take. Local file systems answer in milliseconds, and all that is answered
/// from memory takes a fraction of a second together, on a node with thousands of processes.
pub(in crate::state) const LIMIT: Duration = Duration::from_secs(2);

/// How long all steps may take together.
const WHOLE: Duration = Duration::from_secs(20);

/// Helpers that hang, of all who ask.
static LEFT_BEHIND: LeftBehind = LeftBehind::new();

/// Why a helper did not come to its answer.
#[derive(Debug)]
pub(in crate::state) enum Failure<S> {
    /// It hangs and was left behind.
    Hung {
        /// The step that it told last.
        at: Option<S>,
        /// Its process id.
        helper: u32,
    },
    /// Any other reason.
    Other(NoAnswer),
}

impl<S: std::fmt::Debug> From<Failure<S>> for NoAnswer {
    fn from(failure: Failure<S>) -> Self {
        match failure {
            Failure::Hung { at, helper } => {
                tracing::info!("helper {helper} hangs at {at:?}");
                Self::Deadline(LIMIT)
            }
            Failure::Other(why) => why,
        }
    }
}

/// Asks, and waits for the answer: for a thread that may wait.
///
/// # Errors
/// Fails when the helper hangs or cannot be run, and when what it looks at answers with an error.
pub(in crate::state) fn ask<Q: Question>(question: Q) -> Result<Q::Answer, NoAnswer> {
    ask_in_parts(question, |_| {}).map_err(NoAnswer::from)
}

/// The same, and takes the parts that come before the answer.
///
/// # Errors
/// As [`ask`]; the step tells where it hangs.
pub(in crate::state) fn ask_in_parts<Q: Question>(
    question: Q,
    take: impl FnMut(Q::Part),
) -> Result<Q::Answer, Failure<Q::Step>> {
    let request: Request = question.into();
    if LEFT_BEHIND.is_full(Q::BUDGET) {
        return Err(Failure::Other(NoAnswer::Deadline(LIMIT)));
    }
    let started = Command::new("/proc/self/exe")
        .arg("look")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = started.map_err(|error| failed(&error))?;
    let answer = exchange::<Q>(&mut child, &request, take);
    // One that has answered ends at once, unless what it had open is slow to close.
    if matches!(answer, Err(Failure::Hung { .. })) || !has_ended(&child) {
        LEFT_BEHIND.leave(Q::BUDGET, child);
    } else {
        // So that its CPU time counts as ours.
        let _ = child.wait();
    }
    answer
}

/// Whether a helper that was left behind still is.
pub(in crate::state) fn is_hanging(helper: u32) -> bool {
    LEFT_BEHIND.has(helper)
}

fn failed<S>(error: &dyn std::fmt::Display) -> Failure<S> {
    Failure::Other(NoAnswer::Helper(error.to_string()))
}

fn exchange<Q: Question>(
    child: &mut Child,
    request: &Request,
    mut take: impl FnMut(Q::Part),
) -> Result<Q::Answer, Failure<Q::Step>> {
    let mut text = serde_json::to_vec(request).map_err(|error| failed(&error))?;
    text.push(b'\n');
    if let Some(mut input) = child.stdin.take() {
        // It reads all of it before it looks at anything.
        input.write_all(&text).map_err(|error| failed(&error))?;
    }
    let output = child.stdout.take().ok_or_else(|| failed(&"it has no output"))?;
    let mut lines = Lines { output, text: Vec::new(), start: 0, searched: 0 };
    let mut at = None;
    let end = Instant::now() + WHOLE;
    loop {
        match lines.next(end.min(Instant::now() + LIMIT)) {
            Ok(Some(Message::At(step))) => at = Some(step),
            Ok(Some(Message::Part(part))) => take(part),
            Ok(Some(Message::Answer(answer))) => {
                return answer.map_err(|why| Failure::Other(NoAnswer::Refused(why)));
            }
            Ok(None) => return Err(Failure::Hung { at, helper: child.id() }),
            Err(why) => return Err(failed(&why)),
        }
    }
}

/// What a helper writes.
struct Lines {
    output: ChildStdout,
    text: Vec<u8>,
    /// Where the next line begins, and how far no end of it was found.
    start: usize,
    searched: usize,
}

impl Lines {
    /// The next message; `None` when there is none in time.
    fn next<T: DeserializeOwned>(&mut self, end: Instant) -> Result<Option<T>, String> {
        loop {
            let rest = self.text.get(self.searched..).unwrap_or_default();
            if let Some(length) = memchr::memchr(b'\n', rest) {
                let stop = self.searched + length;
                let line = self.text.get(self.start..stop).unwrap_or_default();
                let message = serde_json::from_slice(line).map_err(|error| error.to_string())?;
                (self.start, self.searched) = (stop + 1, stop + 1);
                return Ok(Some(message));
            }
            self.text.drain(..self.start);
            (self.start, self.searched) = (0, self.text.len());
            if !is_ready(&self.output, end)? {
                return Ok(None);
            }
            let mut part = [0; 16 << 10];
            match self.output.read(&mut part).map_err(|error| error.to_string())? {
                0 => return Err("it ended without an answer".into()),
                length => self.text.extend_from_slice(part.get(..length).unwrap_or_default()),
            }
        }
    }
}

/// Waits until something can be read, or that time.
fn is_ready(file: &impl AsFd, end: Instant) -> Result<bool, String> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let limit = Timespec::try_from(left).map_err(|error| error.to_string())?;
        let mut wanted = [PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN)];
        match poll(&mut wanted, Some(&limit)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Whether a helper ends within the limit; `false` where that cannot be told.
fn has_ended(child: &Child) -> bool {
    pidfd_open(Pid::from_child(child), PidfdFlags::empty())
        .is_ok_and(|pidfd| is_ready(&pidfd, Instant::now() + LIMIT).unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(script: &str) -> Lines {
        let child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn();
        let output = child.unwrap().stdout.take().unwrap();
        Lines { output, text: Vec::new(), start: 0, searched: 0 }
    }

    #[test]
    fn messages_come_one_by_one_however_they_are_cut() {
        let mut lines = lines(r#"printf '{"At":1}\n{"Pa'; sleep 0.1; printf 'rt":[2]}\n'"#);
        let mut next = || lines.next::<Message<u32, Vec<u32>, ()>>(Instant::now() + LIMIT);
        assert!(matches!(next(), Ok(Some(Message::At(1)))));
        assert!(matches!(next(), Ok(Some(Message::Part(part))) if part == [2]));
        assert!(next().unwrap_err().contains("without an answer"));
    }

    #[test]
    fn who_says_nothing_is_not_waited_for() {
        let mut lines = lines("sleep 5");
        let end = Instant::now() + Duration::from_millis(50);
        assert!(matches!(lines.next::<Message<(), (), ()>>(end), Ok(None)));
        assert!(Instant::now() < end + LIMIT);
    }
}
