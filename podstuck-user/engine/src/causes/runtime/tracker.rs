//! Pods that a runtime cannot end, from the logs of the runtime and of kubelet. No call on the pod's files shows this: a
//! plugin fails, a signal is refused, a shim is gone, or there is no answer.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use podstuck_common::{component::name_hash, record::reason};

use crate::{
    bounded::Bounded,
    causes::{
        runtime::{
            causes::NOT_KILLED,
            hung_command,
            network_files::NetworkFiles,
            not_killed, own_kernel,
            sandbox::{self, SandboxMounts},
            socket::{self, SocketFiles},
            suspect::{Collects, FRESH, Suspect, cannot_signal, is_fresh, is_stop_error},
            verdict,
        },
        shared::{clean_up::is_clean_up, pending_deletion::ToGo, repeated::Repeated},
    },
    event::{Event, What},
    model::{
        evidence::Certainty,
        holder::About,
        identity::{Component, TargetKind},
        node::{NodeSample, PodState},
        pod_group::Task,
        runtime::OutOfStep,
        said::{Complaint, Report, Said, container_id},
        time::Monotonic,
    },
    query::{FindSocketPath, Question, ReadDirectory, ReadMountsOn},
    tracker::{Claim, Context, Steps, Subject, Tracker, TrackerId},
    verdict::{Draft, Verdict},
};

/// A shim that works collects the exit of a child within milliseconds.
const UNREAPED_LASTS: Duration = Duration::from_secs(10);
/// CRI-O writes its record within moments of the end that conmon reports.
const STALE_LASTS: Duration = Duration::from_secs(5);
/// Complaints and pods remembered.
const REMEMBERED: usize = 4096;
/// While kubelet gets no answer, it logs that every five seconds (`Kubelet.syncLoop`).
const REPEATED: Duration = Duration::from_secs(30);
/// Complaints by precedence: those that give a reason come first.
const ORDER: [Complaint; 15] = [
    Complaint::SocketRefused,
    Complaint::SignalDenied,
    Complaint::SignalRefused,
    Complaint::NetworkTeardown,
    Complaint::NetnsBusy,
    Complaint::ShmBusy,
    Complaint::ImageVolumeBusy,
    Complaint::DeviceBusy,
    Complaint::HookFailed,
    Complaint::HandlerGone,
    Complaint::KillFails,
    Complaint::StateLost,
    Complaint::ContainerStays,
    Complaint::ListFails,
    Complaint::NoAnswer,
];

/// The complaints in the logs, and the state of the node that bears on them.
#[derive(Default)]
pub(crate) struct RuntimeSays {
    /// By pod UID, which is empty for the node.
    complaints: Bounded<(String, Complaint), Repeated, REMEMBERED>,
    /// By UID: the errors of a runtime about a stop of the pod, which no complaint stands for.
    stop_errors: Bounded<String, Repeated, REMEMBERED>,
    /// By UID: the last tear-down of a volume, or attempt at it. kubelet stops the sandbox first.
    torn_down: Bounded<String, Monotonic, REMEMBERED>,
    /// By UID: when a container ended last.
    ended: Bounded<String, Monotonic, REMEMBERED>,
    to_go: ToGo,
    sandboxes: SandboxMounts,
    sockets: SocketFiles,
    network_files: NetworkFiles,
    /// By UID: the stops of the sandbox in the runtime's log.
    stops: Bounded<String, Stops, REMEMBERED>,
    /// By container ID: when its runtime sent SIGKILL, and the log that says so.
    killed: Bounded<String, (Monotonic, String), REMEMBERED>,
    /// By UID: the end of the grace period, from the API server.
    grace_ends: Bounded<String, Timestamp, REMEMBERED>,
    /// By UID: a grace period that is too long for kubelet, and the IDs of the containers that run.
    endless: Bounded<String, (u64, Vec<String>), REMEMBERED>,
    /// By UID: the container's process that lives after its runtime gave up waiting.
    living: BTreeMap<String, Living>,
    /// Zombie children of shims, by process ID and start time: since when.
    unreaped: BTreeMap<(u32, u64), Monotonic>,
    /// By container ID: since when CRI-O's record of it is wrong.
    stale: BTreeMap<String, Monotonic>,
    /// By UID: the target ID of the finding, and whether it is at least likely.
    found: BTreeMap<String, (u64, bool)>,
}

/// The last request to stop a sandbox, and the last success.
#[derive(Default)]
struct Stops {
    asked: Option<Monotonic>,
    stopped: Option<Monotonic>,
}

/// A container's process that lives.
struct Living {
    /// Process ID and start time.
    process: (u32, u64),
    since: Monotonic,
    /// Whether it has lived for `not_killed::LASTS`.
    has_lasted: bool,
}

impl Living {
    fn go_on(earlier: Option<Self>, tasks: &[&Task], at: Monotonic) -> Self {
        let process = tasks.first().map_or((0, 0), |task| (task.pid, task.started));
        let earlier = earlier.filter(|earlier| earlier.process == process);
        let since = earlier.map_or(at, |earlier| earlier.since);
        Self { process, since, has_lasted: at.since(since) >= not_killed::LASTS }
    }
}

/// Whether a complaint gives no reason.
fn says_only_that(complaint: Complaint) -> bool {
    matches!(complaint, Complaint::ContainerStays | Complaint::NoAnswer)
}

/// Whether the line is the one before dockerd sends SIGKILL. The stop fails only if kubelet waits for it in vain, or the
/// container does not end.
fn is_killed(logged: &Repeated) -> bool {
    logged.said.text.contains("using the force")
}

/// The longest grace period in seconds that kubelet can add to its timeout of two minutes, in nanoseconds of 64 bits with a
/// sign (pkg/kubelet/cri/remote, `StopContainer`): with a longer one the request has no time, and is not sent.
const LONGEST_GRACE: u64 = i64::MAX.unsigned_abs() / 1_000_000_000 - 120;

impl RuntimeSays {
    fn listen(&mut self, context: &Context<'_>, said: &Said) {
        let at = context.when(said.at);
        // A failed attempt counts too: kubelet makes no attempt before the sandbox is stopped.
        if said.is_kubelets_of_a_volume() {
            self.came_on(&said.uid, at);
        }
        match said.report {
            Some(Report::ContainerEnded) => {
                let last = self.ended.or_insert_with(said.uid.clone(), || at);
                *last = at.max(*last);
            }
            Some(Report::Killed) => {
                if let Some(id) = container_id(&said.text) {
                    self.killed.insert(id.to_owned(), (at, said.source.clone()));
                }
            }
            Some(report @ (Report::SandboxStops | Report::SandboxStopped)) => {
                let stops = self.stops.or_insert_with(said.uid.clone(), Stops::default);
                let is_done = report == Report::SandboxStopped;
                let last = if is_done { &mut stops.stopped } else { &mut stops.asked };
                *last = Some(at).max(*last);
            }
            _ => {}
        }
        if is_stop_error(said) {
            let begin = || Repeated::begin(said, at);
            self.stop_errors.or_insert_with(said.uid.clone(), begin).note(context, said);
        }
        let Some(complaint) = said.complaint.filter(|complaint| ORDER.contains(complaint)) else {
            return;
        };
        let key = (said.uid.clone(), complaint);
        self.complaints.or_insert_with(key, || Repeated::begin(said, at)).note(context, said);
    }

    /// When the runtime logged the request to stop the pod's sandbox, if it has logged neither success nor failure and
    /// kubelet has given up waiting.
    fn silent(&self, pod: &PodState, logged: &Repeated) -> Option<Monotonic> {
        let Stops { asked, stopped } = self.stops.get(&pod.uid)?;
        let asked = asked.filter(|asked| *asked <= logged.last && stopped.is_none())?;
        let answers = |complaint| {
            let own = self.complaints.get(&(pod.uid.clone(), complaint));
            own.is_some_and(|own| own.said.component != Component::Kubelet)
        };
        let is_kubelets = logged.said.component == Component::Kubelet;
        (is_kubelets && !ORDER.into_iter().any(answers)).then_some(asked)
    }

    /// When the sandbox of a pod was last known to be stopped. A runtime that logs stop requests logs their success,
    /// too. For other runtimes, kubelet 1.22 and later tears volumes down after the sandbox; earlier releases do so even
    /// while the sandbox fails to stop.
    fn last_stopped(&self, context: &Context<'_>, pod: &PodState) -> Option<Monotonic> {
        match self.stops.get(&pod.uid) {
            Some(Stops { asked: Some(_), stopped }) => *stopped,
            _ => self.last_torn_down(context, pod),
        }
    }

    /// When a volume of a pod was last torn down.
    fn last_torn_down(&self, context: &Context<'_>, pod: &PodState) -> Option<Monotonic> {
        let removed = pod.volume_removed.map(|at| context.when(at));
        removed.max(self.torn_down.get(&pod.uid).copied())
    }

    fn came_on(&mut self, uid: &str, at: Monotonic) {
        let last = self.torn_down.or_insert_with(uid.to_owned(), || at);
        *last = at.max(*last);
    }

    fn sampled(&mut self, context: &Context<'_>, sample: &NodeSample, steps: &mut Steps) {
        let mut before = std::mem::take(&mut self.found);
        let mut living = std::mem::take(&mut self.living);
        let (mut found, mut alive) = (BTreeMap::new(), BTreeMap::new());
        let (mut busy, mut refused, mut unread) = (Vec::new(), Vec::new(), Vec::new());
        self.see_unreaped(sample);
        self.see_stale(sample);
        for pod in &sample.pods {
            let current = self.current(context, pod, sample);
            let target_id = name_hash(pod.uid.as_bytes());
            if let Some(draft) = self.hung_command(context, pod, sample) {
                before.remove(&pod.uid);
                found.insert(pod.uid.clone(), (target_id, true));
                steps.found([draft]);
                continue;
            }
            let is_why = current.is_some_and(|(complaint, _)| !says_only_that(complaint));
            // A runtime that cannot signal a process does not end it either.
            let sends_none = |complaint| {
                cannot_signal(complaint)
                    || complaint == Complaint::NoAnswer && self.endless.contains(&pod.uid)
            };
            let cannot =
                current.filter(|(complaint, logged)| sends_none(*complaint) && logged.lines > 1);
            let stays = self.stays(context, pod, sample).filter(|_| !is_why);
            let stays = stays.map(|logged| (Complaint::ContainerStays, logged)).or(cannot);
            if let Some((complaint, logged)) = stays {
                let earlier = living.remove(&pod.uid);
                let (now, draft) = self.not_killed(pod, (complaint, logged), earlier, sample);
                steps.found(draft);
                let has_lasted = now.as_ref().is_some_and(|now| now.has_lasted);
                alive.extend(now.map(|now| (pod.uid.clone(), now)));
                if has_lasted {
                    before.remove(&pod.uid);
                    found.insert(pod.uid.clone(), (target_id, true));
                    continue;
                }
            }
            let Some((complaint, logged)) = current.or_else(|| self.of_all(context, pod, sample))
            else {
                continue;
            };
            let of_node = self.complaints.get(&(String::new(), complaint));
            let of_node = of_node.filter(|logged| is_fresh(logged));
            // A runtime that logs why it does not stop the pod has received kubelet's request, and does not hang.
            let errors = self.stop_errors.get(&pod.uid).filter(|it| it.lines > 1 && is_fresh(it));
            if complaint == Complaint::NoAnswer && of_node.is_none() && errors.is_some() {
                continue;
            }
            if sandbox::kept(&logged.said).is_some() {
                busy.push((target_id, Said::clone(&logged.said)));
            }
            let lies_on = self.sandboxes.on(target_id, &logged.said);
            let to_go = self.to_go.word(&pod.uid);
            let held = self.sandboxes.held(target_id, &logged.said);
            let unreaped = self.does_not_collect(&pod.uid, sample);
            let stale = self.stale_record(&pod.uid, sample);
            let silent = self.silent(pod, logged);
            let socket = self.sockets.of(&logged.said, sample);
            if complaint == Complaint::NetworkTeardown {
                unread.push((target_id, logged.said.clone()));
            }
            if complaint == Complaint::SocketRefused {
                refused.push((target_id, logged.said.clone()));
            }
            let suspect = Suspect {
                pod,
                complaint,
                logged,
                of_node,
                to_go,
                lies_on,
                held,
                unreaped,
                stale,
                silent,
                socket,
                locked: socket::locked(context, &logged.said, sample),
                unread: self.network_files.unread(&logged.said, logged.last, sample),
                endless: None,
                is_explained: is_explained(context, pod, sample),
                sample,
            };
            let cannot_run = suspect.halted_shim().is_some() || unreaped.is_some();
            let is_of_one =
                says_only_that(complaint) && of_node.is_none() && !suspect.is_one_of_all();
            if is_of_one
                && !cannot_run
                && let Some(draft) = own_kernel::draft(&suspect)
            {
                before.remove(&pod.uid);
                found.insert(pod.uid.clone(), (target_id, true));
                steps.found([draft]);
                continue;
            }
            let waits = suspect.has_ended() != Some(true) && !cannot_run;
            // A runtime that waits for a running container gives no reason.
            if complaint == Complaint::ContainerStays && waits {
                continue;
            }
            if let Some(draft) = verdict::draft(&suspect) {
                before.remove(&pod.uid);
                let holds_it = draft.blocks_deletion == Some(true);
                let is_likely = holds_it && draft.certainty() >= Certainty::Likely;
                found.insert(pod.uid.clone(), (target_id, is_likely));
                steps.found([draft]);
            }
        }
        (self.found, self.living) = (found, alive);
        let (tracker, at) = (self.id(), sample.at);
        steps.ask(self.sandboxes.ask(tracker, busy, sample));
        let sockets = &mut self.sockets;
        let asked =
            refused.iter().filter_map(|(id, said)| sockets.ask(tracker, (*id, said), sample));
        steps.ask(asked);
        let files = &mut self.network_files;
        let asked = unread.iter().filter_map(|(id, said)| files.ask(tracker, (*id, said), sample));
        steps.ask(asked);
        let over = before.into_values();
        steps.say(over.map(|(target_id, _)| Verdict::Over { tracker, target_id, at }));
    }

    /// Remembers since when children of shims are not collected.
    fn see_unreaped(&mut self, sample: &NodeSample) {
        let before = std::mem::take(&mut self.unreaped);
        let shims = sample.cgroups.iter().flat_map(|group| &group.shims);
        let keys = shims.flat_map(|shim| &shim.unreaped).map(|child| (child.pid, child.started));
        let since = |key| before.get(&key).copied().unwrap_or(sample.at);
        self.unreaped = keys.map(|key| (key, since(key))).collect();
    }

    /// A shim of a pod that has not collected a child for `UNREAPED_LASTS`.
    fn does_not_collect<'a>(&self, uid: &str, sample: &'a NodeSample) -> Option<Collects<'a>> {
        let group = sample.cgroups.iter().find(|group| group.uid == uid)?;
        let all =
            group.shims.iter().flat_map(|shim| shim.unreaped.iter().map(move |it| (shim, it)));
        let own = all.filter(|(_, child)| child.traced_by.is_none());
        let mut lasting = own.filter_map(|(shim, child)| {
            let since = *self.unreaped.get(&(child.pid, child.started))?;
            let lasts = sample.at.since(since) >= UNREAPED_LASTS;
            lasts.then_some(Collects { shim, child, since })
        });
        lasting.next()
    }

    /// Remembers since when records of CRI-O are wrong.
    fn see_stale(&mut self, sample: &NodeSample) {
        let before = std::mem::take(&mut self.stale);
        let crios = sample.out_of_step.iter().filter(|case| case.runtime == Component::CriO);
        let since = |id: &str| before.get(id).copied().unwrap_or(sample.at);
        let ids = crios.map(|case| case.container.id.clone());
        self.stale = ids.map(|id| (id.clone(), since(&id))).collect();
    }

    /// A record of CRI-O about a container of a pod that has been wrong for `STALE_LASTS`.
    fn stale_record<'a>(
        &self,
        uid: &str,
        sample: &'a NodeSample,
    ) -> Option<(&'a OutOfStep, Monotonic)> {
        let mut lasting = sample.out_of_step.iter().filter_map(|case| {
            let since = *self.stale.get(&case.container.id)?;
            let is_its = case.container.pod.as_ref().is_some_and(|pod| pod.uid == uid);
            (is_its && sample.at.since(since) >= STALE_LASTS).then_some((case, since))
        });
        lasting.next()
    }

    /// The process of a container that its runtime gave up waiting for, if it lives, and the finding about it.
    fn not_killed(
        &self,
        pod: &PodState,
        (complaint, logged): (Complaint, &Repeated),
        earlier: Option<Living>,
        sample: &NodeSample,
    ) -> (Option<Living>, Option<Draft>) {
        let endless = self.endless.get(&pod.uid).filter(|_| complaint == Complaint::NoAnswer);
        let seconds = endless.map(|(seconds, _)| *seconds);
        let suspect = Suspect { endless: seconds, ..Suspect::of(pod, complaint, logged, sample) };
        // Not every sample has the control groups of all pods.
        if suspect.group().is_none() {
            return (earlier, None);
        }
        let tasks = match endless {
            Some((_, containers)) => not_killed::alive_in(&suspect, containers),
            None => not_killed::alive(&suspect),
        };
        let Some(tasks) = tasks else { return (None, None) };
        let now = Living::go_on(earlier, &tasks, sample.at);
        let draft = now.has_lasted.then(|| {
            let mut draft = verdict::about(&NOT_KILLED, &suspect);
            // The runtime logs the signal before it sends it.
            let sends = !cannot_signal(complaint) && endless.is_none();
            let killed = suspect.container().filter(|_| sends);
            let killed = killed.and_then(|id| self.killed.get(id));
            let killed = killed.map(|(at, log)| (*at, log.as_str()));
            not_killed::words(&mut draft, &suspect, &tasks, killed);
            let is_over = self.grace_ends.get(&pod.uid).is_some();
            let has_tried = cannot_signal(complaint) || not_killed::has_waited(&logged.said.text);
            if !is_over && !has_tried {
                not_killed::doubt_grace(&mut draft);
            }
            draft
        });
        (Some(now), draft)
    }

    /// The finding about a command that the runtime or a shim waits for, if the pod in question has a complaint.
    fn hung_command(
        &self,
        context: &Context<'_>,
        pod: &PodState,
        sample: &NodeSample,
    ) -> Option<Draft> {
        if context.asked != Some(pod.uid.as_str()) || is_explained(context, pod, sample) {
            return None;
        }
        let hung = context.waits.hung_command(context.clock)?;
        let of_pod = ORDER.into_iter().filter_map(|complaint| {
            let logged = self.complaints.get(&(pod.uid.clone(), complaint))?;
            is_fresh(logged).then_some((complaint, logged))
        });
        let (complaint, logged) = of_pod.max_by_key(|(_, logged)| logged.last)?;
        let suspect = Suspect::of(pod, complaint, logged, sample);
        Some(hung_command::draft(&suspect, &hung, sample.at))
    }

    /// The lines by which the runtime gave up waiting for a container of the pod, if at least two stops have failed.
    fn stays(
        &self,
        context: &Context<'_>,
        pod: &PodState,
        sample: &NodeSample,
    ) -> Option<&Repeated> {
        let said = |complaint| self.complaints.get(&(pod.uid.clone(), complaint));
        let (logged, unanswered) = (said(Complaint::ContainerStays)?, said(Complaint::NoAnswer));
        let all = || std::iter::once(logged).chain(unanswered);
        let came_on = self.last_torn_down(context, pod).max(self.ended.get(&pod.uid).copied());
        let holds = all().map(|logged| logged.lines).sum::<u64>() >= 2
            && all().any(is_fresh)
            && came_on < Some(logged.last);
        // Until then, a stop that was interrupted, as by a restart of kubelet, waits for the container to end by itself.
        let in_grace = self.grace_ends.get(&pod.uid).is_some_and(|end| context.calendar < *end);
        (holds && !in_grace && !is_explained(context, pod, sample)).then_some(logged)
    }

    /// The complaint about a pod that still holds.
    fn current(
        &self,
        context: &Context<'_>,
        pod: &PodState,
        sample: &NodeSample,
    ) -> Option<(Complaint, &Repeated)> {
        let works = |pod: &PodState| {
            let logged = self.complaints.get(&(pod.uid.clone(), Complaint::ContainerStays));
            logged.is_some_and(is_fresh)
        };
        let waits_in_vain =
            |pod: &PodState| self.complaints.get(&(pod.uid.clone(), Complaint::NoAnswer)).is_some();
        let holds = |complaint: Complaint| {
            let logged = self.complaints.get(&(pod.uid.clone(), complaint))?;
            let is_over = match complaint {
                // Another process has killed them.
                Complaint::SignalDenied | Complaint::SignalRefused | Complaint::KillFails => {
                    pod.populated == Some(false)
                }
                Complaint::ContainerStays => {
                    logged.lines < 2
                        || is_explained(context, pod, sample)
                        || is_killed(logged) && pod.populated == Some(false) && !waits_in_vain(pod)
                }
                // A runtime that complains of a container answers.
                Complaint::NoAnswer => {
                    logged.lines < 2 || works(pod) || is_explained(context, pod, sample)
                }
                _ => false,
            };
            // The runtime does this after the containers' end.
            let is_sandbox = matches!(
                complaint,
                Complaint::NetworkTeardown
                    | Complaint::NetnsBusy
                    | Complaint::ShmBusy
                    | Complaint::ImageVolumeBusy
                    | Complaint::DeviceBusy
            );
            let came_on = match is_sandbox {
                true => self.last_stopped(context, pod),
                false => self.last_torn_down(context, pod).max(self.ended.get(&pod.uid).copied()),
            };
            let holds = is_fresh(logged) && !is_over && came_on < Some(logged.last);
            holds.then_some((complaint, logged))
        };
        ORDER.into_iter().find_map(holds)
    }

    /// The complaint that the runtime answers no request, for a pod that is to be deleted and has processes. kubelet
    /// then syncs no pod, and so logs nothing about this one.
    fn of_all(
        &self,
        context: &Context<'_>,
        pod: &PodState,
        sample: &NodeSample,
    ) -> Option<(Complaint, &Repeated)> {
        let goes_on = |logged: &Repeated| {
            logged.lines > 1
                && logged.read.since(logged.last) <= REPEATED
                && context.now.since(logged.last) <= FRESH
        };
        let of_node = |complaint| {
            let logged = self.complaints.get(&(String::new(), complaint))?;
            goes_on(logged).then_some((complaint, logged))
        };
        let is_open = self.to_go.word(&pod.uid).is_some() && !is_explained(context, pod, sample);
        let all = [Complaint::SocketRefused, Complaint::ListFails, Complaint::NoAnswer];
        let found = all.into_iter().find_map(of_node);
        // Without the list, kubelet does not see that a container has ended, either.
        let waits = |complaint| complaint == Complaint::ListFails || pod.populated == Some(true);
        found.filter(|(complaint, _)| is_open && waits(*complaint))
    }
}

/// Whether it is known what the runtime waits for.
fn is_explained(context: &Context<'_>, pod: &PodState, sample: &NodeSample) -> bool {
    let (path, at) = (pod.directory.as_path(), sample.at);
    let subject = Subject { target_id: 0, path, pod: &pod.uid, at };
    context.is_explained(TrackerId::RuntimeSays, &subject)
}

impl Tracker for RuntimeSays {
    fn id(&self) -> TrackerId {
        TrackerId::RuntimeSays
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        self.to_go.listen(context, &event.what);
        match &event.what {
            What::Said(said) => self.listen(context, said),
            What::Record { record, .. } => {
                let uid = &record.pod.uid;
                if let Some(end) = record.deletion {
                    self.grace_ends.insert(uid.clone(), end);
                }
                self.endless.remove(uid);
                if record.deletion.is_some() && record.grace_s > LONGEST_GRACE {
                    let containers = record.containers.iter().flatten();
                    let ids = containers.filter_map(|it| it.docker_and_id());
                    let ids = ids.map(|(_, id)| id.to_owned()).collect();
                    self.endless.insert(uid.clone(), (record.grace_s, ids));
                }
            }
            What::Operation(op) => {
                if op.has(reason::ROOT_GONE)
                    && op.target.kind == TargetKind::PodVolume
                    && is_clean_up(op)
                    && let Some(pod) = &op.target.pod
                {
                    self.came_on(&pod.uid, op.end);
                }
            }
            What::Sample(sample) => self.sampled(context, sample, steps),
            What::Answer { query, answer } => {
                if let Some((asked, Some(mounts))) = ReadMountsOn::answered(query, answer) {
                    self.sandboxes.answered(context, query.target_id, asked, mounts);
                }
                if let Some((asked, found)) = FindSocketPath::answered(query, answer) {
                    self.sockets.answered(asked, found.as_ref().ok().copied());
                }
                if let Some((asked, found)) = ReadDirectory::answered(query, answer) {
                    self.network_files.answered(context.now, asked, found);
                }
                if let Some((asked, Ok(taken))) = About::answered(query, answer) {
                    self.sandboxes.holders(context, query.target_id, asked, taken);
                }
            }
            _ => {}
        }
    }

    fn explains(&self, subject: &Subject<'_>, claim: Claim) -> bool {
        let found = self.found.get(subject.pod);
        found.is_some_and(|(_, is_likely)| claim.is_met(*is_likely))
    }

    fn dropped(&self) -> u64 {
        let of_pods = self.torn_down.dropped() + self.ended.dropped() + self.to_go.dropped();
        let of_graces = self.grace_ends.dropped() + self.endless.dropped();
        let of_stops = self.stops.dropped() + self.killed.dropped() + of_graces;
        self.complaints.dropped() + of_stops + of_pods
    }
}
