//! Whether an unmount that a finding advises would be refused. The engine searches for the users of the mount, for
//! each rule that advises an unmount; they must release it first. If the search has not ended, or is not possible,
//! the finding says so.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::PathBuf,
    time::Duration,
};

use crate::{
    causes::shared::holders::{self, culprits},
    command::View,
    ledger::Ledger,
    model::{
        evidence::Source,
        holder::{About, Holder, How, Snapshot},
        path::safe_path,
        remedy::{Remedy, Unmount},
        time::Monotonic,
    },
    query::{NoAnswer, Query, Wants},
    tracker::TrackerId,
    verdict::{Draft, Unmounting},
};

/// Maximum number of mounts. Beyond it, the finding keeps the command and says that the mount's users are unknown.
const MOUNTS: usize = 1024;
/// Maximum number of mounts of one finding with a search for holders.
const OF_FINDING: usize = 8;
/// Maximum number of concurrent searches, in a run about one pod and about a whole node. Each reads the descriptors
/// of all processes.
const OF_ONE: usize = 4;
const OF_ALL: usize = 1;
/// The age at which a search is repeated for a finding that is reported again.
const OLD: Duration = Duration::from_secs(30);
/// How long a firm answer waits for the searches.
const PATIENCE: Duration = Duration::from_secs(5);
/// After this time, a finding without the result is reported; it says that the search has not ended.
const LATE: Duration = Duration::from_secs(4);
/// A dropped query is not answered: after this time it no longer counts as running.
const LOST: Duration = Duration::from_secs(60);

/// Inode number of the mount namespace, and mount point.
type Key = (u32, PathBuf);

#[derive(Default)]
struct Looked {
    asked: Option<Monotonic>,
    answered: bool,
    found: Option<Result<Snapshot, NoAnswer>>,
    /// The findings say that the first search has not ended.
    is_late: bool,
}

/// A finding that advises an unmount.
struct Advises {
    /// Its last draft.
    draft: Draft,
    mounts: BTreeSet<Key>,
}

#[derive(Default)]
pub(super) struct WaysOut {
    mounts: BTreeMap<Key, Looked>,
    drafts: BTreeMap<(TrackerId, u64), Advises>,
    /// Waiting searches, each with its target.
    waiting: VecDeque<(u64, About)>,
    open: BTreeMap<Key, Monotonic>,
}

impl WaysOut {
    /// Adds to a finding the facts about the mounts that it advises to unmount, and asks about the others.
    pub(super) fn amend(&mut self, draft: &mut Draft, now: Monotonic) {
        let of = (draft.tracker, draft.target_id);
        self.drafts.remove(&of);
        let before = draft.clone();
        let (mut at, mut mounts) = (0, BTreeSet::new());
        while let Some(remedy) = draft.remedies.get(at) {
            let Some(unmount) = remedy.unmounts.clone().filter(|it| !is_known(it, &mounts)) else {
                at += 1;
                continue;
            };
            // The users must release the mount before it can be unmounted. Some do so by an unmount, which is
            // checked next.
            let release = self.look(draft, &unmount, &mut mounts, now);
            let is_new = |it: &Remedy| !draft.remedies.get(..at).unwrap_or_default().contains(it);
            let release: Vec<Remedy> = release.into_iter().filter(is_new).collect();
            let rest = draft.remedies.split_off(at);
            let rest = rest.into_iter().filter(|it| !release.contains(it));
            draft.remedies.extend(release.iter().cloned().chain(rest));
            if release.is_empty() {
                at += 1;
            }
        }
        if !mounts.is_empty() && self.drafts.len() < MOUNTS {
            self.drafts.insert(of, Advises { draft: before, mounts });
        }
    }

    /// Adds the facts about one mount, or asks for them; returns the remedies that release it.
    fn look(
        &mut self,
        draft: &mut Draft,
        unmount: &Unmount,
        mounts: &mut BTreeSet<Key>,
        now: Monotonic,
    ) -> Vec<Remedy> {
        let not_looked = |draft: &mut Draft, why: &str| {
            draft.unmounting = draft.unmounting.max(Unmounting::NotLooked);
            holders::not_listed(draft, &safe_path(&unmount.point), why);
            Vec::new()
        };
        let Some((key, about)) = key(unmount).zip(unmount.about()) else {
            return not_looked(draft, "which process sees the mount is not known");
        };
        let is_full = !self.mounts.contains_key(&key) && self.mounts.len() >= MOUNTS;
        if is_full || mounts.len() >= OF_FINDING {
            return not_looked(draft, "too many mounts must be unmounted");
        }
        mounts.insert(key.clone());
        let looked = self.mounts.entry(key).or_default();
        if looked.asked.is_none_or(|asked| looked.answered && now.since(asked) >= OLD) {
            (looked.asked, looked.answered) = (Some(now), false);
            self.waiting.push_back((draft.target_id, about));
        }
        match &looked.found {
            Some(Ok(taken)) if taken.subject.is_ok() => add(draft, unmount, taken),
            // It is not a mount point any more.
            Some(Ok(_)) => Vec::new(),
            Some(Err(why)) => not_looked(draft, &why.to_string()),
            None if looked.is_late => not_looked(draft, "the search has not ended yet"),
            None => Vec::new(),
        }
    }

    /// The next queries.
    pub(super) fn ask(&mut self, has_target: bool, now: Monotonic) -> Vec<Query> {
        self.open.retain(|_, asked| now.since(*asked) < LOST);
        let most = if has_target { OF_ONE } else { OF_ALL };
        let mut queries = Vec::new();
        while self.open.len() < most
            && let Some((target_id, about)) = self.waiting.pop_front()
        {
            let About::Mount { namespace, path, .. } = &about else { continue };
            self.open.insert((*namespace, path.0.clone()), now);
            let (tracker, path) = (TrackerId::WaysOut, path.0.clone());
            queries.push(Query { tracker, target_id, path, wants: Wants::Holders(about) });
        }
        queries
    }

    /// Takes an answer; returns the original drafts of the findings that it affects.
    pub(super) fn answered(
        &mut self,
        asked: &About,
        found: &Result<Snapshot, NoAnswer>,
        ledger: &Ledger,
    ) -> Vec<Draft> {
        let About::Mount { namespace, path, .. } = asked else { return Vec::new() };
        let key = (*namespace, path.0.clone());
        self.open.remove(&key);
        let Some(looked) = self.mounts.get_mut(&key) else { return Vec::new() };
        looked.found = Some(found.clone());
        looked.answered = true;
        self.concerned(ledger, &BTreeSet::from([key]))
    }

    /// The findings whose search takes too long.
    pub(super) fn late(&mut self, now: Monotonic, ledger: &Ledger) -> Vec<Draft> {
        let mut late = BTreeSet::new();
        for (key, looked) in &mut self.mounts {
            let waits = looked.found.is_none() && !looked.is_late;
            if waits && looked.asked.is_some_and(|at| now.since(at) >= LATE) {
                looked.is_late = true;
                late.insert(key.clone());
            }
        }
        if late.is_empty() { Vec::new() } else { self.concerned(ledger, &late) }
    }

    fn concerned(&mut self, ledger: &Ledger, keys: &BTreeSet<Key>) -> Vec<Draft> {
        // Findings that are over are not reported again.
        self.drafts.retain(|of, it| ledger.holds(*of, it.draft.cause.id));
        let concerned = self.drafts.values().filter(|it| !it.mounts.is_disjoint(keys));
        concerned.map(|it| it.draft.clone()).collect()
    }

    /// Whether a pending search may improve a firm answer.
    pub(super) fn is_open(&self, now: Monotonic) -> bool {
        let is_recent = |looked: &Looked| {
            !looked.answered && looked.asked.is_some_and(|at| now.since(at) < PATIENCE)
        };
        self.mounts.values().any(is_recent)
    }
}

fn key(unmount: &Unmount) -> Option<Key> {
    let (_, namespace) = unmount.seen_by?;
    Some((namespace, unmount.point.clone()))
}

fn is_known(unmount: &Unmount, mounts: &BTreeSet<Key>) -> bool {
    key(unmount).is_some_and(|key| mounts.contains(&key))
}

/// Adds the users of a mount that is to be unmounted; returns the remedies that make them release it.
fn add(draft: &mut Draft, unmount: &Unmount, taken: &Snapshot) -> Vec<Remedy> {
    let point = safe_path(&unmount.point);
    once(draft, |draft| holders::tell_unseen(draft, taken));
    let is_it =
        |holder: &Holder| holder.how == How::NestedMount && holder.object.0 == unmount.point;
    let pod = draft.target.pod.as_ref().map(|pod| pod.uid.clone());
    let is_own =
        |holder: &Holder| pod.is_some() && holder.pod.as_ref().map(|pod| &pod.uid) == pod.as_ref();
    // A call that waits on the mount ends when its requests are aborted, which is the remedy.
    let waits = draft.actor.as_ref().filter(|_| draft.tracker == TrackerId::HungCall);
    let waits = waits.map(|actor| actor.pid);
    let all = culprits(taken).filter(|it| !is_it(it) && (waits.is_none() || it.pid != waits));
    let (own, others): (Vec<&Holder>, Vec<&Holder>) = all.partition(|holder| is_own(holder));
    if !own.is_empty() || !others.is_empty() {
        draft.unmounting = Unmounting::Refused;
    }
    if let ([], Some(first)) = (&others[..], own.first()) {
        // They end with the pod's containers.
        let who = holders::describe(first);
        draft.fact_since(
            format!("`umount {point}` fails until the pod's own processes have ended: {who}"),
            Source::proc(&first.source),
            taken.at,
        );
    }
    if others.is_empty() {
        return Vec::new();
    }
    draft.fact_since(
        format!("`umount {point}` fails as long as the mount is in use"),
        Source::Inference,
        taken.at,
    );
    once(draft, |draft| holders::tell(draft, &others));
    let (nested, users): (Vec<&Holder>, Vec<&Holder>) =
        others.iter().partition(|holder| holder.how == How::NestedMount);
    let rest = std::mem::take(&mut draft.remedies);
    holders::free(draft, View::of_unmount(unmount), &nested, &users);
    std::mem::replace(&mut draft.remedies, rest)
}

/// Adds facts that the finding does not have yet.
fn once(draft: &mut Draft, add: impl FnOnce(&mut Draft)) {
    let known = draft.evidence.len();
    add(draft);
    let new = draft.evidence.split_off(known);
    for fact in new {
        if !draft.evidence.iter().any(|it| it.fact == fact.fact) {
            draft.evidence.push(fact);
        }
    }
}

#[cfg(test)]
#[path = "ways_out_tests.rs"]
mod tests;
