//! Counts by call and outcome, cheap enough for a timed loop.

use std::collections::BTreeMap;

use nix::errno::Errno;

/// Counts by call, then outcome.
pub(crate) type Tally = BTreeMap<&'static str, BTreeMap<String, u64>>;

/// The calls that are counted.
#[derive(Clone, Copy)]
pub(crate) enum Call {
    Unlinkat,
    UnlinkatRemoveDir,
    Umount2,
    Getppid,
    Renameat,
    Execve,
}

const NAMES: [&str; 6] =
    ["unlinkat", "unlinkat+AT_REMOVEDIR", "umount2", "getppid", "renameat", "execve"];
/// More than there are error numbers on Linux.
const OUTCOMES: usize = 160;

/// A plain table, so that counting costs no hashing.
pub(crate) struct Count([[u64; OUTCOMES]; NAMES.len()]);

impl Default for Count {
    fn default() -> Self {
        Self([[0; OUTCOMES]; NAMES.len()])
    }
}

impl Count {
    /// Counts a call and passes its result on.
    pub(crate) fn note<T>(&mut self, call: Call, result: nix::Result<T>) -> nix::Result<T> {
        let outcome = match &result {
            Ok(_) => 0,
            Err(errno) => usize::try_from(*errno as i32).unwrap_or(0),
        };
        if let Some(cell) = self.0[call as usize].get_mut(outcome) {
            *cell += 1;
        }
        result
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().flatten().zip(other.0.iter().flatten()) {
            *mine += theirs;
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().flatten().sum()
    }

    pub(crate) fn tally(&self) -> Tally {
        let mut tally = Tally::new();
        for (name, outcomes) in NAMES.into_iter().zip(&self.0) {
            for (outcome, count) in (0..).zip(outcomes).filter(|(_, count)| **count > 0) {
                let outcome = match outcome {
                    0 => "ok".to_owned(),
                    number => format!("{:?}", Errno::from_raw(number)),
                };
                tally.entry(name).or_default().insert(outcome, *count);
            }
        }
        tally
    }
}
