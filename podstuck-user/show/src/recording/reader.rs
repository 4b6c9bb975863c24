//! Reads a recording, up to its last whole line.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    sync::Arc,
};

use serde::Deserialize;
use thiserror::Error;
use zstd::stream::read::Decoder;

use super::{
    FORMAT, MAGIC, SKIPPABLE,
    delta::Delta,
    slim::{Again, Known, SlimOperation},
    tally::{self, Tally},
};
use podstuck_confine::given_file;
use podstuck_model::{
    event::{Event, Run, What},
    node::NodeSample,
    path::safe_path,
    time::Monotonic,
};

/// Limit of a line, in bytes: a helper's answer about a node has no more room, either. A crafted file takes no more
/// memory for its lines.
const LINE_MAX: u64 = 32 << 20;

/// Why a file cannot be replayed.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read {0}: {1}")]
    Open(String, io::Error),
    /// The file is no recording.
    #[error(
        "{0} is not a recording of podstuck (`podstuck watch --record FILE` makes one; `kubectl podstuck --replay` reads those of a cluster)"
    )]
    Foreign(String),
    /// Another version of podstuck made it.
    #[error(
        "{path} is a recording of format {found}, but this podstuck reads format {FORMAT}: replay it with the version \
         that recorded it"
    )]
    Format {
        /// The file.
        path: String,
        /// Its format.
        found: u32,
    },
    /// It was cut before the first event.
    #[error("{0} ends before it says what was recorded: nothing can be replayed")]
    Empty(String),
}

/// How a recording ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The run ended, and with it the recording.
    Whole,
    /// The recording process was killed, or the disk was full: the rest is missing.
    Cut,
    /// The next line cannot be decoded, and why.
    Damaged(String),
}

#[derive(Deserialize)]
struct Line {
    at: Option<Monotonic>,
    what: Option<What>,
    look: Option<Delta>,
    op: Option<SlimOperation>,
    again: Option<Again>,
    totals: Option<Tally>,
}

/// Events of a recording, in order.
pub struct Reader<R: Read> {
    lines: BufReader<Decoder<'static, BufReader<R>>>,
    run: Run,
    last: Arc<NodeSample>,
    known: Known,
    series: tally::Known,
    ending: Option<Ending>,
    ended: bool,
}

impl Reader<File> {
    /// Opens a file.
    ///
    /// # Errors
    /// Fails when it cannot be read, is no recording, or one of another format.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let name = safe_path(path).into_owned();
        let file = given_file::open(path).map_err(|error| ReadError::Open(name.clone(), error))?;
        Self::new(file, &name)
    }
}

impl<R: Read> Reader<R> {
    /// Reads from any source; `name` is for messages.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn new(mut source: R, name: &str) -> Result<Self, ReadError> {
        let found = format(&mut source).map_err(|error| ReadError::Open(name.into(), error))?;
        let found = found.ok_or_else(|| ReadError::Foreign(name.into()))?;
        if found != FORMAT {
            return Err(ReadError::Format { path: name.into(), found });
        }
        let decoder = Decoder::new(source).map_err(|e| ReadError::Open(name.into(), e))?;
        let mut lines = BufReader::new(decoder);
        let text = next_line(&mut lines).map_err(|_| ReadError::Empty(name.into()))?;
        let text = text.ok_or_else(|| ReadError::Empty(name.into()))?;
        let run = serde_json::from_slice(&text).map_err(|_| ReadError::Empty(name.into()))?;
        Ok(Self {
            lines,
            run,
            last: Arc::default(),
            known: Known::default(),
            series: tally::Known::default(),
            ending: None,
            ended: false,
        })
    }

    /// Metadata of the run.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// How the recording ended; `None` before the last event.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    fn read(&mut self) -> Result<Event, Ending> {
        let text = match next_line(&mut self.lines) {
            Ok(Some(text)) => text,
            Ok(None) if self.ended => return Err(Ending::Whole),
            Ok(None) => return Err(Ending::Cut),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(if self.ended { Ending::Whole } else { Ending::Cut });
            }
            Err(error) => return Err(Ending::Damaged(error.to_string())),
        };
        let line: Line =
            serde_json::from_slice(&text).map_err(|e| Ending::Damaged(e.to_string()))?;
        let at = line.at;
        let what = match line {
            Line { what: Some(what), .. } => Some(what),
            Line { look: Some(look), .. } => {
                self.last = Arc::new(look.apply(&self.last));
                Some(What::Sample(self.last.clone()))
            }
            Line { op: Some(op), .. } => {
                op.restore(&mut self.known).map(|op| What::Operation(Box::new(op)))
            }
            Line { again: Some(again), .. } => {
                again.restore(&mut self.known).map(|op| What::Operation(Box::new(op)))
            }
            Line { totals: Some(totals), .. } => totals.restore(&mut self.series).map(What::Counts),
            _ => None,
        };
        let at = match &what {
            Some(What::Operation(op)) => at.unwrap_or(op.end),
            _ => at.unwrap_or_default(),
        };
        let what = what.ok_or_else(|| Ending::Damaged("an event says nothing".into()))?;
        self.ended = matches!(what, What::End(_));
        Ok(Event { at, what })
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        if self.ending.is_some() {
            return None;
        }
        match self.read() {
            Ok(event) => Some(event),
            Err(ending) => {
                self.ending = Some(ending);
                None
            }
        }
    }
}

/// The number of the format, by the first frame; `None` for a file that has no such frame.
fn format(source: &mut impl Read) -> io::Result<Option<u32>> {
    let mut head = [0; 8];
    let mut text = Vec::new();
    if let Err(error) = source.read_exact(&mut head) {
        return if error.kind() == io::ErrorKind::UnexpectedEof { Ok(None) } else { Err(error) };
    }
    let (magic, length) = (u32_at(&head, 0), u32_at(&head, 4));
    if magic != SKIPPABLE || length > 64 {
        return Ok(None);
    }
    source.take(u64::from(length)).read_to_end(&mut text)?;
    let text = std::str::from_utf8(&text).ok();
    Ok(text.and_then(|text| text.strip_prefix(MAGIC)?.strip_suffix('\n')?.parse().ok()))
}

fn u32_at(bytes: &[u8; 8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

/// A whole line, without its newline; `None` at the end.
fn next_line(lines: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    lines.take(LINE_MAX).read_until(b'\n', &mut text)?;
    if text.len() as u64 == LINE_MAX && text.last() != Some(&b'\n') {
        let why =
            format!("a line is longer than {} MiB, as none of a recording is", LINE_MAX >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(text.pop_if(|byte| *byte == b'\n').map(|_| text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_longer_than_any_is_not_kept_in_memory() {
        let mut endless = BufReader::new(io::repeat(b'x'));
        let why = next_line(&mut endless).unwrap_err().to_string();
        assert!(why.contains("longer than 32 MiB"), "{why}");
        let mut last = BufReader::new(b"a\nb".as_slice());
        assert_eq!(next_line(&mut last).unwrap(), Some(b"a".to_vec()));
        assert_eq!(next_line(&mut last).unwrap(), None);
    }
}
