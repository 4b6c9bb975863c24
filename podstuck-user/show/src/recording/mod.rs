//! Recordings of runs: everything that the engine was told, to be told to it again.
//!
//! A file is a zstd stream. A skippable frame says what it is (`podstuck recording 5`), so that
//! `zstd -dc FILE | jq` shows the rest: one JSON object a line, the [`Run`](podstuck_model::event::Run) first,
//! then each event. Looks at the node are written as differences to the look before ([`delta`]), and
//! what comes by the hundred is written short ([`slim`], [`tally`]). The stream is flushed several times a
//! second: whatever ends the process, what was written before can be read, up to the last whole line.
//!
//! The number is that of the format, and a reader reads its own only: nothing was released with another one. From then
//! on, what an earlier format lacks is filled in where a file is opened, so that no event carries its history.

mod delta;
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
