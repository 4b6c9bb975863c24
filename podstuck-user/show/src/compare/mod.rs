//! Finds what became slower, or failed more, between two runs: before and after a driver's upgrade.
//!
//! Calls of a run are not independent: a busy second makes all of its calls slow, and a busy minute its seconds. A
//! test that treats each call as independent finds a change between any two runs. So a run is split into eight
//! [`batches`] of its time, each of them one observation, and a change is reported when the batches of one run differ
//! from the other's by more than a smallest effect ([`stats`]). All series together give a false alarm in two of a
//! hundred pairs.

mod batches;
mod series;
mod stats;
mod words;

#[cfg(test)]
mod calibration;

pub use series::{Change, Comparison, Measure, TooFew, compare};
pub use words::text;
