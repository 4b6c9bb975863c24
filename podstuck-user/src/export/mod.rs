//! Files that other tools read: findings as JSON Lines, and the exact counts as HdrHistogram
//! interval log, CSV and Prometheus text. The renderers are pure; only [`files`] writes, in a
//! process of its own.

pub mod background;
pub mod csv;
pub mod error;
pub mod files;
mod findings_file;
pub mod histogram;
pub mod hlog;
mod latency;
mod process;
pub mod prometheus;
mod rows;

pub use background::{Background, Shot};
pub use error::ExportError;
pub use files::{Exporter, Snapshot};
pub use process::{Writer, serve};

#[cfg(test)]
mod sample;
