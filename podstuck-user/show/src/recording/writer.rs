//! Encodes a recording, on a thread of its own, and hands it to the writing process: the disk may hang, and no other
//! thread waits for it.

use std::{
    io::{self, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde::Serialize;
use thiserror::Error;
use zstd::stream::write::Encoder;

use super::{
    FORMAT, MAGIC, SKIPPABLE,
    delta::Delta,
    process::RecordFile,
    redact::Redactor,
    slim::{Again, Known, SlimOperation},
    tally::{self, Tally},
};
use podstuck_confine::{
    fork_server::{Work, spawn},
    role::Role,
};
use podstuck_model::{
    event::{Event, Run, What},
    node::NodeSample,
    path::safe_path,
    time::Monotonic,
};

/// Interval between flushes to the disk. SIGKILL loses the data since the last. Nothing else wakes the thread: to
/// wake it for each line took three times the time of writing it.
const WRITE_EVERY: Duration = Duration::from_millis(250);
/// Limit of bytes waiting for the disk: minutes of a busy node.
const WAITING: usize = 64 << 20;
/// Time limit of the end: Ctrl-C ends a run within two seconds.
const LAST: Duration = Duration::from_secs(1);
/// Compression level: zstd's default.
const LEVEL: i32 = 3;

/// Why no recording can be created.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The file exists. It is never replaced: it may be the only record of an incident.
    #[error("{0} exists already; name another file to record to, or remove it")]
    Exists(String),
    /// The file cannot be created.
    #[error("cannot record to {0}: {1}")]
    Create(String, io::Error),
}

/// Records events.
pub struct Recorder {
    path: PathBuf,
    /// `None` once the recording has ended.
    thread: Option<JoinHandle<()>>,
    queue: Arc<Mutex<Queue>>,
    last: Arc<NodeSample>,
    known: Known,
    series: tally::Known,
    redactor: Option<Redactor>,
    ended: Option<String>,
}

/// The queue between the run and the writing thread.
#[derive(Default)]
struct Queue {
    /// Lines not yet written.
    lines: Vec<u8>,
    /// Whether no more lines will come.
    ended: bool,
    /// Why the thread has stopped, once it has.
    failed: Option<String>,
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A line of the file, other than the first.
#[derive(Default, Serialize)]
struct Line<'a> {
    /// Left out when an operation in compact form has its own end time.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Monotonic>,
    #[serde(skip_serializing_if = "Option::is_none")]
    what: Option<&'a What>,
    #[serde(skip_serializing_if = "Option::is_none")]
    look: Option<Delta>,
    #[serde(skip_serializing_if = "Option::is_none")]
    op: Option<SlimOperation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    again: Option<Again>,
    #[serde(skip_serializing_if = "Option::is_none")]
    totals: Option<Tally>,
}

impl Recorder {
    /// Creates the file, readable by its owner only, and starts the thread.
    ///
    /// # Errors
    /// Fails when the file exists, or cannot be created.
    pub fn create(path: &Path, redact: bool) -> Result<Self, RecordError> {
        let name = || safe_path(path).into_owned();
        let failed = |why| RecordError::Create(name(), io::Error::other(why));
        let (_, channel) = spawn(Work::Record).map_err(failed)?;
        Self::through(channel, path, redact)
    }

    /// As [`Self::create`], with a process that is started already.
    pub(super) fn through(
        channel: UnixStream,
        path: &Path,
        redact: bool,
    ) -> Result<Self, RecordError> {
        let name = || safe_path(path).into_owned();
        let file = RecordFile::create(channel, path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => RecordError::Exists(name()),
            _ => RecordError::Create(name(), error),
        })?;
        let queue = Arc::<Mutex<Queue>>::default();
        let theirs = queue.clone();
        let work = move || {
            Role::WriteOpen.assume();
            if let Err(error) = write(file, &theirs) {
                lock(&theirs).failed = Some(error.to_string());
            }
        };
        let thread = thread::Builder::new()
            .name("record".into())
            .spawn(work)
            .map_err(|error| RecordError::Create(name(), error))?;
        Ok(Self {
            path: path.to_owned(),
            thread: Some(thread),
            queue,
            last: Arc::default(),
            known: Known::default(),
            series: tally::Known::default(),
            redactor: redact.then(Redactor::default),
            ended: None,
        })
    }

    /// Writes the run's metadata. Call it once, before any event.
    pub fn begin(&mut self, run: &Run) {
        self.put(run);
    }

    /// Writes an event.
    pub fn event(&mut self, event: &Event) {
        let mut line = Line { at: Some(event.at), ..Line::default() };
        match &event.what {
            What::Sample(sample) => {
                line.look = Some(Delta::between(&self.last, sample));
                self.last = sample.clone();
            }
            What::Operation(op) => match Again::new(op, &mut self.known) {
                Some(again) => {
                    line.at = (event.at != op.end).then_some(event.at);
                    line.again = Some(again);
                }
                None => line.op = Some(SlimOperation::new(op, &mut self.known)),
            },
            What::Counts(counts) => line.totals = Some(Tally::new(counts, &mut self.series)),
            what => line.what = Some(what),
        }
        self.put(&line);
    }

    fn put(&mut self, line: &impl Serialize) {
        if self.thread.is_none() {
            return;
        }
        let text = match &mut self.redactor {
            Some(redactor) => redactor.line(line),
            None => serde_json::to_vec(line),
        };
        // A gap would invalidate all that follows: the recording ends, and is whole so far.
        let problem = match text {
            Ok(text) => {
                let mut queue = lock(&self.queue);
                queue.lines.extend(text);
                queue.lines.push(b'\n');
                let full = (queue.lines.len() > WAITING).then(|| NO_ANSWER.to_owned());
                queue.failed.take().or(full)
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) = problem {
            self.stop(&problem);
        }
    }

    fn stop(&mut self, problem: &str) {
        self.thread = None;
        let ended = format!(
            "the recording {} has ended: {problem}; what was written before can be replayed",
            safe_path(&self.path)
        );
        tracing::warn!("{ended}");
        self.ended = Some(ended);
    }

    /// Why it ended before the run, if it did.
    pub fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }

    /// Ends the recording, and waits for the disk for a short time.
    pub fn finish(mut self) {
        let Some(thread) = self.thread.take() else { return };
        lock(&self.queue).ended = true;
        thread.thread().unpark();
        let end = Instant::now() + LAST;
        while !thread.is_finished() {
            if Instant::now() >= end {
                return self.stop(NO_ANSWER);
            }
            thread::sleep(Duration::from_millis(1));
        }
        let failed = lock(&self.queue).failed.take();
        if let Some(problem) = failed {
            self.stop(&problem);
        }
    }
}

/// The reason when writing takes too long.
const NO_ANSWER: &str = "the disk does not accept the data";

fn write(mut file: RecordFile, queue: &Mutex<Queue>) -> io::Result<()> {
    file.write_all(&first_frame(FORMAT))?;
    let mut stream = Encoder::new(file, LEVEL)?;
    stream.include_checksum(true)?;
    loop {
        let (lines, ended) = {
            let mut queue = lock(queue);
            (std::mem::take(&mut queue.lines), queue.ended)
        };
        if !lines.is_empty() {
            stream.write_all(&lines)?;
            stream.flush()?;
        }
        if ended {
            return stream.finish()?.finish();
        }
        thread::park_timeout(WRITE_EVERY);
    }
}

/// The frame that identifies the file.
pub(super) fn first_frame(format: u32) -> Vec<u8> {
    let text = format!("{MAGIC}{format}\n");
    let length = u32::try_from(text.len()).unwrap_or_default();
    let mut frame = SKIPPABLE.to_le_bytes().to_vec();
    frame.extend(length.to_le_bytes());
    frame.extend(text.as_bytes());
    frame
}
