//! Reads of kubelet's own list of its pods, for those whose deletion is overdue.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use podstuck_common::component::name_hash;

use crate::{
    model::{
        cluster::{AGAIN, Change, KubeletsList, NotRead},
        time::Monotonic,
    },
    query::{Answer, Query, Question, ReadKubeletsPods},
    tracker::TrackerId,
};

/// From two reads of a pod to the next one: kubelet may have listed its pods again.
const SELDOM: Duration = Duration::from_secs(60);
/// After a refusal or a failure.
const REFUSED: Duration = Duration::from_secs(120);
/// An older read shows nothing of the present.
const OLD: Duration = Duration::from_secs(150);
/// A question without an answer after so long is asked again.
const LOST: Duration = Duration::from_secs(30);
/// Pods in one question.
const TOGETHER: usize = 256;

/// The reads of all pods.
#[derive(Default)]
pub(super) struct Lists {
    of: BTreeMap<String, Reads>,
    /// By kubelet, when it was last asked in vain.
    failed: BTreeMap<u32, (Monotonic, NotRead)>,
    /// When the question was asked that has no answer yet.
    open: Option<Monotonic>,
}

/// The reads of one pod.
struct Reads {
    kubelet: u32,
    /// The first and the last read with the same entry.
    first: Monotonic,
    last: Monotonic,
    entry: Entry,
    latest: Option<Change>,
    is_well: bool,
}

/// A pod in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    /// Without its deletion.
    Unaware,
    /// With its deletion.
    Aware,
    /// The list does not have it.
    Missing,
}

/// What the list shows about a pod.
pub(super) enum Shown<'a> {
    /// kubelet has it without its deletion, in two reads.
    Missed { apart: Duration, latest: Option<&'a Change>, is_well: bool },
    /// kubelet has received the deletion, or has ended the pod.
    Received,
    /// Nothing yet; what is not known.
    Open(&'static str),
}

impl Lists {
    pub(super) fn shown(&self, uid: &str, kubelet: u32, now: Monotonic) -> Shown<'_> {
        let is_fresh = |reads: &&Reads| reads.kubelet == kubelet && now.since(reads.last) <= OLD;
        let reads = self.of.get(uid).filter(is_fresh);
        match reads {
            Some(Reads { entry: Entry::Aware | Entry::Missing, .. }) => Shown::Received,
            Some(Reads { first, last, latest, is_well, .. }) if last.since(*first) >= AGAIN => {
                let (latest, is_well) = (latest.as_ref(), *is_well);
                Shown::Missed { apart: last.since(*first), latest, is_well }
            }
            Some(_) => Shown::Open("what kubelet's own list of its pods says in a second read"),
            None => Shown::Open(match self.failed.get(&kubelet) {
                Some((_, why)) => why.doubt(),
                None => NotRead::UNREAD,
            }),
        }
    }

    /// The next question about these pods, each with its kubelet. All others are forgotten.
    pub(super) fn due(
        &mut self,
        tracker: TrackerId,
        overdue: &BTreeMap<String, u32>,
        now: Monotonic,
    ) -> Option<Query> {
        self.of.retain(|uid, reads| overdue.get(uid) == Some(&reads.kubelet));
        self.failed.retain(|kubelet, _| overdue.values().any(|it| it == kubelet));
        if self.open.is_some_and(|asked| now.since(asked) < LOST) {
            return None;
        }
        let may_ask = |kubelet: &u32| {
            self.failed.get(kubelet).is_none_or(|(at, _)| now.since(*at) >= REFUSED)
        };
        let is_due = |uid: &String| {
            self.of.get(uid).is_none_or(|reads| {
                let is_proven = reads.last.since(reads.first) >= AGAIN;
                let is_second = reads.entry == Entry::Unaware && !is_proven;
                now.since(reads.last) >= if is_second { AGAIN } else { SELDOM }
            })
        };
        let mut due = overdue.iter().filter(|(uid, kubelet)| may_ask(kubelet) && is_due(uid));
        let kubelet = *due.next()?.1;
        // One answer is about all pods of a kubelet.
        let its = overdue.iter().filter(|(_, of)| **of == kubelet).map(|(uid, _)| uid.clone());
        let wants = ReadKubeletsPods { kubelet, pods: its.take(TOGETHER).collect() };
        self.open = Some(now);
        let target_id = name_hash(&kubelet.to_le_bytes());
        Some(Query { tracker, target_id, path: PathBuf::new(), wants: wants.into() })
    }

    pub(super) fn answered(&mut self, query: &Query, answer: &Answer, now: Monotonic) {
        let Some((asked, found)) = ReadKubeletsPods::answered(query, answer) else { return };
        self.open = None;
        let kubelet = asked.kubelet;
        match found {
            Err(why) => drop(self.failed.insert(kubelet, (now, why.clone()))),
            Ok(list) => {
                self.failed.remove(&kubelet);
                asked.pods.iter().for_each(|uid| self.note(uid, kubelet, list, now));
            }
        }
    }

    fn note(&mut self, uid: &str, kubelet: u32, list: &KubeletsList, now: Monotonic) {
        let entry = match list.entry(uid) {
            Some(listed) if listed.deletion.is_some() => Entry::Aware,
            Some(_) => Entry::Unaware,
            None => Entry::Missing,
        };
        let is_same = |it: &&Reads| it.kubelet == kubelet && it.entry == entry;
        let first = self.of.get(uid).filter(is_same).map_or(now, |before| before.first);
        let (latest, is_well) = (list.latest.clone(), list.is_well);
        let reads = Reads { kubelet, first, last: now, entry, latest, is_well };
        self.of.insert(uid.to_owned(), reads);
    }
}
