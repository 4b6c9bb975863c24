//! Limits of reading a tree.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// Limits of one read. The read ends at the first limit reached; a step in progress may exceed it by half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Budget {
    pub(super) milliseconds: u64,
    /// Directories read.
    pub(super) directories: u64,
    /// Entries read, which bounds the memory that their names take.
    pub(super) entries: u64,
    /// Seed of the random numbers, for tests; without it each read uses a random seed.
    pub(super) seed: Option<u64>,
}

impl Default for Budget {
    /// The helper has two seconds.
    fn default() -> Self {
        Self { milliseconds: 700, directories: 500_000, entries: 3_000_000, seed: None }
    }
}

impl Budget {
    /// The part of it that one directory may take, if its size can be guessed from that.
    pub(super) const ONE_DIRECTORY: f64 = 0.4;
    /// Nothing is read after so much of it.
    pub(super) const HARD_END: f64 = 1.5;

    pub(super) fn rng(self) -> Rng {
        self.seed.map_or_else(Rng::new, Rng::with_seed)
    }
}
