//! Calls that do not return: which of them is told for a target, and when that is over.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use podstuck_common::record::reason;

use crate::{
    bounded::Bounded,
    event::{Event, What},
    model::{
        identity::{Component, TargetKind},
        mounts::Device,
        node::NodeSample,
        stuck::StuckThread,
        time::Monotonic,
    },
    rules::{
        hung_call,
        hung_call_cause::{self, Beside, Judged},
        sharers,
    },
    tracker::{Claim, Context, Steps, Subject, Tracker, TrackerId},
    verdict::{Draft, Verdict},
};

/// Mount points remembered.
const MOUNT_POINTS: usize = 4096;

/// Calls that have not returned, by target and thread. They are as many as threads are followed. What is
/// slow has no verdict.
pub(crate) struct HungCalls {
    stuck: BTreeMap<u64, BTreeMap<u32, (StuckThread, Option<Judged>)>>,
    /// Where pods' file systems on block devices are mounted, or were: after its exit, an unmount names only
    /// the place.
    devices: Bounded<PathBuf, Device>,
    last: Option<Arc<NodeSample>>,
}

impl Default for HungCalls {
    fn default() -> Self {
        Self { stuck: BTreeMap::new(), devices: Bounded::new(MOUNT_POINTS), last: None }
    }
}

impl HungCalls {
    /// Takes a sighting; what there is to tell of its target.
    fn seen(&mut self, context: &Context<'_>, seen: &StuckThread) -> Option<Verdict> {
        // Also of a caller who cannot be proven any more.
        if seen.over {
            return self.returned(context, seen.thread.tid, seen.at);
        }
        let owned = !matches!(seen.target.kind, TargetKind::Other);
        if !owned || seen.actor.component == Component::Workload {
            return None;
        }
        let device = self.device_of(seen);
        let threads = self.stuck.entry(seen.target_id).or_default();
        // A thread of another process, which was given the same id, has nothing of the one before.
        let before = threads.remove(&seen.thread.tid);
        let was_told = before.as_ref().is_some_and(|(_, judged)| judged.is_some());
        let before = before.filter(|(before, _)| before.actor.started == seen.actor.started);
        let earlier = before.as_ref().map(|(earlier, _)| earlier).filter(|e| e.began == seen.began);
        let beside = Beside {
            slow: context.thresholds.hung,
            disk_works: device.and_then(|device| works(device, earlier?, seen)),
            server_answers: earlier.is_some_and(|earlier| unanswered(earlier) > unanswered(seen)),
        };
        // While it is too early to say anything, what was said before stays.
        let said = before.and_then(|(_, judged)| judged);
        let judged = hung_call_cause::judge(seen, beside).or(said);
        threads.insert(seen.thread.tid, (seen.clone(), judged));
        let is_news = was_told || judged.is_some();
        is_news.then(|| self.verdict(context, seen.target_id, seen.at)).flatten()
    }

    /// Remembers where file systems of pods are.
    fn sampled(&mut self, sample: &Arc<NodeSample>) {
        self.last = Some(sample.clone());
        for (_, _, mount) in sample.mounts.all().filter(|(_, _, mount)| mount.device.major != 0) {
            let of_pod = mount.point.iter().any(|name| name == "pods");
            if of_pod && self.devices.get(&mount.point) != Some(&mount.device) {
                self.devices.insert(mount.point.clone(), mount.device);
            }
        }
    }

    /// The block device of the object's file system.
    fn device_of(&self, seen: &StuckThread) -> Option<Device> {
        let path = seen.path.as_deref()?;
        path.ancestors().find_map(|above| self.devices.get(above).copied())
    }

    /// A thread has returned.
    fn returned(&mut self, context: &Context<'_>, tid: u32, at: Monotonic) -> Option<Verdict> {
        let (target_id, threads) = self.stuck.iter_mut().find(|(_, t)| t.contains_key(&tid))?;
        let was_told = threads.remove(&tid).is_some_and(|(_, judged)| judged.is_some());
        let target_id = *target_id;
        if threads.is_empty() {
            self.stuck.remove(&target_id);
        }
        if was_told { self.verdict(context, target_id, at) } else { None }
    }

    /// Of several threads the one whose cause is known best, and of these the oldest: others often
    /// wait for a lock that it holds.
    fn verdict(&mut self, context: &Context<'_>, target_id: u64, at: Monotonic) -> Option<Verdict> {
        let threads = self.stuck.get(&target_id).into_iter().flat_map(BTreeMap::values);
        let judged: Vec<(&StuckThread, &Judged)> =
            threads.filter_map(|(seen, judged)| Some((seen, judged.as_ref()?))).collect();
        let best = judged.iter().max_by(|(a, in_a), (b, in_b)| {
            in_a.rank().cmp(&in_b.rank()).then_with(|| b.began.cmp(&a.began))
        });
        let Some((seen, hung)) = best else {
            return Some(Verdict::Over { tracker: self.id(), target_id, at });
        };
        let mut draft = self.draft(context, seen, hung)?;
        draft.count = judged.len() as u64;
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
        hung_call::fill(context, &mut draft, seen, judged, || self.sharers(seen));
        Some(draft)
    }

    /// Who else has the file system on which the call waits, if that is on no block device and known.
    fn sharers(&self, seen: &StuckThread) -> Option<Vec<String>> {
        let device = Device { major: 0, minor: seen.mount.as_ref()?.minor };
        let own = seen.target.pod.as_ref().map(|pod| pod.uid.as_str());
        sharers::of(self.last.as_deref()?, device, own)
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
            What::Sample(sample) => self.sampled(sample),
            _ => {}
        }
    }

    /// While a thread is stuck on the target: then somebody does try.
    fn explains(&self, subject: &Subject<'_>, _: Claim) -> bool {
        self.stuck.get(&subject.target_id).is_some_and(|threads| !threads.is_empty())
    }

    fn dropped(&self) -> u64 {
        self.devices.dropped()
    }
}

/// Whether a device has completed anything between two sightings.
fn works(device: Device, earlier: &StuckThread, now: &StuckThread) -> Option<bool> {
    let done = |seen: &StuckThread| {
        let work = seen.disks.iter().find(|work| work.device == device);
        work.map(|work| work.done)
    };
    // One that has done nothing yet is not listed.
    let known = !earlier.disks.is_empty() && !now.disks.is_empty();
    known.then(|| done(earlier) != done(now))
}

/// Requests that a FUSE server has not answered; none where that is not told.
fn unanswered(seen: &StuckThread) -> u64 {
    seen.mount.as_ref().and_then(|mount| mount.unanswered).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;
    use crate::{
        model::{
            call::Call,
            hung::{DiskWork, Phase, WaitProgress},
            mounts::{Mounts, NodeMounts},
        },
        testing::{Alone, failed, stuck},
    };

    fn seen(tid: u32, stack: &[&str], began: u64) -> StuckThread {
        let mut seen = stuck(stack);
        seen.thread.tid = tid;
        (seen.began, seen.at) = (Monotonic(began), Monotonic(200_000_000_000));
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

    /// An unmount of `VOLUME` that is shut down, as old as this, and what its device has done by then.
    fn shut_down(second: u64, done: u64) -> StuckThread {
        let mut seen = stuck(&["folio_wait_bit", "sync_inodes_sb", "generic_shutdown_super"]);
        (seen.phase, seen.syscall) = (Phase::AfterExit, "umount2".into());
        seen.path = Some("/k/pods/u/volumes/p/v".into());
        seen.at = Monotonic(seen.began.0 + second * 1_000_000_000);
        let quiet_ms = second * 1000;
        seen.progress = Some(WaitProgress { woken: 0, milliseconds: 1000, quiet_ms });
        let device = Device { major: 8, minor: 16 };
        seen.disks =
            vec![DiskWork { device, done }, DiskWork { device: Device::default(), done: second }];
        seen
    }

    #[test]
    fn a_device_that_works_is_slow() {
        for (then, id_then) in [(7, "umount-kernel-hang"), (8, "umount-flush-slow")] {
            let mut hung = Alone::new();
            let line = b"9 2 8:16 / /k/pods/u/volumes/p/v rw - ext4 /dev/sdb rw\n";
            let all = crate::model::mountinfo::parse(line);
            let table = Mounts { all, source: String::new(), pid: 1 };
            let mounts = NodeMounts { tables: [(1, table.into())].into(), host: Some(1) };
            let sample = NodeSample { mounts, ..NodeSample::default() };
            hung.take(Monotonic(1), What::Sample(sample.into()));
            assert!(see(&mut hung, shut_down(60, 7)).is_empty());
            let op = failed(Call::Unlinkat, Errno::EIO, "", 1.0);
            let subject = Subject::of(&op);
            assert!(hung.tracker.explains(&subject, Claim::Suspicion), "slow, and somebody tries");
            assert_eq!(id(&see(&mut hung, shut_down(130, then))), id_then);
        }
    }

    #[test]
    fn a_thread_id_that_is_given_to_another_process_takes_nothing_over() {
        let mut hung = Alone::new();
        let fuse = ["request_wait_answer", "fuse_do_getattr"];
        assert_eq!(id(&see(&mut hung, seen(1, &fuse, 1))), "fuse-daemon-hung");
        let mut another = StuckThread { thread: seen(1, &fuse, 1).thread, ..shut_down(1, 7) };
        Arc::make_mut(&mut another.actor).started = Some(99);
        assert_eq!(id(&see(&mut hung, another)), "over");
    }

    #[test]
    fn what_was_told_is_over_also_when_the_caller_cannot_be_proven_any_more() {
        let mut hung = Alone::new();
        let seen = seen(1, &["request_wait_answer", "fuse_do_getattr"], 1);
        assert_eq!(id(&see(&mut hung, seen.clone())), "fuse-daemon-hung");
        let mut over = StuckThread { over: true, ..seen };
        Arc::make_mut(&mut over.actor).component = Component::Workload;
        assert_eq!(id(&see(&mut hung, over)), "over");
    }

    #[test]
    fn what_it_is_about_must_be_known() {
        let unknown = StuckThread { path: None, ..seen(1, &["request_wait_answer"], 1) };
        assert!(see(&mut Alone::new(), unknown).is_empty());
    }
}
