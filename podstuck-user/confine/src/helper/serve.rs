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

/// How often it is told that something goes on: well within what one step may take.
const TELL_EVERY: Duration = Duration::from_millis(250);

/// How much memory of its own a helper may have. It is for the answers of an API server: one of 31 MiB, nearly the longest
/// that is read, takes 87 MiB with the program's pages, and one of 24 MiB 73 (`records_of_many_pods_fit_into_a_helper` of
/// tests/large_node.rs, development build). Of the others, the most that was
/// seen is 16 MiB with the program's pages, of a search for holders on a node with 2,000 processes.
const MEMORY: u64 = 128 << 20;
/// How much CPU time, in seconds: the client waits no longer.
const CPU_S: u64 = 20;
/// The ring is emptied first, and what is short is looked at.
const NICE: i32 = 10;

/// Reads one request from a channel and answers it there.
///
/// # Errors
/// As [`serve`].
pub fn serve_through(channel: &UnixStream, answer: fn(&str) -> Result<()>) -> Result<()> {
    // What it executes has an output of its own.
    dup2_stdin(channel).context("its input")?;
    dup2_stdout(channel).context("its output")?;
    serve(answer)
}

/// Reads one request from standard input and has it answered to standard output, by who knows all questions.
///
/// # Errors
/// Fails when the request is none, or when nobody reads the answer.
pub fn serve(answer: fn(&str) -> Result<()>) -> Result<()> {
    limit();
    let mut text = String::new();
    io::stdin().lock().read_line(&mut text).context("reading the request")?;
    answer(&text)
}

/// What it takes at most, whatever it meets.
fn limit() {
    // What was read of others is in its memory, and stays there.
    let limits = [(Resource::Data, MEMORY), (Resource::Cpu, CPU_S), (Resource::Core, 0)];
    for (resource, most) in limits {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        // It fails where there is a lower one already.
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
/// Fails when nobody reads the answer.
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

/// Tells the client what comes before the answer.
pub struct Teller<S, P> {
    said: PhantomData<(S, P)>,
}

impl<S: Serialize, P: Serialize> Default for Teller<S, P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Serialize, P: Serialize> Teller<S, P> {
    /// Has told nothing yet.
    pub const fn new() -> Self {
        Self { said: PhantomData }
    }

    /// Tells a step before it is begun.
    ///
    /// # Errors
    /// Fails when nobody listens any more.
    pub fn at(&mut self, step: &S) -> Result<()> {
        say(&Message::<_, (), ()>::At(step))
    }

    /// Tells a part of the answer.
    ///
    /// # Errors
    /// Fails when nobody listens any more.
    pub fn part(&mut self, part: &P) -> Result<()> {
        say(&Message::<(), _, ()>::Part(part))
    }
}

impl<S: Serialize, P: Serialize> Teller<S, P> {
    /// Tells that it goes on with a step while this is read: on a busy node, much takes long to go through.
    pub fn reading<T: Read>(&mut self, step: S, text: T) -> Reading<'_, T, S, P> {
        Reading { text, step, tell: self, told: Instant::now() }
    }

    /// The same, whenever it is called, of what is in memory.
    pub fn going_on(&mut self, step: S) -> impl FnMut() -> Result<()> {
        let mut told = Instant::now();
        move || {
            if told.elapsed() >= TELL_EVERY {
                self.at(&step)?;
                told = Instant::now();
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
    told: Instant,
}

impl<T: Read, S: Serialize, P: Serialize> Read for Reading<'_, T, S, P> {
    fn read(&mut self, part: &mut [u8]) -> io::Result<usize> {
        let read = self.text.read(part)?;
        if self.told.elapsed() >= TELL_EVERY {
            self.tell.at(&self.step).map_err(io::Error::other)?;
            self.told = Instant::now();
        }
        Ok(read)
    }
}

fn say(message: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec(message)?;
    text.push(b'\n');
    // Standard output writes whole lines through: whoever waits must see this one although what comes
    // next may hang.
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
