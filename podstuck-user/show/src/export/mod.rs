//! Files for other tools: findings as JSON Lines, and the exact counts as HdrHistogram interval log, CSV and
//! Prometheus text. The renderers are pure; only [`files`] writes, in a process of its own.

pub mod background;
pub mod csv;
pub mod error;
pub mod files;
mod findings_file;
pub mod histogram;
pub mod hlog;
pub mod intervals;
pub mod intervals_log;
mod latency;
mod process;
pub mod prometheus;
pub mod read;
mod read_finding;
mod rows;

pub use background::{Background, Page, Shot};
pub use error::ExportError;
pub use files::{Exporter, Snapshot, replace};
pub use process::{Writer, serve};

#[cfg(test)]
mod sample;
