//! The helper's side of the exchange.

use std::{
    io::{self, BufRead, Read, Write},
    marker::PhantomData,
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::{
    process::{Resource, Rlimit, nice, setrlimit},
    stdio::{dup2_stdin, dup2_stdout},
};
use serde::Serialize;

use super::{Message, NotEntered, Question, Refusal};

/// How often a helper reports that it is still at work: well within the time limit of a step.
const TELL_EVERY: Duration = Duration::from_millis(250);

/// Limit of a helper's own memory, in bytes. It is for the answers of an API server: one of 31 MiB, nearly the
/// longest that is read, takes 87 MiB with the program's pages, and one of 24 MiB 73
/// (`records_of_many_pods_fit_into_a_helper` of tests/large_node.rs, development build). Of the others, the most that
/// was seen is 16 MiB with the program's pages, of a search for holders on a node with 2,000 processes.
const MEMORY: u64 = 128 << 20;
/// Limit of CPU time, in seconds: the client waits no longer.
const CPU_S: u64 = 20;
/// Lower priority than the ring's reader and than short questions.
const NICE: i32 = 10;

/// Reads one request from a channel and answers it there.
///
/// # Errors
/// As [`serve`].
pub fn serve_through(channel: &UnixStream, answer: fn(&str) -> Result<()>) -> Result<()> {
    // A program that it executes has an output of its own.
    dup2_stdin(channel).context("its input")?;
    dup2_stdout(channel).context("its output")?;
    serve(answer)
}

/// Reads one request from standard input and has `answer`, which knows all questions, answer it to standard output.
///
/// # Errors
/// Fails when the input is no request, or when the client has closed the channel.
pub fn serve(answer: fn(&str) -> Result<()>) -> Result<()> {
    limit();
    let mut text = String::new();
    io::stdin().lock().read_line(&mut text).context("reading the request")?;
    answer(&text)
}

/// Limits the helper's resources.
fn limit() {
    // Data of other processes is in its memory, and stays there.
    let limits = [(Resource::Data, MEMORY), (Resource::Cpu, CPU_S), (Resource::Core, 0)];
    for (resource, most) in limits {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        // Fails where a lower limit is set already.
        let _ = setrlimit(resource, limit);
    }
}

fn give_way<Q: Question>() {
    if !Q::IS_SHORT {
        let _ = nice(NICE);
    }
}

/// Answers one question.
///
/// # Errors
/// Fails when the client has closed the channel.
pub fn answer<Q: Question>(question: Q) -> Result<()> {
    give_way::<Q>();
    Q::ROLE.assume();
    let mut teller = Teller::new();
    let answer = question.answer(&mut teller).map_err(|error| match error.downcast() {
        Ok(NotEntered(why)) => Refusal::NotEntered(why),
        Err(error) => Refusal::Failed(format!("{error:#}")),
    });
    say(&Message::<(), (), _>::Answer(answer))
}

/// Sends the client what comes before the answer.
pub struct Teller<S, P> {
    said: PhantomData<(S, P)>,
}

impl<S: Serialize, P: Serialize> Default for Teller<S, P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Serialize, P: Serialize> Teller<S, P> {
    /// A teller that has sent nothing yet.
    pub const fn new() -> Self {
        Self { said: PhantomData }
    }

    /// Reports a step before it begins.
    ///
    /// # Errors
    /// Fails when the client has closed the channel.
    pub fn at(&mut self, step: &S) -> Result<()> {
        say(&Message::<_, (), ()>::At(step))
    }

    /// Sends a part of the answer.
    ///
    /// # Errors
    /// Fails when the client has closed the channel.
    pub fn part(&mut self, part: &P) -> Result<()> {
        say(&Message::<(), _, ()>::Part(part))
    }
}

impl<S: Serialize, P: Serialize> Teller<S, P> {
    /// Reports periodically that a step is still at work while `text` is read: on a busy node, that takes long.
    pub fn reading<T: Read>(&mut self, step: S, text: T) -> Reading<'_, T, S, P> {
        Reading { text, step, tell: self, reported: Instant::now() }
    }

    /// The same for data in memory: reports when the returned function is called.
    pub fn going_on(&mut self, step: S) -> impl FnMut() -> Result<()> {
        let mut reported = Instant::now();
        move || {
            if reported.elapsed() >= TELL_EVERY {
                self.at(&step)?;
                reported = Instant::now();
            }
            Ok(())
        }
    }
}

/// A text under [`Teller::reading`].
pub struct Reading<'a, T, S, P> {
    text: T,
    step: S,
    tell: &'a mut Teller<S, P>,
    reported: Instant,
}

impl<T: Read, S: Serialize, P: Serialize> Read for Reading<'_, T, S, P> {
    fn read(&mut self, part: &mut [u8]) -> io::Result<usize> {
        let read = self.text.read(part)?;
        if self.reported.elapsed() >= TELL_EVERY {
            self.tell.at(&self.step).map_err(io::Error::other)?;
            self.reported = Instant::now();
        }
        Ok(read)
    }
}

fn say(message: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec(message)?;
    text.push(b'\n');
    // Standard output flushes whole lines: the client must see this one although the next step may hang.
    let mut out = io::stdout().lock();
    out.write_all(&text).context("telling the answer")?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use podstuck_testing::{again, is_started_again};
    use rustix::process::{getpriority_process, getrlimit};

    use super::*;
    use crate::helper::testing::{Long, Short};

    #[test]
    fn a_helper_takes_no_more_than_it_may() {
        // Limits are the whole process's.
        if !is_started_again() {
            assert!(again().output().unwrap().status.success());
            return;
        }
        let room = || Vec::<u8>::new().try_reserve_exact(MEMORY as usize);
        room().unwrap();
        limit();
        room().unwrap_err();
        assert_eq!(getrlimit(Resource::Cpu).maximum, Some(CPU_S));
        assert_eq!(getrlimit(Resource::Core).maximum, Some(0));
        let usual = getpriority_process(None).unwrap();
        give_way::<Short>();
        assert_eq!(getpriority_process(None).unwrap(), usual);
        give_way::<Long>();
        assert!(getpriority_process(None).unwrap() >= NICE);
    }
}
