//! Questions of one kind that wait for their turn. Pods take turns, however many questions each has: one that asks a
//! thousand things delays another by as many turns as there are pods that wait.

use std::collections::{HashMap, VecDeque};

use podstuck_confine::helper::Share;
use podstuck_model::query::Query;

/// Questions of one pod that may wait. Many failures of one kind ask the same again, and the last failure says most.
pub(super) const OF_A_POD: usize = 16;
/// Most questions of all pods that wait: enough for a full node with 256 pods.
pub(super) const OF_ALL: usize = 4096;

/// What waits.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Who is next, in this order: each has a question, and none is being answered.
    turns: VecDeque<Share>,
    /// Of those, and of those that a question is being answered of, what else waits.
    shares: HashMap<Share, VecDeque<Query>>,
    len: usize,
    dropped: u64,
}

impl Waiting {
    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// How many did not fit.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// All of them, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = &Query> {
        self.shares.values().flatten()
    }

    /// Takes a question. One that waits already is asked about the newer failure.
    pub(super) fn push(&mut self, share: Share, query: Query) {
        let own = self.shares.get_mut(&share);
        if let Some(same) = own.and_then(|own| own.iter_mut().find(|it| it.is_renewed_by(&query))) {
            *same = query;
            return;
        }
        if self.shares.get(&share).is_some_and(|own| own.len() >= OF_A_POD) {
            self.drop_oldest_of(&share.clone());
        } else if self.len >= OF_ALL {
            let longest = self.shares.iter().max_by_key(|(_, own)| own.len());
            let longest = longest.map(|(share, _)| share.clone());
            longest.into_iter().for_each(|share| self.drop_oldest_of(&share));
        }
        let own = self.shares.entry(share.clone()).or_insert_with(|| {
            self.turns.push_back(share);
            VecDeque::new()
        });
        own.push_back(query);
        self.len += 1;
    }

    fn drop_oldest_of(&mut self, share: &Share) {
        if let Some(own) = self.shares.get_mut(share)
            && own.pop_front().is_some()
        {
            self.len -= 1;
            self.dropped += 1;
        }
    }

    /// The next question. Its pod has no other turn before [`Self::answered`]: what keeps one of its questions from
    /// being answered keeps its others, and takes one turn at a time.
    pub(super) fn next(&mut self) -> Option<(Share, Query)> {
        while let Some(share) = self.turns.pop_front() {
            let own = self.shares.get_mut(&share);
            if let Some(query) = own.and_then(VecDeque::pop_front) {
                self.len -= 1;
                return Some((share, query));
            }
            self.shares.remove(&share);
        }
        None
    }

    /// A pod's question was answered.
    pub(super) fn answered(&mut self, share: Share) {
        if self.shares.get(&share).is_none_or(VecDeque::is_empty) {
            self.shares.remove(&share);
        } else {
            self.turns.push_back(share);
        }
    }

    /// Several, for who answers them together: one of each pod, then a second of each, and so on.
    pub(super) fn next_of_all(&mut self, most: usize) -> Vec<Query> {
        let mut together = Vec::new();
        while together.len() < most
            && let Some((share, query)) = self.next()
        {
            self.answered(share);
            together.push(query);
        }
        together
    }
}
