//! The chain of waits: from the API server over kubelet, the runtime or the driver to the last known link. It does
//! not depend on a recognised cause; a cause explains its last link.

use jiff::SignedDuration;

use crate::{
    backoff, catalogue,
    cause::CauseId,
    ids,
    kubelet_steps::NotAsked,
    model::{
        chain::Link,
        csi::{CsiState, DriverState},
        diagnosis::{PodStage, Stage, Terminating},
        finding::Finding,
        halted::Halted,
        identity::Component,
        mounted::Mounted,
        node::{NodeSample, PodState, VolumeState},
        path::{clip, process, safe, safe_path},
        pod_group::{PodGroup, Task},
        pod_record::{ContainerRecord, ContainerState, PodRecord},
        runtime::{Runtime, Shim, Unreaped},
        said::{Level, Said},
        time::Clock,
        waiting::Part,
    },
    wait_channel,
    waits::{COLLECTED, GO_ON, Waits},
};

/// Maximum number of a pod's processes that are named beside the first.
const NAMED: usize = 4;
/// How long after the end of the grace period a record must have been read that shows containers as running.
const REPORTED: SignedDuration = SignedDuration::from_secs(30);
/// What shows that kubelet has not learned of the containers' end.
const RUNNING: &str =
    "the pod's record shows its containers as running, and no process of the pod is left";
/// What a shim must do.
const SHIM_MUST: &str = "end the pod's processes and report their end";
/// Number of lines from which an error does not pass by itself.
const AGAIN: u64 = 3;
/// Maximum length of a process name.
const COMM: usize = 16;
/// Maximum length of a container's name.
const CONTAINER: usize = 63;

/// The inputs of the chain.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    /// The last scan of the node.
    pub(crate) sample: &'a NodeSample,
    /// Log messages of components about the pod, the latest last.
    pub(crate) said: &'a [Said],
    /// The requested deletion of the pod, if known.
    pub(crate) terminating: Option<&'a Terminating>,
    /// The pod's record, if it was read.
    pub(crate) record: Option<&'a PodRecord>,
    /// Findings that hold the pod, the most likely first.
    pub(crate) causes: &'a [Finding],
    /// The observed waits of the processes that must act.
    pub(crate) waits: &'a Waits,
    /// Converts the kernel's time to calendar time.
    pub(crate) clock: &'a Clock,
    /// Set if kubelet has not asked the runtime to stop a container of the pod.
    pub(crate) not_asked: Option<NotAsked<'a>>,
    /// Whether kubelet's log or the runtime's has a step of the pod's deletion.
    pub(crate) has_acted: bool,
    /// The failing watch of kubelet, if kubelet has not received the deletion.
    pub(crate) watch: Option<&'a Said>,
}

impl Facts<'_> {
    /// The container that a process belongs to, by the ID in its control group and in the pod's record.
    fn container_of(&self, task: &Task) -> Option<&str> {
        let mut containers = self.record?.containers.as_ref()?.iter();
        let is_its =
            |it: &&ContainerRecord| it.docker_and_id().is_some_and(|(_, id)| task.is_in(id));
        containers.find(is_its).map(|its| its.name.as_str())
    }

    /// The container that kubelet last failed to stop, if no process of the pod is left but the sandbox's own. Of a
    /// sandbox with a kernel of its own, that is not visible.
    pub(crate) fn ended_container(&self, uid: &str) -> Option<&ContainerRecord> {
        let text = &last_of(self, &[Component::Kubelet])?.text;
        let (_, rest) = text.split_once("failed to \"KillContainer\" for \"")?;
        let (name, _) = rest.split_once('"')?;
        let its = self.record?.containers.as_ref()?.iter().find(|it| it.name == name)?;
        let group = self.sample.cgroups.iter().find(|group| group.uid == uid)?;
        let is_bare =
            group.outside.is_empty() && group.tasks.iter().all(|it| group.is_sandboxs(it));
        (is_bare && !group.shims.iter().any(Shim::has_own_kernel)).then_some(its)
    }
}

/// Causes inside kubelet: all later steps wait for it.
const OF_KUBELET: [CauseId; 3] =
    [ids::KUBELET_MISSED_DELETION, ids::KUBELET_STEP_FAILS, ids::POD_NEVER_STARTED];

/// Causes that hold the runtime after a container's end.
const OF_SANDBOX: [CauseId; 6] = [
    ids::OCI_HOOK_FAILS,
    ids::CNI_TEARDOWN_FAILED,
    ids::NETNS_BUSY,
    ids::SANDBOX_SHM_BUSY,
    ids::IMAGE_VOLUME_BUSY,
    ids::RUNTIME_DEVICE_BUSY,
];

/// The links of a pod's deletion, the API server's first.
pub(crate) fn chain(pod: &PodStage, facts: &Facts<'_>) -> Vec<Link> {
    let mut links: Vec<Link> = of_record(pod, facts).into_iter().collect();
    let holding_cause = holding(pod, facts.causes);
    let holding = holding_cause.map(|cause| cause.id);
    let is_kubelets = holding.is_some_and(is_of_kubelet);
    if holding == Some(ids::MIRROR_POD_DELETED) {
        links.push(of_static_pod(facts));
        end_with(&mut links, of_cause(pod, facts.causes));
        return links;
    }
    let has_finalizers = facts.record.is_some_and(|record| !record.finalizers.is_empty());
    if pod.stage != Stage::Api || !has_finalizers {
        let stage = match pod.stage {
            // kubelet does not start on volumes and control groups before shim and runtime have finished.
            Stage::Volumes | Stage::Cgroup if facts.waits.holds_containers(facts.clock) => {
                Stage::Containers
            }
            stage => stage,
        };
        let (link, acts) = match holding {
            Some(ids::SLICE_REMOVAL_TIMES_OUT) => {
                let (link, acts) = of_kubelet(&at_stage(pod, Stage::Cgroup), facts);
                (waits_for(link, "systemd's signal about the pod's slice"), acts)
            }
            _ => of_kubelet(&at_stage(pod, stage), facts),
        };
        let in_call = holding_cause.and_then(|cause| kubelets_call(cause, &link.who));
        let link = match &in_call {
            Some(call) => waits_for(link, call),
            None => link,
        };
        links.push(link);
        if acts
            && in_call.is_none()
            && !is_kubelets
            && let Some(state) = facts.sample.pod(&pod.pod.uid)
        {
            match stage {
                // The container has ended; the sandbox's own process ends after it.
                Stage::Containers if holding.is_some_and(|id| OF_SANDBOX.contains(&id)) => {
                    links.extend(of_runtime(&pod.pod.uid, &[], facts));
                }
                Stage::Containers if holding == Some(ids::POSTSTART_HOOK_PENDING) => {}
                Stage::Containers if fails_itself(facts).is_some() => {}
                Stage::Containers if facts.not_asked.is_none() && facts.watch.is_none() => {
                    links.extend(of_containers(state, facts));
                }
                Stage::Volumes => match kubelets_task(facts) {
                    Some((waits_for, rest)) => {
                        if let Some(kubelet) = links.last_mut() {
                            kubelet.waits_for = waits_for;
                        }
                        links.extend(rest);
                    }
                    None => match failed_look(state, facts.said) {
                        Some(failed) => {
                            if let Some(kubelet) = links.last_mut() {
                                kubelet.waits_for = Some(failed.waited_for());
                            }
                            links.push(failed.link());
                        }
                        None => links.extend(of_driver(state, facts)),
                    },
                },
                _ => {}
            }
        }
    }
    // A cause inside kubelet is already in kubelet's link.
    if !is_kubelets {
        end_with(&mut links, of_cause(pod, facts.causes));
    }
    links
}

/// Adds the cause to the link of the process or object that it names, or else at the end. Links behind it are
/// dropped, unless it waits for the next one.
fn end_with(links: &mut Vec<Link>, reason: Option<Link>) {
    let Some(reason) = reason else { return };
    let Some(at) = links.iter().position(|link| is_same(&link.who, &reason.who)) else {
        links.push(reason);
        return;
    };
    let next = links.get(at + 1).map(|next| next.who.clone());
    let link = &mut links[at];
    let waits_for_next = next
        .is_some_and(|next| link.waits_for.as_ref().is_some_and(|what| what.starts_with(&next)));
    link.fact = format!("{}; {}", link.fact, reason.fact);
    link.source = format!("{}, {}", link.source, reason.source);
    link.since = link.since.or(reason.since);
    if !waits_for_next {
        // Its supposed wait is not the cause.
        if links.len() > at + 1 {
            links[at].waits_for = None;
        }
        links.truncate(at + 1);
    }
}

/// Whether a link is about the process or object that a cause names: by pid, or by name if there is no pid.
fn is_same(link: &str, named: &str) -> bool {
    // The part after the comma says what that process waits for.
    let named = named.split(", which").next().unwrap_or(named);
    let name = named.strip_prefix("the ").unwrap_or(named);
    match pid_of(named) {
        Some(named) => pid_of(link) == Some(named),
        None => link
            .strip_prefix(name)
            .is_some_and(|rest| matches!(rest.chars().next(), None | Some(' '))),
    }
}

/// The pid in a process's name: `containerd (pid 7)`. The last one: a program can call itself `kubelet (pid 1)`.
fn pid_of(who: &str) -> Option<u32> {
    let (_, rest) = who.rsplit_once("pid ")?;
    rest.split(|at: char| !at.is_ascii_digit()).next()?.parse().ok()
}

/// Whether a cause lies inside kubelet.
pub(crate) fn is_of_kubelet(id: CauseId) -> bool {
    OF_KUBELET.contains(&id)
}

/// A link from a fact of a scan.
fn seen(who: String, must: &str, waits_for: Option<String>, fact: String, source: &str) -> Link {
    let (must, source) = (must.to_owned(), source.to_owned());
    Link { who, must, waits_for, since: None, fact, source }
}

/// Sets what the link waits for.
fn waits_for(link: Link, what: &str) -> Link {
    Link { waits_for: Some(what.to_owned()), ..link }
}

/// Overrides the stage: kubelet's current step may precede the state of the node.
fn at_stage(pod: &PodStage, stage: Stage) -> PodStage {
    PodStage { stage, ..pod.clone() }
}

/// Replaces the fact by the component's log message, if there is one.
fn logged(link: Link, said: Option<&Said>) -> Link {
    match said {
        Some(said) => Link { fact: quote(said), source: said.source.clone(), ..link },
        None => link,
    }
}

/// The API server's link, if the deletion is known.
fn of_record(pod: &PodStage, facts: &Facts<'_>) -> Option<Link> {
    let Terminating { since, by } = facts.terminating?;
    let finalizers = facts.record.map(|record| record.finalizers.join(", ")).unwrap_or_default();
    let is_done = pod.stage >= Stage::Gone && !finalizers.is_empty();
    let waits_for = match is_done {
        true => format!("the controllers of the finalizers {}", safe(finalizers.as_bytes())),
        false => "kubelet, which deletes the record when the pod has ended".to_owned(),
    };
    let fact = "the pod has been Terminating".to_owned();
    let link = seen("API server".into(), "remove the pod's record", Some(waits_for), fact, by);
    Some(Link { since: Some(*since), ..link })
}

/// kubelet's link at this stage, and whether kubelet can act.
fn of_kubelet(pod: &PodStage, facts: &Facts<'_>) -> (Link, bool) {
    const WHERE: &str = "kubelet's directory, mountinfo, control groups";
    let holding = holding(pod, facts.causes).map(|cause| cause.id);
    let must = match pod.stage {
        _ if holding == Some(ids::KUBELET_STEP_FAILS) => "continue the pod's deletion",
        _ if holding == Some(ids::POD_NEVER_STARTED) => "delete the pod's record",
        Stage::Containers => "stop the pod's containers",
        Stage::Volumes => "unmount the pod's volumes and remove their directories",
        Stage::Cgroup => "remove the pod's control groups",
        Stage::Directories => "remove the pod's directory and delete its record",
        Stage::Gone | Stage::Api => "delete the pod's record",
    };
    let sample = facts.sample;
    if let Some(it) = sample.halted_kubelets.first() {
        let who = format!("kubelet (pid {})", it.pid);
        return (seen(who, must, None, halted(&it.halted), "/proc"), false);
    }
    let who = match sample.kubelets[..] {
        [] => {
            let (its_start, fact) = ("its start".to_owned(), "no kubelet runs on this node".into());
            return (seen("kubelet".into(), must, Some(its_start), fact, "/proc"), false);
        }
        [pid] => format!("kubelet (pid {pid})"),
        _ => "kubelet (one of several)".into(),
    };
    let waits_for = match pod.stage {
        Stage::Containers if facts.watch.is_some() => {
            Some("its watch of pods at the API server to succeed".to_owned())
        }
        _ if holding.is_some_and(is_of_kubelet) => None,
        Stage::Containers if holding == Some(ids::POSTSTART_HOOK_PENDING) => {
            Some("the postStart hook of a container".to_owned())
        }
        Stage::Containers if facts.not_asked.is_some() || fails_itself(facts).is_some() => None,
        Stage::Containers => {
            let runtime = runtime(&pod.pod.uid, facts).map(|it| it.component.name());
            Some(runtime.unwrap_or("the container runtime").to_owned())
        }
        Stage::Volumes => sample.pod(&pod.pod.uid).and_then(left),
        _ => None,
    };
    if pod.stage > Stage::Containers && takes_for_running(pod, facts) {
        let must = "learn that the pod's containers have ended";
        return (seen(who, must, None, RUNNING.into(), "the pod's record, control groups"), true);
    }
    let link = seen(who, must, waits_for, pod.fact.clone(), WHERE);
    let of_log = match (facts.watch, &facts.not_asked) {
        (Some(watch), _) if pod.stage == Stage::Containers => {
            Link { fact: quote(watch), source: watch.source.clone(), ..link }
        }
        (_, Some(it)) if pod.stage == Stage::Containers => {
            let own = last_of(facts, &[Component::Kubelet]);
            let fails = own.filter(|said| said.level == Level::Error && said.times > 1);
            let fails = fails.map(|said| format!("; {}", quote(said))).unwrap_or_default();
            Link { fact: format!("{}{fails}", it.fact()), source: it.log.to_owned(), ..link }
        }
        _ => logged(link, last_of(facts, &[Component::Kubelet])),
    };
    (of_log, true)
}

/// Whether kubelet reports containers as running although no process of the pod is left, and says nothing else about it.
fn takes_for_running(pod: &PodStage, facts: &Facts<'_>) -> bool {
    let runs = |it: &ContainerRecord| it.state == ContainerState::Running;
    // kubelet reports an end within ten seconds.
    let is_recent = |record: &&PodRecord| {
        let since = record.read.zip(record.deletion).map(|(read, by)| read.duration_since(by));
        since.is_some_and(|since| since >= REPORTED)
    };
    let record = facts.record.filter(is_recent);
    let containers = record.and_then(|record| record.containers.as_ref());
    let is_ended = facts.sample.pod(&pod.pod.uid).is_some_and(|it| it.populated == Some(false));
    is_ended
        && containers.is_some_and(|all| all.iter().any(runs))
        && holding(pod, facts.causes).is_none()
        && last_of(facts, &[Component::Kubelet]).is_none_or(|said| said.volume.is_empty())
}

/// The call in which kubelet hangs, if that is the cause.
fn kubelets_call(cause: &Finding, kubelet: &str) -> Option<String> {
    let is_its = !is_of_kubelet(cause.id) && cause.held_by.as_deref() == Some(kubelet);
    is_its.then(|| format!("its call on {} to return", safe_path(&cause.call.path.0)))
}

/// A task that kubelet has started for the pod, such as an `umount`: what kubelet waits for, and the links from
/// there.
fn kubelets_task(facts: &Facts<'_>) -> Option<(Option<String>, Vec<Link>)> {
    let [kubelet] = facts.sample.kubelets[..] else { return None };
    let mut links = facts.waits.task(kubelet, "", facts.clock).links.into_iter();
    Some((links.next()?.waits_for, links.collect()))
}

/// A `stat` of a volume that fails on each attempt, so that its unmount is never attempted.
pub(crate) struct FailedLook<'a> {
    pub(crate) mount: &'a Mounted,
    errno: String,
    said: &'a Said,
}

/// The last failed `stat` in kubelet's log, if its volume is still mounted and is on no block device.
pub(crate) fn failed_look<'a>(state: &'a PodState, said: &'a [Said]) -> Option<FailedLook<'a>> {
    let looks = said.iter().filter_map(|said| Some((said, said.looked.as_ref()?)));
    let (last, look) = looks.max_by_key(|(said, _)| said.at)?;
    let of_volume = said.iter().filter(|said| said.volume == last.volume);
    let is_last = of_volume.map(|said| said.at).max() == Some(last.at);
    let mount = state.mount_of(&look.path)?;
    let is_served = mount.device.major == 0;
    let errno = look.outcome.name();
    (is_last && is_served && last.times > 1).then_some(FailedLook { mount, errno, said: last })
}

impl FailedLook<'_> {
    fn waited_for(&self) -> String {
        let Self { mount, errno, .. } = self;
        let point = safe_path(&mount.point);
        format!("stat(2) of {point} ({}) to succeed: it fails with {errno}", mount.what)
    }

    fn link(&self) -> Link {
        let must = format!("answer stat(2) of {}", safe_path(&self.mount.point));
        let fact = quote(self.said).replacen("it", self.said.component.name(), 1);
        seen(self.mount.what.clone(), &must, None, fact, &self.said.source)
    }
}

/// kubelet's link for a static pod whose mirror pod is deleted: kubelet has nothing to do.
fn of_static_pod(facts: &Facts<'_>) -> Link {
    let who = match facts.sample.kubelets[..] {
        [pid] => format!("kubelet (pid {pid})"),
        _ => "kubelet".to_owned(),
    };
    let its_manifest = Some("the pod's manifest to be removed".to_owned());
    let fact = "the record is the mirror pod of a static pod, which kubelet runs as long as its manifest exists";
    seen(
        who,
        "end the static pod",
        its_manifest,
        fact.into(),
        "the annotation kubernetes.io/config.mirror",
    )
}

/// The volume that holds kubelet: a mounted one before others.
fn first_left(state: &PodState) -> Option<&VolumeState> {
    let mut volumes = state.volumes.iter();
    volumes.clone().find(|volume| !volume.mounts.is_empty()).or_else(|| volumes.next())
}

/// What kubelet waits for at a pod's volumes: the driver that must unmount one, or the mount.
fn left(state: &PodState) -> Option<String> {
    let volume = first_left(state)?;
    let csi = volume.csi.as_ref().map(driver);
    csi.or_else(|| mount_of(volume))
        .or_else(|| Some(format!("{} to be removed", safe_path(&volume.path))))
}

fn mount_of(volume: &VolumeState) -> Option<String> {
    let mount = volume.mounts.first()?;
    Some(format!("{}, {}, to be unmounted", safe_path(&mount.point), mount.what))
}

/// The links of the runtime and of the processes that it has not ended.
fn of_containers(state: &PodState, facts: &Facts<'_>) -> Vec<Link> {
    // A command of the runtime for the sandbox: the shim is not called before it returns.
    if let Some(hung) = facts.waits.hung_command(facts.clock)
        && hung.by.part == Part::Daemon
    {
        return facts.waits.follow(hung.by.pid, "stop the pod's sandbox", facts.clock).links;
    }
    let group = facts.sample.cgroups.iter().find(|group| group.uid == state.uid);
    let is_outside = |task: &Task| group.is_some_and(|group| group.is_outside(task));
    // The sandbox's own process ends last, unless it is where the runtime's signal may not reach it.
    let is_sandboxs = |task: &Task| group.is_some_and(|group| group.is_sandboxs(task));
    let mut tasks: Vec<&Task> =
        group.iter().flat_map(|group| group.tasks.iter().chain(&group.outside)).collect();
    tasks.sort_by_key(|task| (is_sandboxs(task), is_outside(task), task.started, task.pid));
    let shim = group.and_then(|group| shim_of(group));
    // With a complaint, the sandbox's own process is not the reason: it ends when the runtime or kubelet continues.
    let is_left =
        !tasks.is_empty() && tasks.iter().all(|task| is_sandboxs(task) && task.is_alive());
    let complains = last_of(facts, &RUNTIMES).or_else(|| last_of(facts, &[Component::Kubelet]));
    if is_left && complains.is_some() && shim.is_none_or(|shim| !shim.is_halted()) {
        tasks.clear();
    }
    let mut links: Vec<Link> = of_runtime(&state.uid, &tasks, facts).into_iter().collect();
    let waits = facts.waits.shim(facts.clock).filter(|_| !shim.is_some_and(Shim::is_halted));
    if let Some(pid) = waits {
        links.extend(facts.waits.follow(pid, SHIM_MUST, facts.clock).links);
        return links;
    }
    // The shim has no part in the runtime's failure.
    if let Some(shim) = shim.filter(|_| !tasks.is_empty() || !is_left) {
        tasks.retain(|task| task.pid != shim.pid);
        links.push(of_shim(shim, tasks.len()));
        // The other processes end once the tracer releases that one.
        if let Some(tracer) = shim.unreaped.iter().find_map(of_tracer) {
            links.push(tracer);
            return links;
        }
    }
    let Some(first) = tasks.first() else { return links };
    let frozen = group.and_then(|group| group.frozen.as_deref()).filter(|_| !is_outside(first));
    let (waits_for, mut fact) = match frozen {
        Some(group) => (
            Some(format!("the control group {} to be thawed", safe_path(group))),
            "its control group is frozen".to_owned(),
        ),
        // The sandbox's own process ends last, when the runtime stops the sandbox.
        None if is_sandboxs(first) && first.is_alive() => {
            (Some("the runtime to stop the pod's sandbox".to_owned()), of_task(first).1)
        }
        None => of_task(first),
    };
    if is_outside(first) {
        fact.push_str(&format!(
            "; it is in the control group {}, outside the pod's",
            safe_path(&first.group)
        ));
    }
    if let Some(container) = facts.container_of(first) {
        fact = format!("of the container {}; {fact}", clip(&safe(container.as_bytes()), CONTAINER));
    }
    let name = |task: &Task| process(&task.comm, task.pid);
    let others: Vec<String> = tasks.iter().skip(1).take(NAMED).map(|task| name(task)).collect();
    if !others.is_empty() {
        let more = tasks.len() - 1 - others.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        fact.push_str(&format!("; also alive: {}{more}", others.join(", ")));
    }
    let source = format!("/proc/{}/task/{}/stat", first.pid, first.tid);
    links.push(seen(name(first), "end", waits_for, fact, &source));
    links
}

/// The shim of a pod: one that is halted or has unreaped children before others.
fn shim_of(group: &PodGroup) -> Option<&Shim> {
    let is_idle = |shim: &&Shim| shim.is_halted() || !shim.unreaped.is_empty();
    group.shims.iter().find(is_idle).or_else(|| group.shims.first())
}

fn of_shim(shim: &Shim, left: usize) -> Link {
    let Shim { pid, comm, state, .. } = shim;
    let who = format!("{} (pid {pid})", safe(comm.as_bytes()));
    let (waits_for, fact) = match (&shim.unreaped[..], &shim.wait_channel) {
        _ if shim.is_stopped() => (Some(GO_ON.to_owned()), "it is stopped".into()),
        (_, Some(channel)) => (Some(wait_channel::words(&[], channel)), format!("state {state}")),
        ([child, ..], _) => {
            let name = clip(&safe(child.comm.as_bytes()), COMM);
            let fact = format!(
                "{name} (pid {}) has ended, but its exit status is not collected",
                child.pid
            );
            let waits_for = child.traced_by.as_ref();
            (waits_for.map(|tracer| format!("{tracer}, which traces {name}, to detach")), fact)
        }
        ([], None) if left > 0 => {
            (Some("these processes to end".to_owned()), format!("it is alive: state {state}"))
        }
        ([], None) => (None, format!("it is alive: state {state}; no other process of the pod is")),
    };
    seen(who, SHIM_MUST, waits_for, fact, &format!("/proc/{pid}/stat"))
}

/// The link of a tracer that hides a process's exit from its parent.
fn of_tracer(child: &Unreaped) -> Option<Link> {
    let tracer = child.traced_by.clone()?;
    let name = process(&child.comm, child.pid);
    let must = format!("detach from {name}, or end");
    let fact = format!("it traces {name}, which has ended, and has not collected its exit status");
    Some(seen(tracer, &must, None, fact, &format!("/proc/{}/status", child.pid)))
}

/// What a process of a container waits for, and the fact that says so.
fn of_task(task: &Task) -> (Option<String>, String) {
    let term = task.term.map(|term| format!(", {}", term.words())).unwrap_or_default();
    let kill = if task.killed { "SIGKILL is pending" } else { "no SIGKILL is pending" };
    let fact = format!("state {}{term}, {kill}", task.state);
    let channel = task.wait_channel.as_deref();
    let waits_for = match task.state {
        'D' => Some(channel.map_or_else(
            || "something in the kernel: its wait channel is not visible".to_owned(),
            |channel| wait_channel::words(&[], channel),
        )),
        'T' | 't' => Some(GO_ON.to_owned()),
        'Z' | 'X' => Some(COLLECTED.to_owned()),
        _ if task.is_alive() => Some("SIGKILL, unless it exits by itself".into()),
        _ => None,
    };
    (waits_for, fact)
}

const RUNTIMES: [Component; 3] = [Component::Containerd, Component::Dockerd, Component::CriO];

/// The runtime that complains about the pod, or else dockerd if the pod's shims are its, or else the first one.
fn runtime<'a>(uid: &str, facts: &Facts<'a>) -> Option<&'a Runtime> {
    let of_pod = facts.sample.cgroups.iter().filter(|group| group.uid == uid);
    let is_dockers = || of_pod.flat_map(|group| &group.shims).any(Shim::is_dockers);
    let its = last_of(facts, &RUNTIMES).map(|said| said.component);
    let its = its.or_else(|| is_dockers().then_some(Component::Dockerd));
    let all = &facts.sample.runtimes;
    all.iter()
        .find(|it| Some(it.component) == its)
        .or_else(|| all.first().filter(|_| its.is_none()))
}

fn of_runtime(uid: &str, tasks: &[&Task], facts: &Facts<'_>) -> Option<Link> {
    const MUST: &str = "end the pod's processes";
    const SANDBOX: &str = "stop the pod's sandbox";
    let ended = facts.ended_container(uid).filter(|_| tasks.is_empty());
    let ended = ended.map(|it| clip(&safe(it.name.as_bytes()), CONTAINER));
    let must = match &ended {
        Some(name) => &format!("stop the container {name}"),
        None if tasks.is_empty() => SANDBOX,
        None => MUST,
    };
    let Some(runtime) = runtime(uid, facts) else {
        let who = facts.sample.gone.first()?.component.name().to_owned();
        let (its_start, fact) =
            ("its start".to_owned(), "it does not run, but its shims do".into());
        return Some(seen(who, must, Some(its_start), fact, "/proc"));
    };
    let who = format!("{} (pid {})", runtime.component.name(), runtime.pid);
    if let Some(why) = &runtime.halted {
        return Some(seen(who, must, None, halted(why), "/proc"));
    }
    let waits_for = match tasks.len() {
        0 => None,
        1 => Some("a process of the pod to end".to_owned()),
        count => Some(format!("{count} processes of the pod to end")),
    };
    let mut fact = "it runs, and no error that it logged about the pod is known".to_owned();
    if let Some(name) = ended {
        fact.push_str(&format!("; no process of the container {name} is left"));
    }
    Some(logged(seen(who, must, waits_for, fact, "/proc"), last_of(facts, &RUNTIMES)))
}

/// The links of the CSI driver of the volume that holds kubelet.
fn of_driver(state: &PodState, facts: &Facts<'_>) -> Vec<Link> {
    let parts = || {
        let volume = first_left(state)?;
        let csi = volume.csi.as_ref()?;
        Some((volume, csi, csi.driver.as_ref()?))
    };
    let Some((volume, csi, DriverState { process, socket, source, .. })) = parts() else {
        return Vec::new();
    };
    let must = format!("unmount {}", safe_path(&volume.path));
    let Some(process) = process else {
        let fact = format!("no process listens on its socket {}", safe_path(socket));
        return vec![seen(driver(csi), &must, Some("its start".into()), fact, source)];
    };
    let comm = clip(&safe(process.comm.as_bytes()), COMM);
    let who = format!("{} ({comm}, pid {})", driver(csi), process.pid);
    if let Some(why) = &process.halted {
        return vec![seen(who, &must, None, halted(why), "/proc")];
    }
    let mut waits = facts.waits.follow(process.pid, &must, facts.clock).links;
    if let Some(first) = waits.first_mut() {
        first.who = who;
        return waits;
    }
    let link = seen(who, &must, mount_of(volume), "it runs and listens".into(), source);
    vec![logged(link, last_of(facts, &[Component::CsiDriver]))]
}

fn driver(csi: &CsiState) -> String {
    let name = csi.data.driver().map(|name| format!(" {name}"));
    format!("CSI driver{}", name.unwrap_or_default())
}

/// The first finding that blocks the pod.
pub(crate) fn holding<'a>(pod: &PodStage, causes: &'a [Finding]) -> Option<&'a Finding> {
    causes.iter().find(|cause| {
        let is_of_pod = cause.pod.as_ref().is_none_or(|it| it.uid == pod.pod.uid);
        is_of_pod && cause.blocks_deletion == Some(true)
    })
}

/// The link of that finding.
fn of_cause(pod: &PodStage, causes: &[Finding]) -> Option<Link> {
    let cause = holding(pod, causes)?;
    let (who, must) = match &cause.held_by {
        Some(who) => (who.clone(), cause.must.map_or_else(|| release(who, cause), str::to_owned)),
        None => (safe_path(&cause.call.path.0).into_owned(), "be released".to_owned()),
    };
    let sure = cause.certainty.word();
    let fact = catalogue::title(cause.id).unwrap_or_default().to_owned();
    let waits_for = cause.waits_for.clone();
    let link = seen(who, &must, waits_for, fact, &format!("cause {}, {sure}", cause.id));
    Some(Link { since: Some(cause.first), ..link })
}

/// What the holder must do by default.
fn release(who: &str, cause: &Finding) -> String {
    let path = safe_path(&cause.call.path.0);
    match path.is_empty() || who.contains(&*path) {
        true => "release the pod".to_owned(),
        false => format!("release {path}"),
    }
}

/// An error that kubelet repeats about the pod, if no component has begun to end it.
fn fails_itself<'a>(facts: &Facts<'a>) -> Option<&'a Said> {
    let own = last_of(facts, &[Component::Kubelet]).filter(|_| !facts.has_acted)?;
    (own.level == Level::Error && own.times >= AGAIN).then_some(own)
}

/// The most significant complaint of these components.
fn last_of<'a>(facts: &Facts<'a>, components: &[Component]) -> Option<&'a Said> {
    weightiest(facts.said.iter().filter(|said| components.contains(&said.component)))
}

/// The most significant complaint: a repeated or recent one before a single old one, then an error before a warning,
/// then the latest.
pub(crate) fn weightiest<'a>(said: impl Iterator<Item = &'a Said> + Clone) -> Option<&'a Said> {
    let said = said.filter(|said| said.report.is_none());
    let last = said.clone().map(|said| said.at).max()?;
    let is_lasting = |said: &Said| {
        let ago = last.duration_since(said.at).unsigned_abs();
        said.times > 1 || ago <= backoff::CAP * 2
    };
    said.max_by_key(|said| (is_lasting(said), said.level, said.at))
}

/// A component's log message, as a fact.
pub(crate) fn quote(said: &Said) -> String {
    let times = if said.times > 1 { format!("{} times, ", said.times) } else { String::new() };
    format!("it logged, {times}last at {:.0}: {}", said.at, safe(said.text.as_bytes()))
}

fn halted(why: &Halted) -> String {
    match why {
        Halted::Stopped => "it is stopped, and does nothing until it receives SIGCONT".into(),
        Halted::Frozen { group } => format!("its control group {} is frozen", safe_path(group)),
        Halted::NoDescriptors { open, most, .. } => {
            format!("it has {open} file descriptors open, of at most {most}")
        }
        Halted::Waits { tid, state, channel } => {
            let channel = safe(channel.as_bytes());
            format!("its thread {tid} waits in the kernel function {channel} (state {state})")
        }
    }
}

#[cfg(test)]
#[path = "chain_tests.rs"]
pub(crate) mod tests;
