//! Whether an unmount that a finding advises would be refused: who uses what it unmounts is looked for and named,
//! and has to let go before.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use crate::{
    ledger::Ledger,
    model::{
        evidence::Source,
        holder::{About, Holder, How, Snapshot},
        path::{JsonPath, safe_path},
        time::Monotonic,
    },
    query::{NoAnswer, Query, Wants},
    rules::{holders, mount_in_use::culprits},
    tracker::TrackerId,
    verdict::{Draft, Unmount},
};

/// Mounts remembered. What is beyond them keeps its command, and nobody is named.
const MOUNTS: usize = 1024;
/// Each search reads the descriptors of all processes: so many at a time, of one pod and of a whole node.
const OF_ONE: usize = 4;
const OF_ALL: usize = 1;
/// How old a search may be before another one is made for a finding that is told again.
const OLD: Duration = Duration::from_secs(30);
/// A firm answer waits for so long for them.
const PATIENCE: Duration = Duration::from_secs(5);

/// The namespace, and the mount point.
type Key = (u32, std::path::PathBuf);

#[derive(Default)]
struct Looked {
    asked: Option<Monotonic>,
    answered: bool,
    found: Option<Result<Snapshot, NoAnswer>>,
}

#[derive(Default)]
pub(super) struct WaysOut {
    mounts: BTreeMap<Key, Looked>,
    /// What advises to unmount something, as it was made last.
    drafts: BTreeMap<(TrackerId, u64), Draft>,
    waiting: VecDeque<Unmount>,
    open: BTreeSet<Key>,
}

impl WaysOut {
    /// Adds to a finding what is known of the mounts that it advises to unmount, and asks about the others.
    pub(super) fn amend(&mut self, draft: &mut Draft, now: Monotonic) {
        let of = (draft.tracker, draft.target_id);
        if draft.unmounts.is_empty() {
            self.drafts.remove(&of);
            return;
        }
        if self.drafts.len() < MOUNTS || self.drafts.contains_key(&of) {
            self.drafts.insert(of, draft.clone());
        }
        let unmounts = draft.unmounts.clone();
        for unmount in unmounts.iter().rev() {
            let key = (unmount.namespace, unmount.point.clone());
            if !self.mounts.contains_key(&key) && self.mounts.len() >= MOUNTS {
                continue;
            }
            let looked = self.mounts.entry(key).or_default();
            if looked.asked.is_none_or(|asked| looked.answered && now.since(asked) >= OLD) {
                (looked.asked, looked.answered) = (Some(now), false);
                self.waiting.push_back(unmount.clone());
            }
            if let Some(found) = &looked.found {
                add(draft, unmount, found);
            }
        }
    }

    /// What is to be asked now.
    pub(super) fn ask(&mut self, has_target: bool) -> Vec<Query> {
        let most = if has_target { OF_ONE } else { OF_ALL };
        let mut queries = Vec::new();
        while self.open.len() < most
            && let Some(Unmount { pid, namespace, point, .. }) = self.waiting.pop_front()
        {
            self.open.insert((namespace, point.clone()));
            let path = JsonPath(point.clone());
            let wants = Wants::Holders(About::Mount { pid, namespace, path });
            let tracker = TrackerId::WaysOut;
            queries.push(Query { tracker, target_id: 0, path: point, wants });
        }
        queries
    }

    /// Takes an answer; the findings to which it matters, as they were made.
    pub(super) fn answered(
        &mut self,
        query: &Query,
        found: &Result<Snapshot, NoAnswer>,
        ledger: &Ledger,
    ) -> Vec<Draft> {
        let Wants::Holders(About::Mount { namespace, path, .. }) = &query.wants else {
            return Vec::new();
        };
        let key = (*namespace, path.0.clone());
        self.open.remove(&key);
        let Some(looked) = self.mounts.get_mut(&key) else { return Vec::new() };
        looked.found = Some(found.clone());
        looked.answered = true;
        // What is over by now is not told again.
        self.drafts.retain(|of, draft| ledger.holds(*of, draft.cause.id));
        let is_its = |unmount: &Unmount| (unmount.namespace, &unmount.point) == (key.0, &key.1);
        let concerned = self.drafts.values().filter(|draft| draft.unmounts.iter().any(is_its));
        concerned.cloned().collect()
    }

    /// Whether a firm answer may become a better one by what was asked.
    pub(super) fn is_open(&self, now: Monotonic) -> bool {
        let is_recent = |looked: &Looked| {
            !looked.answered && looked.asked.is_some_and(|at| now.since(at) < PATIENCE)
        };
        self.mounts.values().any(is_recent)
    }
}

/// What a search for those who use a mount adds to a finding that advises to unmount it.
fn add(draft: &mut Draft, unmount: &Unmount, found: &Result<Snapshot, NoAnswer>) {
    let point = safe_path(&unmount.point);
    let taken = match found {
        Ok(taken) if taken.subject.is_ok() => taken,
        // It is no mount point any more.
        Ok(_) => return,
        Err(why) => {
            holders::not_listed(draft, &point, &why.to_string());
            return;
        }
    };
    // The pod's own processes are ended with its containers.
    let pod = draft.target.pod.as_ref().map(|pod| pod.uid.clone());
    let is_own =
        |holder: &&Holder| pod.is_some() && holder.pod.as_ref().map(|pod| &pod.uid) == pod.as_ref();
    let is_it =
        |holder: &&Holder| holder.how == How::NestedMount && holder.object.0 == unmount.point;
    let others = culprits(taken).filter(|holder| !is_own(holder) && !is_it(holder));
    let in_use: Vec<&Holder> = others.collect();
    if in_use.is_empty() {
        return;
    }
    draft.fact_since(
        format!("`umount {point}` is refused as long as it is in use"),
        Source::Inference,
        taken.at,
    );
    holders::tell(draft, &in_use);
    let (nested, users): (Vec<&Holder>, Vec<&Holder>) =
        in_use.iter().partition(|holder| holder.how == How::NestedMount);
    // They have to let go before it can be unmounted.
    let rest = std::mem::take(&mut draft.remedies);
    holders::free(draft, unmount.view, &nested, &users);
    draft.remedies.extend(rest);
}

#[cfg(test)]
#[path = "ways_out_tests.rs"]
mod tests;
