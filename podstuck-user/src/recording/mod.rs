//! Recordings of runs: everything that the engine was told, to be told to it again.
//!
//! A file is a zstd stream. A skippable frame says what it is (`podstuck recording 1`), so that
//! `zstd -dc FILE | jq` shows the rest: one JSON object a line, the [`Run`](crate::event::Run) first,
//! then each event. Looks at the node are written as differences to the look before ([`delta`]), and
//! what comes by the hundred is written short ([`slim`], [`tally`]). The stream is flushed several times a
//! second: whatever ends the process, what was written before can be read, up to the last whole line.
//!
//! The number is that of the format. A field that is added later has a default, so that recordings
//! made today stay readable; a change that old readers would misunderstand takes the next number. Format
//! 2 says counts in another way than 1 ([`format1`]), and operations like earlier ones by a
//! number; 3 has an event of its own for what parts of the tool cannot do; 4 tells when a process that was counted
//! was started; 5 tells the shortest and the longest call beside each count, which before had neither ([`format4`]).

mod delta;
mod format1;
mod format4;
mod numbered;
mod process;
mod reader;
mod redact;
mod slim;
mod tally;
mod writer;

pub use process::serve;
pub use reader::{Ending, ReadError, Reader};
pub use writer::{RecordError, Recorder};

/// Begins a skippable frame of zstd (RFC 8878, section 3.1.2), which decoders pass over.
const SKIPPABLE: u32 = 0x184d_2a50;
/// What the first frame says, before the number.
const MAGIC: &str = "podstuck recording ";
/// The number of the format.
const FORMAT: u32 = 5;

#[cfg(test)]
mod tests;
