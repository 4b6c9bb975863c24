//! Answers the engine's queries, outside the engine and without blocking it.
//!
//! Each kind of question has turns of its own, so that none waits for another kind: what one `statx` shows never waits
//! behind a search for holders. Within a kind, pods take turns (`waiting`).

mod node;
mod searches;
#[cfg(test)]
mod tests;
mod waiting;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{
    spawn,
    sync::{Notify, mpsc::UnboundedSender},
    time::{Instant, sleep_until},
};

pub use node::Node;
use podstuck_confine::helper::Share;
use podstuck_model::{
    degraded::Degraded,
    holder::{About, Snapshot},
    query::{Answer, Kind, NoAnswer, Query, Wants},
};
use searches::{Searches, TOGETHER};
use waiting::{OF_ALL, Waiting};

/// Who answers.
pub trait Look: Clone + Send + Sync + 'static {
    /// Answers one question, on behalf of `share`.
    fn answer(&self, share: Share, wants: Wants) -> impl Future<Output = Answer> + Send;

    /// Who holds what, in this order, by one search.
    fn holders(
        &self,
        about: Vec<About>,
    ) -> impl Future<Output = Result<Vec<Snapshot>, NoAnswer>> + Send;
}

/// Answers queries, a few of each kind at a time.
pub struct Asker<L = Node> {
    look: L,
    answers: UnboundedSender<(Query, Answer)>,
    lanes: BTreeMap<Kind, Arc<Lane>>,
}

/// The questions of a kind.
#[derive(Default)]
struct Lane {
    state: Mutex<State>,
    /// Something came to wait, or the rest is over.
    changed: Notify,
}

#[derive(Default)]
struct State {
    waiting: Waiting,
    /// Turns that are taken.
    turns: usize,
    /// Questions that are being answered.
    under_way: usize,
    searches: Searches,
    /// The run ends: there is no later search that a rest could be for.
    is_last: bool,
}

impl<L: Look> Asker<L> {
    /// Sends its answers there.
    pub fn new(look: L, answers: UnboundedSender<(Query, Answer)>) -> Self {
        let lanes = Kind::ALL.into_iter().map(|kind| (kind, Arc::default())).collect();
        Self { look, answers, lanes }
    }

    /// How many queries have no answer yet.
    pub fn open(&self) -> usize {
        let states = self.lanes.values().map(|lane| lane.state());
        states.map(|state| state.waiting.len() + state.under_way).sum()
    }

    /// How many queries were not asked because too many wait.
    pub fn dropped(&self) -> u64 {
        self.lanes.values().map(|lane| lane.state().waiting.dropped()).sum()
    }

    /// While too many wait.
    pub fn degraded(&self) -> Option<Degraded> {
        let is_full = |lane: &Lane| lane.state().waiting.len() >= OF_ALL;
        let full = self.lanes.iter().filter(|(_, lane)| is_full(lane));
        let mut feeds: Vec<_> = full.map(|(kind, _)| kind.feed()).collect();
        feeds.dedup();
        let what = "too many questions about objects are unanswered; further ones are not asked";
        (!feeds.is_empty()).then(|| Degraded::new(what, &feeds))
    }

    /// Has an answer looked for. To be called inside the runtime.
    pub fn ask(&self, share: Share, query: Query) {
        let kind = query.wants.kind();
        let Some(lane) = self.lanes.get(&kind) else { return };
        let mut state = lane.state();
        state.waiting.push(share, query);
        lane.changed.notify_one();
        if state.turns >= kind.turns() {
            return;
        }
        state.turns += 1;
        let (lane, look, answers) = (lane.clone(), self.look.clone(), self.answers.clone());
        match kind {
            Kind::Holders => drop(spawn(search(lane, look, answers))),
            _ => drop(spawn(work(lane, look, answers))),
        }
    }

    /// The run ends: what waits is not kept waiting for later questions' sake.
    pub fn end(&self) {
        for lane in self.lanes.values() {
            lane.state().is_last = true;
            lane.changed.notify_one();
        }
    }
}

impl Lane {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next question; without one, the turn is over.
    fn next(&self) -> Option<(Share, Query)> {
        let mut state = self.state();
        let next = state.waiting.next();
        match next {
            Some(_) => state.under_way += 1,
            None => state.turns -= 1,
        }
        next
    }

    /// Those that the next search answers; none, and the turn is over, where nothing waits.
    async fn next_search(&self) -> Vec<Query> {
        loop {
            let due = {
                let mut state = self.state();
                let due = state.searches.due(state.waiting.all());
                match due.filter(|due| *due > Instant::now() && !state.is_last) {
                    Some(due) if state.waiting.len() > 0 => due,
                    _ => {
                        let together = state.waiting.next_of_all(TOGETHER);
                        state.under_way += together.len();
                        state.turns -= usize::from(together.is_empty());
                        return together;
                    }
                }
            };
            // Who comes may have to wait less.
            tokio::select! {
                () = sleep_until(due) => {}
                () = self.changed.notified() => {}
            }
        }
    }
}

/// A turn of most kinds: one question after the other.
async fn work(lane: Arc<Lane>, look: impl Look, answers: UnboundedSender<(Query, Answer)>) {
    while let Some((share, query)) = lane.next() {
        let answer = look.answer(share.clone(), query.wants.clone()).await;
        // The receiver is gone when the run is over.
        let _ = answers.send((query, answer));
        let mut state = lane.state();
        state.waiting.answered(share);
        state.under_way -= 1;
    }
}

/// The turn of searches for holders: all that wait together.
async fn search(lane: Arc<Lane>, look: impl Look, answers: UnboundedSender<(Query, Answer)>) {
    loop {
        let queries = lane.next_search().await;
        if queries.is_empty() {
            return;
        }
        let about = queries.iter().filter_map(|query| match &query.wants {
            Wants::Holders(about) => Some(about.clone()),
            _ => None,
        });
        let begun = Instant::now();
        let mut taken = look.holders(about.collect()).await.map(Vec::into_iter);
        let mut state = lane.state();
        state.searches.made(begun, &queries);
        state.under_way -= queries.len();
        for query in queries {
            let snapshot = match &mut taken {
                Ok(taken) => {
                    taken.next().ok_or_else(|| NoAnswer::Helper("its answer is incomplete".into()))
                }
                Err(why) => Err(why.clone()),
            };
            let _ = answers.send((query, Answer::Holders(snapshot)));
        }
    }
}
