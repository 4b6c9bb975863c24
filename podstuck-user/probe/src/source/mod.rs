//! Data from the kernel: records, counts, losses. Nothing here knows what they mean.

mod actors;
mod announced;
pub mod cost;
mod counts;
mod failures;
mod in_flight;
pub mod losses;
pub mod ring;
mod shared;
mod slots;
pub mod tables;
mod totals;
