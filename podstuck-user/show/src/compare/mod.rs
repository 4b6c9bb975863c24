//! What became slower, or failed more, between two runs: before and after a driver's upgrade.
//!
//! Calls of a run are not independent: a busy second makes all of its calls slow, and a busy minute its seconds. To
//! take each call for a witness finds a change between any two runs. So a run is cut into eight [`batches`] of its
//! time, each of them one witness, and a change is told where the batches of one run stand apart from the other's by
//! more than a smallest effect ([`stats`]). All series together give a false alarm in two of a hundred pairs.

mod batches;
mod series;
mod stats;
mod words;

#[cfg(test)]
mod calibration;

pub use series::{Change, Comparison, Measure, TooFew, compare};
pub use words::text;
