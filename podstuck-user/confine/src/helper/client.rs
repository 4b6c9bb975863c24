//! The client's side: starts a helper, waits, and leaves it behind when it hangs.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io::{Read, Write},
    os::{fd::AsFd, unix::net::UnixStream},
    time::{Duration, Instant},
};

use podstuck_model::{
    degraded::{Degraded, Feed},
    query::NoAnswer,
};
use serde::de::DeserializeOwned;

use super::{
    Budget, Message, Question, Refusal,
    left_behind::{Left, LeftBehind},
};
use crate::{
    alive,
    fork_server::{Process, Work, is_ready, lost, spawn},
    proc,
};

/// Time limit of one step. Local file systems answer in milliseconds, and all reads from kernel memory together take
/// a fraction of a second on a node with thousands of processes.
pub const LIMIT: Duration = Duration::from_secs(2);

/// Time limit of all steps together.
pub(super) const WHOLE: Duration = Duration::from_secs(20);

/// The same of a helper that is ready to run, and gets no processor: it hangs nowhere. A helper has the lowest share of a
/// busy machine's processors, and its own limit of CPU time.
const BUSY: Duration = Duration::from_secs(60);

/// Limit of a helper's output, in bytes. All holders of a node with thousands of processes take a few megabytes.
const LONGEST: usize = 32 << 20;

/// Helpers that hang, of all callers.
static LEFT_BEHIND: LeftBehind = LeftBehind::new();

/// Why a helper gave no answer.
#[derive(Debug)]
pub enum Failure<S> {
    /// It hangs and was left behind.
    Hung {
        /// The last step that it reported.
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
pub fn ask<Q: Question>(question: Q) -> Result<Q::Answer, NoAnswer> {
    ask_in_parts(question, |_| {}).map_err(NoAnswer::from)
}

/// As [`ask`], and passes on the parts that come before the answer.
///
/// # Errors
/// As [`ask`]; the step says where the helper hangs.
pub fn ask_in_parts<Q: Question>(
    question: Q,
    take: impl FnMut(Q::Part),
) -> Result<Q::Answer, Failure<Q::Step>> {
    let entered = question.enters();
    if let Some(why) = entered.and_then(|(pid, path)| alive::why_not(pid, path, Q::OCCASION)) {
        return Err(Failure::Other(NoAnswer::NotEntered(why)));
    }
    let place = question.place();
    let hangs = (!place.is_empty()).then(|| why_not_again::<Q>(&place)).flatten();
    if let Some(why) = hangs.or_else(|| LEFT_BEHIND.why_used_up(Q::BUDGET)) {
        return Err(Failure::Other(NoAnswer::NotEntered(why)));
    }
    let (process, channel) = spawn(Work::Look).map_err(|why| failed(&why))?;
    let answer = exchange(&process, channel, &question, take);
    if let (Some((pid, path)), Ok(_) | Err(Failure::Hung { .. })) = (entered, &answer) {
        alive::came_to(pid, path, answer.is_ok());
    }
    // A helper that has answered ends at once, unless its open files are slow to close.
    if let Err(Failure::Hung { at, .. }) = &answer {
        LEFT_BEHIND.leave(Left::new::<Q>(process, at.as_ref(), place));
    } else if !process.is_over(LIMIT) {
        LEFT_BEHIND.leave(Left::new::<Q>(process, None, place));
    }
    answer
}

/// Why no helper is sent to a place where one hangs with the same question. Applies to periodic questions.
pub(super) fn why_not_again<Q: Question>(place: &OsStr) -> Option<String> {
    if matches!(Q::BUDGET, Budget::Events | Budget::Holders) {
        return None;
    }
    LEFT_BEHIND.why_not_again(Q::NAME, place)
}

/// Whether a helper that was left behind still hangs.
pub fn is_hanging(helper: u32) -> bool {
    LEFT_BEHIND.has(helper)
}

/// What helpers cannot do now, and which of them hang.
pub fn degraded() -> Vec<Degraded> {
    let feeds = [Feed::Objects, Feed::Holders, Feed::Node, Feed::Space, Feed::Logs];
    let lost = lost().map(|why| Degraded::new(format!("no helper can be asked: {why}"), &feeds));
    lost.into_iter().chain(LEFT_BEHIND.degraded()).collect()
}

fn failed<S>(error: &dyn std::fmt::Display) -> Failure<S> {
    Failure::Other(NoAnswer::Helper(error.to_string()))
}

fn exchange<Q: Question>(
    process: &Process,
    mut channel: UnixStream,
    question: &Q,
    mut take: impl FnMut(Q::Part),
) -> Result<Q::Answer, Failure<Q::Step>> {
    let mut text = serde_json::to_vec(&BTreeMap::from([(Q::NAME, question)]))
        .map_err(|error| failed(&error))?;
    text.push(b'\n');
    // The helper reads the whole request before it does anything else.
    channel.write_all(&text).map_err(|error| failed(&error))?;
    let mut lines = Lines::of(channel);
    let mut at = None;
    let begun = Instant::now();
    let is_runnable = || proc::is_runnable(process.id(), process.id());
    let has_time = || {
        let took = begun.elapsed();
        took < WHOLE || took < BUSY && is_runnable()
    };
    while has_time() {
        match lines.next(Instant::now() + LIMIT) {
            Ok(Some(Message::At(step))) => at = Some(step),
            Ok(Some(Message::Part(part))) => take(part),
            Ok(Some(Message::Answer(answer))) => {
                return answer.map_err(|why| {
                    Failure::Other(match why {
                        Refusal::NotEntered(why) => NoAnswer::NotEntered(why),
                        Refusal::Failed(why) => NoAnswer::Refused(why),
                    })
                });
            }
            Ok(None) if is_runnable() => {}
            Ok(None) => break,
            Err(why) => return Err(failed(&why)),
        }
    }
    Err(Failure::Hung { at, helper: process.id() })
}

/// The output of a helper.
struct Lines<R> {
    output: R,
    text: Vec<u8>,
    /// Where the next line begins, and how far it was searched for its end.
    start: usize,
    searched: usize,
    /// How many more bytes it may write.
    left: usize,
}

impl<R: Read + AsFd> Lines<R> {
    fn of(output: R) -> Self {
        Self { output, text: Vec::new(), start: 0, searched: 0, left: LONGEST }
    }

    /// The next message; `None` when none comes in time.
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
            if !is_ready(&self.output, end).map_err(|error| error.to_string())? {
                return Ok(None);
            }
            let mut part = [0; 16 << 10];
            match self.output.read(&mut part).map_err(|error| error.to_string())? {
                0 => return Err("it ended without an answer".into()),
                length if length > self.left => return Err("its answer is too long".into()),
                length => {
                    self.left -= length;
                    self.text.extend_from_slice(part.get(..length).unwrap_or_default());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{ChildStdout, Command, Stdio};

    use serde::Serialize;

    use super::*;
    use crate::helper::{Named, Teller};

    fn lines(script: &str) -> Lines<ChildStdout> {
        let child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn();
        Lines::of(child.unwrap().stdout.take().unwrap())
    }

    #[test]
    fn messages_come_one_by_one_however_they_are_cut() {
        let mut lines = lines(r#"printf '{"At":1}\n{"Pa'; sleep 0.1; printf 'rt":[2]}\n'"#);
        let mut next = || lines.next::<Message<u32, Vec<u32>, ()>>(Instant::now() + LIMIT);
        assert!(matches!(next(), Ok(Some(Message::At(1)))));
        assert!(matches!(next(), Ok(Some(Message::Part(part))) if part == [2]));
        assert!(next().unwrap_err().contains("without an answer"));
    }

    #[derive(Serialize)]
    struct Asked;

    impl Named for Asked {
        const NAME: &'static str = "asked";
    }

    impl Question for Asked {
        type Step = u32;
        type Part = u32;
        type Answer = u32;

        fn answer(self, _: &mut Teller<u32, u32>) -> anyhow::Result<u32> {
            unreachable!("another process answers")
        }
    }

    /// A machine that is busy gives a helper no processor for seconds; one that hangs waits in the kernel.
    #[test]
    fn a_helper_that_waits_for_a_processor_does_not_hang() {
        for (program, hangs) in [("while :; do :; done", false), ("exec sleep 60", true)] {
            let mut child = Command::new("sh").args(["-c", program]).spawn().unwrap();
            let (ours, mut its) = UnixStream::pair().unwrap();
            let late = std::thread::spawn(move || {
                std::thread::sleep(LIMIT + LIMIT / 2);
                let _ = its.write_all(b"{\"Answer\":{\"Ok\":7}}\n");
            });
            let answer = exchange(&Process::of_child(&child), ours, &Asked, |_| {});
            child.kill().unwrap();
            child.wait().unwrap();
            late.join().unwrap();
            match answer {
                Ok(7) => assert!(!hangs, "{program}"),
                Err(Failure::Hung { at: None, .. }) => assert!(hangs, "{program}"),
                other => panic!("{program}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_silent_helper_is_not_waited_for() {
        let mut lines = lines("sleep 5");
        let end = Instant::now() + Duration::from_millis(50);
        assert!(matches!(lines.next::<Message<(), (), ()>>(end), Ok(None)));
        assert!(Instant::now() < end + LIMIT);
    }
    #[test]
    fn a_helper_that_writes_too_much_is_cut_off() {
        for script in ["yes | tr -d '\\n'", "yes '{\"At\":1}'"] {
            let mut lines = lines(script);
            let mut next = || lines.next::<Message<u32, (), ()>>(Instant::now() + LIMIT);
            let end = std::iter::repeat_with(&mut next).find_map(Result::err);
            assert_eq!(end.unwrap(), "its answer is too long");
        }
    }
}
