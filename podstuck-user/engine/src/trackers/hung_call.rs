//! Calls that do not return: which of them is told for a target, and when that is over.

use std::collections::BTreeMap;

use podstuck_common::record::reason;

use crate::{
    event::{Event, What},
    model::{
        identity::{Component, TargetKind},
        stuck::StuckThread,
        time::Monotonic,
    },
    rules::{
        hung_call,
        hung_call_cause::{self, Judged},
    },
    tracker::{Claim, Context, Steps, Subject, Tracker, TrackerId},
    verdict::{Draft, Verdict},
};

/// Calls that have not returned, by target and thread. They are as many as threads are followed.
#[derive(Default)]
pub(crate) struct HungCalls {
    stuck: BTreeMap<u64, BTreeMap<u32, (StuckThread, Judged)>>,
}

impl HungCalls {
    /// Takes a sighting; what there is to tell of its target.
    fn seen(&mut self, context: &Context<'_>, seen: &StuckThread) -> Option<Verdict> {
        let owned = !matches!(seen.target.kind, TargetKind::Other);
        if !owned || seen.actor.component == Component::Workload {
            return None;
        }
        if seen.over {
            return self.returned(context, seen.thread.tid, seen.at);
        }
        // While it is too early to say anything, what was said before stays.
        let judged = hung_call_cause::judge(seen)?;
        let threads = self.stuck.entry(seen.target_id).or_default();
        threads.insert(seen.thread.tid, (seen.clone(), judged));
        self.verdict(context, seen.target_id, seen.at)
    }

    /// A thread has returned.
    fn returned(&mut self, context: &Context<'_>, tid: u32, at: Monotonic) -> Option<Verdict> {
        let (target_id, threads) = self.stuck.iter_mut().find(|(_, t)| t.contains_key(&tid))?;
        threads.remove(&tid);
        let target_id = *target_id;
        self.verdict(context, target_id, at)
    }

    /// Of several threads the one whose cause is known best, and of these the oldest: others often
    /// wait for a lock that it holds.
    fn verdict(&mut self, context: &Context<'_>, target_id: u64, at: Monotonic) -> Option<Verdict> {
        let threads = self.stuck.get(&target_id)?;
        let best = threads.values().max_by(|(a, in_a), (b, in_b)| {
            in_a.rank().cmp(&in_b.rank()).then_with(|| b.began.cmp(&a.began))
        });
        let Some((seen, judged)) = best else {
            self.stuck.remove(&target_id);
            return Some(Verdict::Over { tracker: self.id(), target_id, at });
        };
        let mut draft = self.draft(context, seen, judged)?;
        draft.count = threads.len() as u64;
        draft.last = at;
        Some(Verdict::Found(Box::new(draft)))
    }

    /// `None` while it is not known what the call is about.
    fn draft(&self, context: &Context<'_>, seen: &StuckThread, judged: &Judged) -> Option<Draft> {
        let (target, path) = (seen.target.clone(), seen.path.clone()?);
        let mut draft = Draft::about_state(
            self.id(),
            judged.waits.cause(),
            seen.target_id,
            target,
            path,
            seen.at,
        );
        draft.actor = Some(seen.actor.clone());
        draft.first = seen.began;
        hung_call::fill(context, &mut draft, seen, judged);
        Some(draft)
    }
}

impl Tracker for HungCalls {
    fn id(&self) -> TrackerId {
        TrackerId::HungCall
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Operation(op) if op.has(reason::SLOW) => {
                steps.say(self.returned(context, op.tid, op.end));
            }
            What::Stuck(seen) => steps.say(self.seen(context, seen)),
            _ => {}
        }
    }

    /// While a thread is stuck on the target: then somebody does try.
    fn explains(&self, subject: &Subject<'_>, _: Claim) -> bool {
        self.stuck.get(&subject.target_id).is_some_and(|threads| !threads.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;
    use crate::{
        model::call::Call,
        testing::{Alone, failed, stuck},
    };

    fn seen(tid: u32, stack: &[&str], began: u64) -> StuckThread {
        let mut seen = stuck(stack);
        seen.thread.tid = tid;
        seen.began = Monotonic(began);
        seen
    }

    fn see(hung: &mut Alone<HungCalls>, seen: StuckThread) -> Vec<Verdict> {
        hung.take(seen.at, What::Stuck(Box::new(seen))).verdicts
    }

    /// The thread's call came back, as its operation tells.
    fn returned(hung: &mut Alone<HungCalls>, tid: u32) -> Vec<Verdict> {
        let mut op = failed(Call::Unlinkat, Errno::EIO, "m", 9.0);
        (op.tid, op.reason) = (tid, reason::SLOW);
        hung.take(op.end, What::Operation(Box::new(op))).verdicts
    }

    fn id(verdicts: &[Verdict]) -> &'static str {
        match verdicts {
            [Verdict::Found(draft)] => draft.id(),
            [Verdict::Over { .. }] => "over",
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_thread_that_explains_most_is_told_until_all_are_back() {
        let mut hung = Alone::new();
        let lock = ["rwsem_down_write_slowpath", "do_unlinkat"];
        assert_eq!(id(&see(&mut hung, seen(1, &lock, 1))), "call-hung-unexplained");
        let fuse = ["request_wait_answer", "fuse_do_getattr"];
        assert_eq!(id(&see(&mut hung, seen(2, &fuse, 2))), "fuse-daemon-hung");
        assert_eq!(id(&see(&mut hung, seen(1, &lock, 1))), "fuse-daemon-hung");
        assert_eq!(id(&returned(&mut hung, 2)), "call-hung-unexplained");
        let over = StuckThread { over: true, ..seen(1, &lock, 1) };
        assert_eq!(id(&see(&mut hung, over)), "over");
        assert!(returned(&mut hung, 1).is_empty());
    }

    #[test]
    fn what_it_is_about_must_be_known() {
        let unknown = StuckThread { path: None, ..seen(1, &["request_wait_answer"], 1) };
        assert!(see(&mut Alone::new(), unknown).is_empty());
    }
}
