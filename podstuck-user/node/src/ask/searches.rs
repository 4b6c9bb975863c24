//! Searches for holders. One reads the descriptors of all processes, so it answers all questions that wait, and a
//! pause follows it. The pause takes no turn: no other question waits for its end.

use std::path::PathBuf;

use podstuck_model::bounded::Bounded;
use tokio::time::{Duration, Instant};

use podstuck_model::query::Query;

/// What one search may be about.
pub(super) const TOGETHER: usize = 256;
/// Length of the pause, as a multiple of the search's duration: bounds the CPU time however much fails.
const REST: u32 = 9;
/// Most of that for an object that was not answered so often: two attempts make a finding. Such objects are few, since
/// each is new but once.
const NEW: Duration = Duration::from_secs(1);
const OFTEN: u32 = 2;
/// Most of it for all others: a search that waits for what does not answer takes long, and costs nothing meanwhile.
const KNOWN: Duration = Duration::from_secs(5);
/// Objects that were answered, which are remembered.
const ANSWERED: usize = 4096;

/// When the next search may be.
#[derive(Default)]
pub(super) struct Searches {
    last: Option<(Instant, Duration)>,
    answered: Bounded<(u64, PathBuf), u32, ANSWERED>,
}

impl Searches {
    /// The time of the next one, for those who wait.
    pub(super) fn due<'a>(&self, mut waiting: impl Iterator<Item = &'a Query>) -> Option<Instant> {
        let (ended, took) = self.last?;
        let is_new = |query: &Query| self.answered.get(&key(query)).is_none_or(|n| *n < OFTEN);
        Some(ended + (took * REST).min(if waiting.any(is_new) { NEW } else { KNOWN }))
    }

    /// One was made, since `begun`.
    pub(super) fn made(&mut self, begun: Instant, of: &[Query]) {
        self.last = Some((Instant::now(), begun.elapsed()));
        for query in of {
            let times = self.answered.or_insert_with(key(query), || 0);
            *times = times.saturating_add(1);
        }
    }
}

fn key(query: &Query) -> (u64, PathBuf) {
    (query.target_id, query.path.clone())
}
