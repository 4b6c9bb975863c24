//! What comes out of the kernel: records, counts, losses. Nothing here knows what they mean.

pub mod actors;
pub mod counts;
pub mod cost;
pub mod losses;
pub mod ring;
