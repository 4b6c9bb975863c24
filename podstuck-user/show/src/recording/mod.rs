//! Recordings of runs: the engine's complete input, for a replay.
//!
//! A file is a zstd stream. A skippable frame identifies it (`podstuck recording 5`), so that `zstd -dc FILE | jq`
//! shows the rest: one JSON object a line, the [`Run`](podstuck_model::event::Run) first, then each event. Samples of
//! the node are written as differences to the previous sample ([`delta`]), and frequent events in a compact form
//! ([`slim`], [`tally`]). The stream is flushed several times a second: whatever ends the process, the earlier data
//! can be read, up to the last whole line.
//!
//! The number is the version of the format, and a reader accepts its own only: no release had another one. After a
//! release, data that an earlier format lacks is filled in where a file is opened, so that no event carries its
//! history.

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

/// Start of a skippable frame of zstd (RFC 8878, section 3.1.2), which decoders skip.
const SKIPPABLE: u32 = 0x184d_2a50;
/// The text of the first frame, before the number.
const MAGIC: &str = "podstuck recording ";
/// The version of the format.
const FORMAT: u32 = 5;

#[cfg(test)]
mod tests;
