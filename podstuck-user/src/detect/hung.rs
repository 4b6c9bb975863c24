//! Calls that do not return: which of them is told for a target, and when that is over.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    case::Verdict,
    draft::{Draft, Family},
    hung_draft,
    hung_verdict::{self, Judged},
};
use crate::{
    model::{
        identity::{Actor, Target},
        time::Monotonic,
    },
    state::stuck::Sighting,
};

/// A sighting with names.
#[derive(Clone, Debug)]
pub struct Sighted {
    /// The thread, the object, the stack.
    pub sighting: Sighting,
    /// Hash that names the target.
    pub target_id: u64,
    /// What the object belongs to.
    pub target: Arc<Target>,
    /// Whose thread it is.
    pub actor: Arc<Actor>,
}

/// Calls that have not returned, by target and thread.
#[derive(Debug, Default)]
pub(super) struct Hung {
    stuck: BTreeMap<u64, BTreeMap<u32, (Sighted, Judged)>>,
}

impl Hung {
    /// Takes a sighting; what there is to tell of its target.
    pub(super) fn seen(&mut self, seen: Sighted) -> Option<Verdict> {
        let at = seen.sighting.at;
        if seen.sighting.over {
            return self.returned(seen.sighting.thread.tid, at);
        }
        let (target_id, tid) = (seen.target_id, seen.sighting.thread.tid);
        // While it is too early to say anything, what was said before stays.
        let judged = hung_verdict::judge(&seen.sighting)?;
        let threads = self.stuck.entry(target_id).or_default();
        threads.insert(tid, (seen, judged));
        self.verdict(target_id, at)
    }

    /// A thread has returned.
    pub(super) fn returned(&mut self, tid: u32, at: Monotonic) -> Option<Verdict> {
        let (target_id, threads) = self.stuck.iter_mut().find(|(_, t)| t.contains_key(&tid))?;
        threads.remove(&tid);
        let target_id = *target_id;
        self.verdict(target_id, at)
    }

    /// Of several threads the one whose cause is known best, and of these the oldest: others often
    /// wait for a lock that it holds.
    fn verdict(&mut self, target_id: u64, at: Monotonic) -> Option<Verdict> {
        let threads = self.stuck.get(&target_id)?;
        let known = |judged: &Judged| (judged.confidence * 100.0) as u32;
        let best = threads.values().max_by(|(a, in_a), (b, in_b)| {
            let order = known(in_a).cmp(&known(in_b));
            order.then_with(|| b.sighting.began.cmp(&a.sighting.began))
        });
        let Some((seen, judged)) = best else {
            self.stuck.remove(&target_id);
            return Some(Verdict::Over { family: Family::Hung, target_id, at });
        };
        let mut draft = draft(seen, judged)?;
        draft.count = threads.len() as u64;
        draft.last = at;
        Some(Verdict::Found(Box::new(draft)))
    }
}

/// `None` while it is not known what the call is about.
fn draft(seen: &Sighted, judged: &Judged) -> Option<Draft> {
    let Sighted { sighting, target_id, target, actor } = seen;
    let path = sighting.path.clone()?;
    let at = sighting.at;
    let mut draft =
        Draft::about_state(Family::Hung, judged.id, *target_id, target.clone(), path, at);
    draft.actor = Some(actor.clone());
    draft.first = sighting.began;
    hung_draft::fill(&mut draft, sighting, judged);
    Some(draft)
}

#[cfg(test)]
mod tests {
    use super::{super::sample, *};
    use crate::model::call::Call;

    fn seen(tid: u32, stack: &[&str], began: u64) -> Sighted {
        let op = sample::failed(Call::Unlinkat, nix::errno::Errno::EIO, "m", 1.0);
        let mut sighting = hung_verdict::sample(stack);
        sighting.thread.tid = tid;
        sighting.began = Monotonic(began);
        Sighted { sighting, target_id: 7, target: op.target.clone(), actor: op.actor.clone() }
    }

    fn id(verdict: Option<Verdict>) -> &'static str {
        match verdict {
            Some(Verdict::Found(draft)) => draft.id,
            Some(Verdict::Over { .. }) => "over",
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_thread_that_explains_most_is_told_until_all_are_back() {
        let mut hung = Hung::default();
        let lock = ["rwsem_down_write_slowpath", "do_unlinkat"];
        assert_eq!(id(hung.seen(seen(1, &lock, 1))), "call-hung-unexplained");
        let fuse = ["request_wait_answer", "fuse_do_getattr"];
        assert_eq!(id(hung.seen(seen(2, &fuse, 2))), "fuse-daemon-hung");
        assert_eq!(id(hung.seen(seen(1, &lock, 1))), "fuse-daemon-hung");
        assert_eq!(id(hung.returned(2, Monotonic(9))), "call-hung-unexplained");
        let mut over = seen(1, &lock, 1);
        over.sighting.over = true;
        assert_eq!(id(hung.seen(over)), "over");
        assert!(hung.returned(1, Monotonic(9)).is_none());
    }

    #[test]
    fn what_it_is_about_must_be_known() {
        let mut unknown = seen(1, &["request_wait_answer"], 1);
        unknown.sighting.path = None;
        assert!(Hung::default().seen(unknown).is_none());
    }
}
