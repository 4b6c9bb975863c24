//! The chain of waits: from the API server over kubelet, the runtime or the driver to the last known link. It does
//! not depend on a recognised cause; a cause explains its last link.

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
        path::{clip, safe, safe_path},
        pod_group::{PodGroup, Task},
        pod_record::PodRecord,
        runtime::{Runtime, Shim, Unreaped},
        said::Said,
        time::Clock,
        waiting::Part,
    },
    wait_channel,
    waits::{COLLECTED, GO_ON, Waits},
};

/// Maximum number of a pod's processes that are named beside the first.
const NAMED: usize = 4;
/// Name of the sandbox's own process.
const PAUSE: &str = "pause";
/// What a shim must do.
const SHIM_MUST: &str = "end the pod's processes and report their end";
/// Maximum length of a process name.
const COMM: usize = 16;

/// The inputs of the chain.
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
    /// The failing watch of kubelet, if kubelet has not received the deletion.
    pub(crate) watch: Option<&'a Said>,
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
                    links.extend(of_runtime(&[], facts));
                }
                Stage::Containers if holding == Some(ids::POSTSTART_HOOK_PENDING) => {}
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
    let pid = |who: &str| {
        let (_, rest) = who.split_once("pid ")?;
        rest.split(|at: char| !at.is_ascii_digit()).next()?.parse::<u32>().ok()
    };
    // The part after the comma says what that process waits for.
    let named = named.split(", which").next().unwrap_or(named);
    let name = named.strip_prefix("the ").unwrap_or(named);
    match pid(named) {
        Some(named) => pid(link) == Some(named),
        None => link
            .strip_prefix(name)
            .is_some_and(|rest| matches!(rest.chars().next(), None | Some(' '))),
    }
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
        Stage::Containers if facts.not_asked.is_some() => None,
        Stage::Containers => {
            let runtime = runtime(facts).map(|it| it.component.name());
            Some(runtime.unwrap_or("the container runtime").to_owned())
        }
        Stage::Volumes => sample.pod(&pod.pod.uid).and_then(left),
        _ => None,
    };
    let link = seen(who, must, waits_for, pod.fact.clone(), WHERE);
    let of_log = match (facts.watch, &facts.not_asked) {
        (Some(watch), _) if pod.stage == Stage::Containers => {
            Link { fact: quote(watch), source: watch.source.clone(), ..link }
        }
        (_, Some(it)) if pod.stage == Stage::Containers => {
            Link { fact: it.fact(), source: it.log.to_owned(), ..link }
        }
        _ => logged(link, last_of(facts, &[Component::Kubelet])),
    };
    (of_log, true)
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
    mount: &'a Mounted,
    errno: String,
    said: &'a Said,
}

/// The last failed `stat` in kubelet's log, if its volume is still mounted and is on no block device.
pub(crate) fn failed_look<'a>(state: &'a PodState, said: &'a [Said]) -> Option<FailedLook<'a>> {
    let looks = said.iter().filter_map(|said| Some((said, said.looked.as_ref()?)));
    let (last, look) = looks.max_by_key(|(said, _)| said.at)?;
    let of_volume = said.iter().filter(|said| said.volume == last.volume);
    let is_last = of_volume.map(|said| said.at).max() == Some(last.at);
    let mounts = state.volumes.iter().flat_map(|volume| &volume.mounts);
    let on = mounts.filter(|mount| look.path.starts_with(&mount.point));
    let mount = on.max_by_key(|mount| mount.point.as_os_str().len())?;
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

    /// The action that lets kubelet continue.
    pub(crate) fn way_out(&self) -> String {
        let Self { mount, errno, .. } = self;
        let point = safe_path(&mount.point);
        format!(
            "restore the server of {}, mounted at {point}, which no component unmounts because each stat(2) of it fails \
             with {errno}; or unmount {point} by hand (`umount`, or `umount -l` if that does not return): kubelet then \
             finds nothing mounted there, and continues. Data not yet written to the server is lost",
            mount.what
        )
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
    let mut tasks: Vec<&Task> = group.iter().flat_map(|group| &group.tasks).collect();
    // The sandbox's own process ends last.
    tasks.sort_by_key(|task| (task.comm == PAUSE, task.started, task.pid));
    let shim = group.and_then(|group| shim_of(group));
    // With a complaint, the sandbox's own process is not the reason: it ends when the runtime or kubelet continues.
    let is_left =
        !tasks.is_empty() && tasks.iter().all(|task| task.comm == PAUSE && task.is_alive());
    let complains = last_of(facts, &RUNTIMES).or_else(|| last_of(facts, &[Component::Kubelet]));
    if is_left && complains.is_some() && shim.is_none_or(|shim| !shim.is_halted()) {
        tasks.clear();
    }
    let mut links: Vec<Link> = of_runtime(&tasks, facts).into_iter().collect();
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
    let frozen = group.and_then(|group| group.frozen.as_deref());
    let (waits_for, mut fact) = match frozen {
        Some(group) => (
            Some(format!("the control group {} to be thawed", safe_path(group))),
            "its control group is frozen".to_owned(),
        ),
        // The sandbox's own process ends last, when the runtime stops the sandbox.
        None if first.comm == PAUSE && first.is_alive() => {
            (Some("the runtime to stop the pod's sandbox".to_owned()), of_task(first).1)
        }
        None => of_task(first),
    };
    let name =
        |task: &Task| format!("{} (pid {})", clip(&safe(task.comm.as_bytes()), COMM), task.pid);
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
    let name = format!("{} (pid {})", clip(&safe(child.comm.as_bytes()), COMM), child.pid);
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

/// The runtime that complains about the pod, or else the first one.
fn runtime<'a>(facts: &Facts<'a>) -> Option<&'a Runtime> {
    let said = last_of(facts, &RUNTIMES);
    let is_its = |it: &&Runtime| said.is_none_or(|said| said.component == it.component);
    facts.sample.runtimes.iter().find(is_its)
}

fn of_runtime(tasks: &[&Task], facts: &Facts<'_>) -> Option<Link> {
    const MUST: &str = "end the pod's processes";
    const SANDBOX: &str = "stop the pod's sandbox";
    let must = if tasks.is_empty() { SANDBOX } else { MUST };
    let Some(runtime) = runtime(facts) else {
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
    let fact = "it runs, and no error that it logged about the pod is known".to_owned();
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
fn holding<'a>(pod: &PodStage, causes: &'a [Finding]) -> Option<&'a Finding> {
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
mod tests {
    use std::sync::{Arc, LazyLock};

    use jiff::Timestamp;
    use nix::errno::Errno;

    use super::*;
    use crate::{
        ledger::Ledger,
        model::{
            call::Outcome,
            client::Request,
            halted::HaltedKubelet,
            identity::{Pod, Target},
            mounts::Device,
            pod_group::Term,
            said::{Level, NamedLook},
            time::Monotonic,
            waiting::{On, Waiting},
        },
        testing::{self, pod_group, pod_record, pod_state, runtime, task},
        tracker::TrackerId,
        verdict::{Draft, Verdict},
    };

    const CLOCK: Clock = Clock::new(Timestamp::UNIX_EPOCH, Monotonic(0));
    static NO_WAITS: LazyLock<Waits> = LazyLock::new(Waits::default);
    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    fn at(stage: Stage) -> PodStage {
        let pod = Pod { uid: UID.into(), namespace: None, name: None };
        PodStage { pod, stage, fact: "as seen".into(), chain: Vec::new() }
    }

    fn node() -> NodeSample {
        let pods = vec![pod_state(UID)];
        NodeSample { kubelets: vec![1], pods, ..NodeSample::default() }
    }

    fn said(component: Component, text: &str) -> Said {
        Said::new(component, "log", UID, Timestamp::from_second(9).unwrap(), text)
    }

    /// Facts that consist of a scan only.
    fn facts(sample: &NodeSample) -> Facts<'_> {
        Facts {
            sample,
            said: &[],
            terminating: None,
            record: None,
            causes: &[],
            waits: &NO_WAITS,
            clock: &CLOCK,
            not_asked: None,
            watch: None,
        }
    }

    /// Who must do what, and what each waits for.
    fn who_waits(
        stage: Stage,
        sample: &NodeSample,
        said: &[Said],
    ) -> Vec<(String, Option<String>)> {
        let facts = Facts { said, ..facts(sample) };
        let links = chain(&at(stage), &facts);
        links.into_iter().map(|link| (link.who, link.waits_for)).collect()
    }

    #[test]
    fn of_containers_that_live_their_process_is_the_last_link() {
        let mut web = task("web", 7);
        web.term = Some(Term::Ignored);
        let tasks = vec![task("pause", 5), web, task("sh", 9)];
        let cgroups = vec![PodGroup { tasks, ..pod_group(UID) }];
        let runtimes: Vec<Runtime> = vec![runtime(Component::Containerd)];
        let sample = NodeSample { cgroups, runtimes, ..node() };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            who_waits(Stage::Containers, &sample, &[]),
            [
                ("kubelet (pid 1)".into(), some("containerd")),
                ("containerd (pid 40)".into(), some("3 processes of the pod to end")),
                ("web (pid 7)".into(), some("SIGKILL, unless it exits by itself")),
            ]
        );
        let facts = facts(&sample);
        let links = chain(&at(Stage::Containers), &facts);
        let fact = "state S, ignores SIGTERM, no SIGKILL is pending; also alive: sh (pid 9), pause (pid 5)";
        assert_eq!(links[2].fact, fact);
    }

    #[test]
    fn a_shim_stands_between_its_runtime_and_its_processes() {
        let child = Unreaped { pid: 8, started: 20, comm: "api".into(), traced_by: None };
        let shim = |unreaped| Shim {
            pid: 6,
            comm: "containerd-shim-runc-v2".into(),
            state: 'S',
            started: 2,
            group: None,
            wait_channel: None,
            of: None,
            container: None,
            unreaped,
        };
        let chain_with = |unreaped| {
            let (tasks, shims) =
                (vec![task("containerd-shim", 6), task("pause", 5)], vec![shim(unreaped)]);
            let cgroups = vec![PodGroup { tasks, shims, ..pod_group(UID) }];
            let sample = NodeSample { cgroups, ..node() };
            who_waits(Stage::Containers, &sample, &[])
        };
        let who = || "containerd-shim-runc-v2 (pid 6)".to_owned();
        let works = chain_with(Vec::new());
        assert_eq!(works[1], (who(), Some("these processes to end".into())));
        let stop = Some("the runtime to stop the pod's sandbox".to_owned());
        assert_eq!(works[2], ("pause (pid 5)".into(), stop));
        assert_eq!(chain_with(vec![child.clone()])[1], (who(), None));
        let traced = Unreaped { traced_by: Some("strace (pid 9)".into()), ..child };
        let tracer = Some("strace (pid 9), which traces api, to detach".to_owned());
        let chain = chain_with(vec![traced]);
        assert_eq!(chain[1..], [(who(), tracer), ("strace (pid 9)".into(), None)]);
    }

    /// cri-o#595 and containerd/cri#732.
    #[test]
    fn a_sandboxs_own_process_is_no_link_where_the_runtime_says_what_it_fails_at() {
        let group = |tasks| vec![PodGroup { tasks, ..pod_group(UID) }];
        let sample = |tasks| NodeSample {
            cgroups: group(tasks),
            runtimes: vec![runtime(Component::CriO)],
            ..node()
        };
        let complains =
            [said(Component::CriO, "failed to destroy network: cni config uninitialized")];
        let last = |tasks, said: &[Said]| {
            who_waits(Stage::Containers, &sample(tasks), said).pop().unwrap()
        };
        assert_eq!(last(vec![task(PAUSE, 5)], &complains), ("cri-o (pid 40)".into(), None));
        assert_eq!(last(vec![task(PAUSE, 5)], &[]).0, "pause (pid 5)");
        assert_eq!(last(vec![task(PAUSE, 5), task("web", 7)], &complains).0, "web (pid 7)");
    }

    #[test]
    fn a_shim_that_waits_comes_before_volumes_and_leads_to_the_last() {
        let answer = On::Socket {
            number: 5,
            path: Some("/run/dbus/system_bus_socket".into()),
            peer: Some(4),
            request: Request::Read,
            unread: 0,
        };
        let child = On::Child { pid: 8, is_waited_for: false };
        let found = vec![
            waiting(6, "containerd-shim-runc-v2", Part::Shim, vec![child]),
            waiting(8, "runc delete", Part::Task, vec![answer]),
            waiting(4, "dbus-daemon", Part::Other, vec![]),
        ];
        let mut waits = Waits::default();
        for second in [10, 14] {
            waits.answered(&Ok(found.clone()), Monotonic(second * 1_000_000_000));
        }
        let sample = NodeSample { runtimes: vec![runtime(Component::Containerd)], ..node() };
        let facts = Facts { waits: &waits, ..facts(&sample) };
        let links = chain(&at(Stage::Volumes), &facts);
        let who: Vec<&str> = links.iter().map(|link| link.who.as_str()).collect();
        let expected = [
            "kubelet (pid 1)",
            "containerd (pid 40)",
            "containerd-shim-runc-v2 (pid 6)",
            "runc delete (pid 8)",
            "dbus-daemon (pid 4)",
        ];
        assert_eq!(who, expected);
        assert_eq!(links[0].must, "stop the pod's containers");
        let answer = "dbus-daemon (pid 4) to answer at /run/dbus/system_bus_socket";
        assert_eq!(links[3].waits_for.as_deref(), Some(answer));
    }

    fn waiting(pid: u32, command: &str, part: Part, on: Vec<On>) -> Waiting {
        let (command, channel) = (command.to_owned(), None);
        Waiting { pid, started: 100, command, state: 'S', channel, part, on }
    }

    /// rook#6327: kubelet unmounts NFS by itself.
    #[test]
    fn what_kubelet_has_started_stands_behind_it() {
        let child = On::Child { pid: 8, is_waited_for: true };
        let found = vec![
            waiting(1, "kubelet", Part::Daemon, vec![child]),
            Waiting { state: 'D', ..waiting(8, "umount", Part::Task, vec![]) },
        ];
        let mut waits = Waits::default();
        for second in [10, 14] {
            waits.answered(&Ok(found.clone()), Monotonic(second * 1_000_000_000));
        }
        let sample = node();
        let links = chain(&at(Stage::Volumes), &Facts { waits: &waits, ..facts(&sample) });
        let who: Vec<&str> = links.iter().map(|link| link.who.as_str()).collect();
        assert_eq!(who, ["kubelet (pid 1)", "umount (pid 8)"]);
        assert_eq!(links[0].waits_for.as_deref(), Some("umount (pid 8) to end"));
        assert_eq!(links[0].must, "unmount the pod's volumes and remove their directories");
    }

    #[test]
    fn a_cause_is_said_at_the_link_of_whom_it_names() {
        let link = |who: &str, waits_for: Option<&str>| {
            seen(who.into(), "act", waits_for.map(str::to_owned), "as seen".into(), "/proc")
        };
        let ended = |links: &[Link], named: &str| {
            let mut links = links.to_vec();
            end_with(&mut links, Some(seen(named.into(), "let go", None, "why".into(), "cause x")));
            links.iter().map(|link| format!("{}: {}", link.who, link.fact)).collect::<Vec<_>>()
        };
        let umount = link("umount (pid 9)", None);
        let csi = link("CSI driver a.b (plugin, pid 7)", Some("umount (pid 9) to end"));
        let all = [csi, umount];
        let said = "CSI driver a.b (plugin, pid 7): as seen; why";
        assert_eq!(ended(&all, "the CSI driver a.b"), [said, "umount (pid 9): as seen"]);
        let waits = "the CSI driver a.b, which waits for umount (pid 9)";
        assert_eq!(ended(&all, waits), ended(&all, "the CSI driver a.b"));
        assert_eq!(ended(&all, "umount (pid 9)")[1], "umount (pid 9): as seen; why");
        assert_eq!(ended(&all, "the CSI driver a").len(), 3, "it is another one");
        assert_eq!(ended(&all, "backup (pid 77)")[2], "backup (pid 77): why");
        // A shim that is stopped does not wait for the pod's processes.
        let shim = [link("shim (pid 6)", Some("a SIGCONT")), link("pause (pid 5)", None)];
        assert_eq!(ended(&shim, "shim (pid 6)"), ["shim (pid 6): as seen; why"]);
    }

    #[test]
    fn who_cannot_act_is_the_last_link() {
        let stopped = HaltedKubelet { pid: 1, started: None, halted: Halted::Stopped };
        let sample = NodeSample { halted_kubelets: vec![stopped], ..node() };
        let facts = facts(&sample);
        let links = chain(&at(Stage::Volumes), &facts);
        assert!(links[0].fact.contains("SIGCONT"), "{links:?}");
        let none = NodeSample { kubelets: Vec::new(), ..node() };
        let its_start = Some("its start".to_owned());
        assert_eq!(who_waits(Stage::Volumes, &none, &[]), [("kubelet".into(), its_start)]);
    }

    #[test]
    fn the_last_complaint_is_quoted_and_a_report_is_none() {
        let sample = node();
        let kubelet = said(Component::Kubelet, "orphaned pod found, but failed to rmdir()");
        let report = Some(crate::model::said::Report::ContainerEnded);
        let ended = Said { report, ..said(Component::Kubelet, "ContainerDied") };
        let all = [Said { times: 3, ..kubelet }, ended];
        let facts = Facts { said: &all, ..facts(&sample) };
        let links = chain(&at(Stage::Directories), &facts);
        assert_eq!(
            links[0].fact,
            "it logged, 3 times, last at 1970-01-01T00:00:09Z: orphaned pod found, but failed to rmdir()"
        );
        assert_eq!(links[0].source, "log");
    }

    #[test]
    fn an_error_says_more_than_a_warning_and_what_lasts_more_than_what_was_said_once() {
        let at = |level, times, second| {
            let at = Timestamp::from_second(second).unwrap();
            let text = format!("at {second}");
            Said { level, times, ..Said::new(Component::Kubelet, "log", UID, at, &text) }
        };
        let first = |all: &[Said]| weightiest(all.iter()).unwrap().text.clone();
        let warning = at(Level::Warning, 2, 1020);
        assert_eq!(first(&[at(Level::Error, 2, 1000), warning.clone()]), "at 1000");
        assert_eq!(first(&[at(Level::Error, 1, 1000), warning.clone()]), "at 1000");
        assert_eq!(first(&[at(Level::Error, 1, 700), warning.clone()]), "at 1020");
        assert_eq!(first(&[at(Level::Error, 2, 700), warning]), "at 700");
        assert_eq!(first(&[at(Level::Info, 9, 1000), at(Level::Info, 1, 1001)]), "at 1001");
    }

    #[test]
    fn a_runtime_that_was_not_asked_is_no_link() {
        let cgroups = vec![PodGroup { tasks: vec![task("web", 7)], ..pod_group(UID) }];
        let runtimes: Vec<Runtime> = vec![runtime(Component::Containerd)];
        let sample = NodeSample { cgroups, runtimes, ..node() };
        let since = Timestamp::from_second(1).unwrap();
        let not_asked = NotAsked {
            since,
            received: Some(since),
            is_unheard: false,
            names_steps: true,
            log: "log",
        };
        let no_watch = Facts { not_asked: Some(not_asked), ..facts(&sample) };
        let links = chain(&at(Stage::Containers), &no_watch);
        assert_eq!((links.len(), links[0].waits_for.as_deref()), (1, None), "{links:?}");
        assert!(links[0].fact.contains("no `Killing container` since"), "{links:?}");
        let watch = Said { times: 7, ..said(Component::Kubelet, "Unauthorized") };
        let links = chain(&at(Stage::Containers), &Facts { watch: Some(&watch), ..no_watch });
        assert_eq!(links.len(), 1);
        assert!(links[0].waits_for.as_deref().unwrap().starts_with("its watch"), "{links:?}");
        assert!(links[0].fact.ends_with("Unauthorized"), "{links:?}");
    }

    /// azurefile-csi-driver#662, and any other file system that a server has.
    #[test]
    fn a_stat_that_fails_each_time_is_what_kubelet_waits_for() {
        let point = std::path::Path::new("/k/pods/u/volumes/kubernetes.io~csi/pv/mount");
        let failing = |major: u32, times: u64, later: Option<i64>| {
            let device = Device { major, minor: 40 };
            let what = "//a/share of type fuse.smb".to_owned();
            let mount = Mounted { device, what, ..testing::mounted(point, 12) };
            let volume = VolumeState {
                target_id: 1,
                target: Target::unknown().into(),
                path: point.parent().unwrap().into(),
                file: None,
                csi: None,
                mounts: vec![mount],
            };
            let pods = vec![PodState { volumes: vec![volume], ..pod_state(UID) }];
            let sample = NodeSample { pods, ..node() };
            let outcome = Outcome(Errno::EHOSTDOWN as u16);
            let looked = Some(NamedLook { path: point.into(), outcome });
            let of = |second| Said {
                at: Timestamp::from_second(second).unwrap(),
                volume: "kubernetes.io/csi/d^h".into(),
                ..said(Component::Kubelet, "stat: host is down")
            };
            let mut said = vec![Said { looked, times, ..of(5) }];
            said.extend(later.map(of));
            let links = chain(&at(Stage::Volumes), &Facts { said: &said, ..facts(&sample) });
            let way_out = failed_look(&sample.pods[0], &said).map(|it| it.way_out());
            (links, way_out)
        };
        let (links, way_out) = failing(0, 2, None);
        let [kubelet, server] = &links[..] else { panic!("{links:?}") };
        assert!(kubelet.waits_for.as_ref().unwrap().ends_with("fails with EHOSTDOWN"), "{links:?}");
        assert!(server.who.starts_with("//a/share"), "{links:?}");
        assert!(server.fact.starts_with("kubelet logged, 2 times"), "{links:?}");
        assert!(way_out.unwrap().contains("unmount /k/pods/u/volumes/"));
        assert!(failing(8, 2, None).1.is_none(), "a device of the node has it");
        assert!(failing(0, 1, None).1.is_none(), "once is a moment");
        assert!(failing(0, 2, Some(9)).1.is_none(), "kubelet has met something else since");
    }

    /// kubernetes#90593.
    #[test]
    fn a_kubelet_that_waits_in_a_call_asks_no_runtime() {
        let cgroups = vec![PodGroup { tasks: vec![task("web", 7)], ..pod_group(UID) }];
        let runtimes: Vec<Runtime> = vec![runtime(Component::Containerd)];
        let sample = NodeSample { cgroups, runtimes, kubelets: vec![42], ..node() };
        let pod = Some(Pod { uid: UID.into(), namespace: None, name: None });
        let target = Arc::new(Target { pod, ..Target::unknown() });
        let cause = catalogue::all().find(|it| it.id == ids::FUSE_DAEMON_HUNG).unwrap();
        let (tracker, path) = (TrackerId::HungCall, "/k/pods/b/volumes/x~y/z".into());
        let mut draft = Draft::about_state(tracker, cause, 1, target, path, Monotonic(0));
        draft.blocks_deletion = Some(true);
        let held_by = |who: &str| {
            let mut draft = draft.clone();
            draft.held_by(who);
            let causes = Ledger::new(CLOCK).admit(Verdict::Found(Box::new(draft)));
            chain(&at(Stage::Containers), &Facts { causes: &causes, ..facts(&sample) })
        };
        let links = held_by("kubelet (pid 42)");
        assert_eq!(links.len(), 1, "{links:?}");
        let waits = "its call on /k/pods/b/volumes/x~y/z to return";
        assert_eq!(links[0].waits_for.as_deref(), Some(waits));
        assert!(held_by("backup (pid 43)").len() > 2);
    }

    #[test]
    fn a_cause_of_another_pod_cuts_no_chain() {
        let cgroups = vec![PodGroup { tasks: vec![task("web", 7)], ..pod_group(UID) }];
        let runtimes: Vec<Runtime> = vec![runtime(Component::Containerd)];
        let sample = NodeSample { cgroups, runtimes, ..node() };
        let rejected = |uid: &str| {
            let pod = Some(Pod { uid: uid.into(), namespace: None, name: None });
            let target = Arc::new(Target { pod, ..Target::unknown() });
            let cause = catalogue::all().find(|it| it.id == ids::POD_NEVER_STARTED).unwrap();
            let (tracker, path) = (TrackerId::KubeletsPart, "/k/pods/x".into());
            let mut draft = Draft::about_state(tracker, cause, 1, target, path, Monotonic(0));
            draft.blocks_deletion = Some(true);
            Ledger::new(CLOCK).admit(Verdict::Found(Box::new(draft)))
        };
        let (own, others) = (rejected(UID), rejected("another"));
        let links = chain(&at(Stage::Containers), &Facts { causes: &own, ..facts(&sample) });
        assert_eq!((links.len(), links[0].must.as_str()), (1, "delete the pod's record"));
        let links = chain(&at(Stage::Containers), &Facts { causes: &others, ..facts(&sample) });
        assert_eq!((links.len(), links[0].must.as_str()), (3, "stop the pod's containers"));
    }

    #[test]
    fn a_record_that_finalizers_keep_is_not_kubelets_to_delete() {
        let (sample, by) = (NodeSample::default(), "its record".to_owned());
        let record = PodRecord { finalizers: vec!["a/b".into()], ..pod_record(UID) };
        let terminating = Terminating { since: Timestamp::from_second(1).unwrap(), by };
        let (terminating, record) = (Some(&terminating), Some(&record));
        let facts = Facts { terminating, record, ..facts(&sample) };
        let links = chain(&at(Stage::Api), &facts);
        assert_eq!(links.len(), 1, "{links:?}");
        assert_eq!(links[0].waits_for.as_deref(), Some("the controllers of the finalizers a/b"));
    }
}
