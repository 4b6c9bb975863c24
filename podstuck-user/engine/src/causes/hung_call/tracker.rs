//! Calls that do not return: which of them is reported for a target, and when that is over.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use podstuck_common::record::reason;

use crate::{
    bounded::Bounded,
    causes::{
        hung_call::{
            self,
            judge::{self, Beside, Judged, Waits},
            kubelet,
            verdict::Around,
        },
        shared::kernel_says::KernelSays,
        shared::{
            sharers,
            stalled::{Silent, Stalled},
        },
    },
    event::{Event, What},
    model::{
        identity::{Component, TargetKind},
        mounts::Device,
        node::NodeSample,
        pod_record::PodRecord,
        stuck::StuckThread,
        time::Monotonic,
    },
    query::{Fanotify, FindFanotify, FindListener, Listening, NoAnswer, Query, Question},
    tracker::{Claim, Context, Steps, Subject, Tracker, TrackerId},
    verdict::{Draft, Verdict},
};

/// Mount points remembered.
const MOUNT_POINTS: usize = 4096;
/// Targets named whose calls have no cause yet.
const OPEN: usize = 8;
/// Ports of the node remembered at which NFS mounts have their server; EFS's driver has 400.
const PORTS: usize = 1024;

/// A call that has not returned.
struct Waiting {
    /// The last sighting.
    seen: StuckThread,
    judged: Option<Judged>,
    /// When its server was last seen to answer others while the call waited.
    answered: Option<Monotonic>,
}

/// Calls that have not returned, by target and thread. The number of followed threads bounds them. A call
/// that is only slow has no verdict.
#[derive(Default)]
pub(crate) struct HungCalls {
    stuck: BTreeMap<u64, BTreeMap<u32, Waiting>>,
    /// By mount point, also a former one: the block devices of pods' file systems. After its exit, an unmount names
    /// only the mount point.
    devices: Bounded<PathBuf, Device, MOUNT_POINTS>,
    last: Option<Arc<NodeSample>>,
    /// By port of the node at which an NFS mount has its server: whether a process listens; `None` until the answer.
    listening: BTreeMap<u16, Option<Listening>>,
    /// By target: the listeners that must permit accesses; `None` until the answer.
    fanotify: BTreeMap<u64, Option<Result<Fanotify, NoAnswer>>>,
    kernel: KernelSays,
    stalled: Stalled,
    /// The record of the pod in question, from the API server.
    record: Option<PodRecord>,
    /// The age at which a call is slow.
    slow: Duration,
}

impl HungCalls {
    /// Takes a sighting; returns the verdict about its target.
    fn seen(&mut self, context: &Context<'_>, seen: &StuckThread) -> Option<Verdict> {
        // The call is over even if the caller cannot be proven any more.
        if seen.over {
            return self.returned(context, seen.thread.tid, seen.at);
        }
        let owned = !matches!(seen.target.kind, TargetKind::Other);
        if !owned || seen.actor.component == Component::Workload {
            return None;
        }
        self.slow = context.thresholds.hung;
        let device = self.device_of(seen);
        let silent = self.silent(seen).map(|(_, is_its)| is_its);
        let threads = self.stuck.entry(seen.target_id).or_default();
        // A thread of another process that reuses the ID inherits nothing.
        let before = threads.remove(&seen.thread.tid);
        let was_reported = before.as_ref().is_some_and(|before| before.judged.is_some());
        let before = before.filter(|before| before.seen.actor.started == seen.actor.started);
        let same_call = before.as_ref().filter(|before| before.seen.began == seen.began);
        let earlier = same_call.map(|before| &before.seen);
        let answers = earlier.is_some_and(|earlier| {
            unanswered(earlier) > unanswered(seen) || has_received(earlier, seen) == Some(true)
        });
        let answered = match answers {
            true => Some(seen.at),
            false => same_call.and_then(|before| before.answered),
        };
        let beside = Beside {
            slow: context.thresholds.hung,
            disk_works: device.and_then(|device| works(device, earlier?, seen)),
            answered,
            counted: earlier.is_some_and(|earlier| has_received(earlier, seen).is_some()),
            silent,
        };
        // While it is too early for a verdict, the earlier one stays, unless it blames a server that has answered
        // since.
        let answers = answers || judge::may_be_answered(seen, beside.counted);
        let said = before.and_then(|before| before.judged);
        let of_server = |said: &Judged| matches!(said.waits, Waits::Fuse | Waits::Nfs);
        let said = said.filter(|said| !(answers && of_server(said)));
        let said = said.filter(|said| said.waits != Waits::Lock || !seen.lock.is_empty());
        let judged = judge::judge(seen, beside).or(said);
        threads.insert(seen.thread.tid, Waiting { seen: seen.clone(), judged, answered });
        // The verdict follows with the answer.
        let may_ask = |port| self.listening.len() < PORTS && !self.listening.contains_key(&port);
        let is_asked = local_port(seen).is_some_and(may_ask);
        if !was_reported && is_asked && judged.is_some_and(|judged| judged.waits == Waits::Nfs) {
            return None;
        }
        let is_asked = !self.fanotify.contains_key(&seen.target_id);
        if is_asked && judged.is_some_and(|judged| judged.waits == Waits::Fanotify) {
            return None;
        }
        let is_news = was_reported || judged.is_some();
        is_news.then(|| self.verdict(context, seen.target_id, seen.at)).flatten()
    }

    /// Asks whether a process listens at the server's address, if that is on this node.
    fn ask(&mut self, seen: &StuckThread) -> Option<Query> {
        let threads = self.stuck.get(&seen.target_id)?;
        let judged = threads.get(&seen.thread.tid)?.judged;
        let port = local_port(seen).filter(|_| judged.is_some_and(|it| it.waits == Waits::Nfs))?;
        if self.listening.len() >= PORTS && !self.listening.contains_key(&port) {
            return None;
        }
        self.listening.entry(port).or_default();
        let address = seen.mount.as_ref()?.server.as_ref()?.address.clone();
        let (path, wants) = (seen.path.clone()?, FindListener { address, port }.into());
        Some(Query { tracker: self.id(), target_id: seen.target_id, path, wants })
    }

    /// Asks which listeners must permit the access, if a thread waits for that.
    fn ask_fanotify(&mut self, seen: &StuckThread) -> Option<Query> {
        let threads = self.stuck.get(&seen.target_id)?;
        let judged = threads.get(&seen.thread.tid)?.judged;
        let waits = judged.is_some_and(|it| it.waits == Waits::Fanotify);
        if !waits || self.fanotify.contains_key(&seen.target_id) {
            return None;
        }
        let path = seen.path.clone()?;
        self.fanotify.insert(seen.target_id, None);
        let wants = FindFanotify { pid: seen.thread.pid, path: path.clone() }.into();
        Some(Query { tracker: self.id(), target_id: seen.target_id, path, wants })
    }

    /// The answer about the server's address; `None` if no listener was found and not all processes could be read.
    fn listening(&self, seen: &StuckThread) -> Option<&Listening> {
        let listening = self.listening.get(&local_port(seen)?)?.as_ref()?;
        (listening.somebody || listening.unread == 0).then_some(listening)
    }

    /// Records the mount points of pods' file systems.
    fn sampled(&mut self, sample: &Arc<NodeSample>) {
        self.last = Some(sample.clone());
        self.stalled.sampled(sample);
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

    /// Where the thread waits for a disk: the block device of the object's file system, if that does not answer, or the
    /// only one of the node that does not, with false, where the file system is not known any more.
    fn silent(&self, seen: &StuckThread) -> Option<(Silent<'_>, bool)> {
        if !judge::waits_for_disk(seen) {
            return None;
        }
        if let Some(device) = self.device_of(seen) {
            return Some((self.stalled.below(device)?, true));
        }
        let all = self.stalled.all();
        let only = all.first().filter(|_| all.len() == 1);
        only.map(|only| (*only, false))
    }

    /// A thread has returned.
    fn returned(&mut self, context: &Context<'_>, tid: u32, at: Monotonic) -> Option<Verdict> {
        let (target_id, threads) = self.stuck.iter_mut().find(|(_, t)| t.contains_key(&tid))?;
        let was_reported = threads.remove(&tid).is_some_and(|it| it.judged.is_some());
        let target_id = *target_id;
        if threads.is_empty() {
            self.stuck.remove(&target_id);
            self.fanotify.remove(&target_id);
        }
        if was_reported { self.verdict(context, target_id, at) } else { None }
    }

    /// Of several threads the one whose cause is known best, and of these the oldest: others often
    /// wait for a lock that it holds.
    fn verdict(&mut self, context: &Context<'_>, target_id: u64, at: Monotonic) -> Option<Verdict> {
        let threads = self.stuck.get(&target_id).into_iter().flat_map(BTreeMap::values);
        let judged: Vec<(&StuckThread, &Judged)> =
            threads.filter_map(|it| Some((&it.seen, it.judged.as_ref()?))).collect();
        let best = judged.iter().max_by(|(a, in_a), (b, in_b)| {
            in_a.rank().cmp(&in_b.rank()).then_with(|| b.began.cmp(&a.began))
        });
        let Some((seen, hung)) = best else {
            return Some(Verdict::Over { tracker: self.id(), target_id, at });
        };
        let Some(mut draft) = self.draft(context, seen, hung) else {
            // kubelet has acted on the pod in question.
            let is_beside = context.asked.is_some_and(|asked| !is_of(seen, asked));
            return is_beside.then_some(Verdict::Over { tracker: self.id(), target_id, at });
        };
        draft.count = judged.len() as u64;
        draft.last = at;
        Some(Verdict::Found(Box::new(draft)))
    }

    /// `None` while it is not known what the call is about.
    fn draft(&self, context: &Context<'_>, seen: &StuckThread, judged: &Judged) -> Option<Draft> {
        let (target, path) = (seen.target.clone(), seen.path.clone()?);
        let listening = self.listening(seen);
        let has_no_listener = listening.is_some_and(|listening| !listening.somebody);
        let is_tunnel = judged.waits == Waits::Nfs && has_no_listener;
        let judged = if is_tunnel { &Judged { waits: Waits::Tunnel, ..*judged } } else { judged };
        let mount = seen.mount.as_ref();
        let (fs_type, source) = match (mount, judged.waits) {
            (Some(mount), _) => (mount.fs_type.as_str(), mount.source.as_str()),
            (None, Waits::Ceph) => ("ceph", ""),
            (None, _) => ("", ""),
        };
        let fanotify = self.fanotify.get(&seen.target_id).and_then(Option::as_ref);
        let silent = self.silent(seen);
        let since = context.clock.at(seen.began);
        let of_device = || self.kernel.of_device(&self.device_of(seen)?.to_string(), since);
        let kernel = self.kernel.of(fs_type, source).or_else(of_device);
        let around = Around { listening, kernel, fanotify, silent };
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
        hung_call::verdict::fill(context, &mut draft, seen, judged, around, || self.sharers(seen));
        match context.asked.filter(|asked| !is_of(seen, asked)) {
            Some(asked) => kubelet::beside(context, draft, seen, &self.beside(asked)?),
            None => Some(draft),
        }
    }

    /// The pod in question, while kubelet waits for another one's volume.
    fn beside(&self, asked: &str) -> Option<kubelet::Beside<'_>> {
        let (sample, record) = (self.last.as_deref()?, self.record.as_ref()?);
        let pod = sample.pod(asked)?;
        (record.pod.uid == asked).then_some(kubelet::Beside { sample, pod, record })
    }

    /// The others that have the call's file system, if they are known and it is on no block device.
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
            What::Stuck(seen) => {
                steps.say(self.seen(context, seen));
                steps.ask(self.ask(seen));
                steps.ask(self.ask_fanotify(seen));
            }
            What::Sample(sample) => self.sampled(sample),
            What::Said(said) => self.kernel.listen(said),
            What::Record { record, .. } if context.asked == Some(record.pod.uid.as_str()) => {
                self.record = Some(PodRecord::clone(record));
            }
            What::Answer { query, answer } => {
                if let Some((asked, found)) = FindListener::answered(query, answer) {
                    let unknown = Listening { unread: u32::MAX, ..Listening::default() };
                    let found = found.as_ref().copied().unwrap_or(unknown);
                    self.listening.insert(asked.port, Some(found));
                } else if let Some((_, found)) = FindFanotify::answered(query, answer) {
                    self.fanotify.insert(query.target_id, Some(found.clone()));
                }
                if query.tracker == self.id() {
                    let is_stuck = self.stuck.contains_key(&query.target_id);
                    let verdict =
                        is_stuck.then(|| self.verdict(context, query.target_id, context.now));
                    steps.say(verdict.flatten());
                }
            }
            _ => {}
        }
    }

    /// A thread that is stuck on the target shows that a removal is tried.
    fn explains(&self, subject: &Subject<'_>, _: Claim) -> bool {
        self.stuck.get(&subject.target_id).is_some_and(|threads| !threads.is_empty())
    }

    /// The oldest call of each target without a cause: a watch that ends before a cause can be named does not show that
    /// nothing is wrong.
    fn waits(&self, now: Monotonic, is_asked: bool) -> Vec<String> {
        let is_open = |threads: &&BTreeMap<u32, Waiting>| {
            threads.values().all(|waiting| waiting.judged.is_none())
        };
        let open = self.stuck.values().filter(is_open);
        let oldest = |threads: &'_ BTreeMap<u32, Waiting>| {
            let all = threads.values().map(|waiting| &waiting.seen);
            let oldest = all.min_by_key(|seen| seen.began);
            oldest.map(|seen| hung_call::verdict::waits(seen, self.slow, now, is_asked))
        };
        open.filter_map(oldest).take(OPEN).collect()
    }

    fn dropped(&self) -> u64 {
        self.devices.dropped()
    }
}

/// Whether a call is about something of this pod.
fn is_of(seen: &StuckThread, uid: &str) -> bool {
    seen.target.pod.as_ref().is_some_and(|pod| pod.uid == uid)
}

/// Whether a device has completed anything between two sightings.
fn works(device: Device, earlier: &StuckThread, now: &StuckThread) -> Option<bool> {
    let done = |seen: &StuckThread| {
        let work = seen.disks.iter().find(|work| work.device == device);
        work.map(|work| work.done)
    };
    // A device that has completed nothing yet is not listed.
    let known = !earlier.disks.is_empty() && !now.disks.is_empty();
    known.then(|| done(earlier) != done(now))
}

/// Whether an NFS server has answered any call on the file system between two sightings; `None` if that is not known.
fn has_received(earlier: &StuckThread, now: &StuckThread) -> Option<bool> {
    let received = |seen: &StuckThread| seen.mount.as_ref()?.server.as_ref()?.received;
    received(earlier).zip(received(now)).map(|(before, now)| now > before)
}

fn local_port(seen: &StuckThread) -> Option<u16> {
    seen.mount.as_ref()?.server.as_ref()?.local_port()
}

/// Number of requests that a FUSE server has not answered; 0 if not known.
pub(super) fn unanswered(seen: &StuckThread) -> u64 {
    seen.mount.as_ref().and_then(|mount| mount.unanswered).unwrap_or_default()
}
