//! The chain of who waits for whom: from the API server over kubelet, the runtime or the driver to the last one that is
//! known. It needs no cause to be recognised; a cause explains its last link.

use crate::model::{
    chain::Link,
    csi::{CsiState, DriverState},
    diagnosis::{PodStage, Stage, Terminating},
    finding::Finding,
    halted::Halted,
    identity::Component,
    node::{NodeSample, PodState},
    path::{clip, safe, safe_path},
    pod_group::Task,
    pod_record::PodRecord,
    said::Said,
};

/// Processes of a pod that are named beside the first.
const NAMED: usize = 4;
/// Longest name of a process.
const COMM: usize = 16;

/// What the chain is made of.
pub(crate) struct Facts<'a> {
    /// The last look at the node.
    pub(crate) sample: &'a NodeSample,
    /// What components have logged of the pod, the latest last.
    pub(crate) said: &'a [Said],
    /// Since when the pod is to be deleted, where that is known.
    pub(crate) terminating: Option<&'a Terminating>,
    /// The pod's record, where it was read.
    pub(crate) record: Option<&'a PodRecord>,
    /// What is found to hold the pod, the most likely first.
    pub(crate) causes: &'a [Finding],
}

/// The links of a pod's deletion, the API server's first.
pub(crate) fn chain(pod: &PodStage, facts: &Facts<'_>) -> Vec<Link> {
    let mut links: Vec<Link> = of_record(pod, facts).into_iter().collect();
    let is_kubelets =
        pod.stage != Stage::Api || facts.record.is_none_or(|it| it.finalizers.is_empty());
    if is_kubelets {
        links.push(of_kubelet(pod, facts));
    }
    let can_act = links.last().is_none_or(|link| link.who.contains("(pid"));
    if can_act && let Some(state) = facts.sample.pod(&pod.pod.uid) {
        match pod.stage {
            Stage::Containers => links.extend(of_containers(state, facts)),
            Stage::Volumes => links.extend(of_driver(state, facts)),
            _ => {}
        }
    }
    links.extend(of_cause(pod, facts.causes));
    links
}

/// The API server, where it is known that the pod is to be deleted.
fn of_record(pod: &PodStage, facts: &Facts<'_>) -> Option<Link> {
    let Terminating { since, by } = facts.terminating?;
    let finalizers = facts.record.map(|record| record.finalizers.join(", ")).unwrap_or_default();
    let is_done = pod.stage >= Stage::Gone && !finalizers.is_empty();
    let waits_for = match is_done {
        true => format!("the controllers of the finalizers {}", safe(finalizers.as_bytes())),
        false => "kubelet, which deletes the record when the pod has ended".to_owned(),
    };
    Some(Link {
        who: "API server".into(),
        must: "remove the pod's record".into(),
        waits_for: Some(waits_for),
        since: Some(*since),
        fact: "the pod's deletion was requested".into(),
        source: by.clone(),
    })
}

/// kubelet, and what it must do at this stage.
fn of_kubelet(pod: &PodStage, facts: &Facts<'_>) -> Link {
    let must = match pod.stage {
        Stage::Containers => "stop the pod's containers",
        Stage::Volumes => "unmount the pod's volumes and remove their directories",
        Stage::Cgroup => "remove the pod's control groups",
        Stage::Directories => "remove the pod's directory and delete its record",
        Stage::Gone | Stage::Api => "delete the pod's record",
    };
    let sample = facts.sample;
    let link = |who: String, waits_for: Option<String>, fact: String, source: &str| Link {
        who,
        must: must.into(),
        waits_for,
        since: None,
        fact,
        source: source.into(),
    };
    if let Some(it) = sample.halted_kubelets.first() {
        let why = halted(&it.halted);
        return link(format!("kubelet (pid {})", it.pid), None, why, "/proc");
    }
    let who = match sample.kubelets[..] {
        [] => {
            let fact = "no kubelet runs on this node".to_owned();
            return link("kubelet".into(), Some("its start".into()), fact, "/proc");
        }
        [pid] => format!("kubelet (pid {pid})"),
        _ => "kubelet (pid not known: several run)".into(),
    };
    let state = sample.pod(&pod.pod.uid);
    let waits_for = match pod.stage {
        Stage::Containers => Some(runtime_name(facts).map_or("the runtime".into(), str::to_owned)),
        Stage::Volumes => state.and_then(left),
        _ => None,
    };
    match last_of(facts, &[Component::Kubelet]) {
        Some(said) => {
            Link { since: Some(said.at), ..link(who, waits_for, quote(said), &said.source) }
        }
        None => {
            link(who, waits_for, pod.fact.clone(), "kubelet's directory, mountinfo, control groups")
        }
    }
}

/// What is left of a pod's volumes: the driver that must unmount it, or the mount.
fn left(state: &PodState) -> Option<String> {
    let mounted = state.volumes.iter().find(|volume| !volume.mounts.is_empty());
    let volume = mounted.or_else(|| state.volumes.first())?;
    if let Some(csi) = &volume.csi {
        return Some(driver(csi));
    }
    Some(match volume.mounts.first() {
        Some(mount) => format!("{}, {}, to be unmounted", safe_path(&mount.point), mount.what),
        None => format!("{} to be removed", safe_path(&volume.path)),
    })
}

/// The runtime, and the processes that it has not ended.
fn of_containers(state: &PodState, facts: &Facts<'_>) -> Vec<Link> {
    let group = facts.sample.cgroups.iter().find(|group| group.uid == state.uid);
    let mut tasks: Vec<&Task> = group.iter().flat_map(|group| &group.tasks).collect();
    // The sandbox's own process ends after all others.
    tasks.sort_by_key(|task| (task.comm == "pause", task.started, task.pid));
    let mut links: Vec<Link> = of_runtime(&tasks, facts).into_iter().collect();
    let frozen = group.and_then(|group| group.frozen.as_deref());
    let Some(first) = tasks.first() else { return links };
    let (waits_for, mut fact) = match frozen {
        Some(group) => (
            Some(format!("the control group {} to be thawed", safe_path(group))),
            "its control group is frozen".to_owned(),
        ),
        None => of_task(first),
    };
    let name =
        |task: &Task| format!("{} (pid {})", clip(&safe(task.comm.as_bytes()), COMM), task.pid);
    let others: Vec<String> = tasks.iter().skip(1).take(NAMED).map(|task| name(task)).collect();
    if !others.is_empty() {
        let more = tasks.len() - 1 - others.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        fact.push_str(&format!("; beside it live {}{more}", others.join(", ")));
    }
    let source = format!("/proc/{}/task/{}/stat", first.pid, first.tid);
    let (who, must) = (name(first), "end".into());
    links.push(Link { who, must, waits_for, since: None, fact, source });
    links
}

/// What a process of a container waits for, and the fact that says so.
fn of_task(task: &Task) -> (Option<String>, String) {
    let term = task.term.map(|term| format!(", {}", term.words())).unwrap_or_default();
    let kill = if task.killed { "SIGKILL is pending" } else { "no SIGKILL is pending" };
    let fact = format!("state {}{term}, {kill}", task.state);
    let channel = task.wait_channel.as_deref().map(|name| safe(name.as_bytes()).into_owned());
    let waits_for = match task.state {
        'D' => Some(channel.map_or_else(
            || "something in the kernel: its wait channel is not visible".to_owned(),
            |channel| format!("the kernel function {channel} to return"),
        )),
        'T' | 't' => Some("a SIGCONT or its debugger".into()),
        'Z' | 'X' => Some("its parent to collect its exit status".into()),
        _ if task.is_alive() => Some("a SIGKILL, or its own end".into()),
        _ => None,
    };
    (waits_for, fact)
}

fn of_runtime(tasks: &[&Task], facts: &Facts<'_>) -> Option<Link> {
    const RUNTIMES: [Component; 3] = [Component::Containerd, Component::Dockerd, Component::CriO];
    let said = last_of(facts, &RUNTIMES);
    let sample = facts.sample;
    let is_of = |component| said.is_none_or(|said| said.component == component);
    let waits_for = match tasks.len() {
        0 => None,
        1 => Some("a process of the pod to end".to_owned()),
        count => Some(format!("{count} processes of the pod to end")),
    };
    let link = |who, waits_for, fact, source: &str| {
        Some(Link {
            who,
            must: "stop them".into(),
            waits_for,
            since: None,
            fact,
            source: source.into(),
        })
    };
    if let Some(it) = sample.runtimes.iter().find(|it| is_of(it.component)) {
        let who = format!("{} (pid {})", it.component.name(), it.pid);
        if let Some(why) = &it.halted {
            return link(who, None, halted(why), "/proc");
        }
        return match said {
            Some(said) => Some(Link {
                since: Some(said.at),
                ..link(who, waits_for, quote(said), &said.source)?
            }),
            None => link(
                who,
                waits_for,
                "it runs, and its log complains of nothing here".into(),
                "/proc",
            ),
        };
    }
    let gone = sample.gone.first()?;
    let fact = "it does not run, and its shims do".to_owned();
    link(gone.component.name().into(), Some("its start".into()), fact, "/proc")
}

fn runtime_name(facts: &Facts<'_>) -> Option<&'static str> {
    facts.sample.runtimes.first().map(|it| it.component.name())
}

/// The CSI driver of the first volume that is left.
fn of_driver(state: &PodState, facts: &Facts<'_>) -> Option<Link> {
    let volume = state.volumes.iter().find(|volume| volume.csi.is_some())?;
    let csi = volume.csi.as_ref()?;
    let name = driver(csi);
    let must = format!("unmount {}", safe_path(&volume.path));
    let link = |who: String, waits_for: Option<String>, fact: String, source: &str| Link {
        who,
        must: must.clone(),
        waits_for,
        since: None,
        fact,
        source: source.into(),
    };
    let Some(DriverState { process, socket, source, .. }) = &csi.driver else { return None };
    let Some(process) = process else {
        let fact = format!("nobody listens at its socket {}", safe_path(socket));
        return Some(link(name, Some("its start".into()), fact, source));
    };
    let comm = clip(&safe(process.comm.as_bytes()), COMM);
    let who = format!("{name} ({comm}, pid {})", process.pid);
    if let Some(why) = &process.halted {
        return Some(link(who, None, halted(why), "/proc"));
    }
    let mount = volume.mounts.first();
    let waits_for =
        mount.map(|it| format!("{}, {}, to be unmounted", safe_path(&it.point), it.what));
    let said = last_of(facts, &[Component::CsiDriver]);
    let runs = || link(who.clone(), waits_for.clone(), "it runs and listens".into(), source);
    Some(said.map_or_else(runs, |said| Link {
        since: Some(said.at),
        ..link(who.clone(), waits_for.clone(), quote(said), &said.source)
    }))
}

fn driver(csi: &CsiState) -> String {
    let name = csi.driver_name().map(|name| format!(" {}", safe(name.as_bytes())));
    format!("CSI driver{}", name.unwrap_or_default())
}

/// What is found to be the reason.
fn of_cause(pod: &PodStage, causes: &[Finding]) -> Option<Link> {
    let holds = |cause: &&Finding| {
        let is_of_pod = cause.pod.as_ref().is_none_or(|it| it.uid == pod.pod.uid);
        is_of_pod && cause.blocks_deletion == Some(true)
    };
    let cause = causes.iter().find(holds)?;
    let who = cause.held_by.clone();
    Some(Link {
        who: who.unwrap_or_else(|| safe_path(&cause.call.path.0).into_owned()),
        must: "let go".into(),
        waits_for: None,
        since: Some(cause.first),
        fact: crate::catalogue::title(cause.id).unwrap_or_default().to_owned(),
        source: format!("cause {}", cause.id),
    })
}

/// The last complaint of one of these components.
fn last_of<'a>(facts: &Facts<'a>, components: &[Component]) -> Option<&'a Said> {
    let is_of = |said: &&Said| said.report.is_none() && components.contains(&said.component);
    facts.said.iter().rev().find(is_of)
}

fn quote(said: &Said) -> String {
    let times = if said.times > 1 { format!("{} times: ", said.times) } else { String::new() };
    format!("it logs, {times}{}", safe(said.text.as_bytes()))
}

fn halted(why: &Halted) -> String {
    match why {
        Halted::Stopped => "it is stopped: it acts on nothing until it gets SIGCONT".into(),
        Halted::Frozen { group } => format!("its control group {} is frozen", safe_path(group)),
        Halted::NoDescriptors { open, most, .. } => {
            format!("it has {open} descriptors open, of {most} that it may have")
        }
        Halted::Waits { tid, state, channel } => {
            format!(
                "its thread {tid} waits in the kernel, in {} (state {state})",
                safe(channel.as_bytes())
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{
        model::{
            halted::HaltedKubelet,
            identity::Pod,
            pod_group::{PodGroup, Term},
            runtime::Runtime,
        },
        testing::{pod_group, pod_record, pod_state, runtime, task},
    };

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

    /// Who must do what, and what each waits for.
    fn told(stage: Stage, sample: &NodeSample, said: &[Said]) -> Vec<(String, Option<String>)> {
        let facts = Facts { sample, said, terminating: None, record: None, causes: &[] };
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
            told(Stage::Containers, &sample, &[]),
            [
                ("kubelet (pid 1)".into(), some("containerd")),
                ("containerd (pid 40)".into(), some("3 processes of the pod to end")),
                ("web (pid 7)".into(), some("a SIGKILL, or its own end")),
            ]
        );
        let facts =
            Facts { sample: &sample, said: &[], terminating: None, record: None, causes: &[] };
        let links = chain(&at(Stage::Containers), &facts);
        let fact = "state S, ignores SIGTERM, no SIGKILL is pending; beside it live sh (pid 9), pause (pid 5)";
        assert_eq!(links[2].fact, fact);
    }

    #[test]
    fn who_cannot_act_is_the_last_link() {
        let stopped = HaltedKubelet { pid: 1, started: None, halted: Halted::Stopped };
        let sample = NodeSample { halted_kubelets: vec![stopped], ..node() };
        let facts =
            Facts { sample: &sample, said: &[], terminating: None, record: None, causes: &[] };
        let links = chain(&at(Stage::Volumes), &facts);
        assert!(links[0].fact.contains("SIGCONT"), "{links:?}");
        let none = NodeSample { kubelets: Vec::new(), ..node() };
        let its_start = Some("its start".to_owned());
        assert_eq!(told(Stage::Volumes, &none, &[]), [("kubelet".into(), its_start)]);
    }

    #[test]
    fn the_last_complaint_is_quoted_and_a_report_is_none() {
        let sample = node();
        let kubelet = said(Component::Kubelet, "orphaned pod found, but failed to rmdir()");
        let report = Some(crate::model::said::Report::ContainerEnded);
        let ended = Said { report, ..said(Component::Kubelet, "ContainerDied") };
        let all = [Said { times: 3, ..kubelet }, ended];
        let facts =
            Facts { sample: &sample, said: &all, terminating: None, record: None, causes: &[] };
        let links = chain(&at(Stage::Directories), &facts);
        assert_eq!(links[0].fact, "it logs, 3 times: orphaned pod found, but failed to rmdir()");
        assert_eq!(links[0].source, "log");
    }

    #[test]
    fn a_record_that_finalizers_keep_is_not_kubelets_to_delete() {
        let (sample, by) = (NodeSample::default(), "its record".to_owned());
        let record = PodRecord { finalizers: vec!["a/b".into()], ..pod_record(UID) };
        let terminating = Terminating { since: Timestamp::from_second(1).unwrap(), by };
        let (terminating, record) = (Some(&terminating), Some(&record));
        let facts = Facts { sample: &sample, said: &[], terminating, record, causes: &[] };
        let links = chain(&at(Stage::Api), &facts);
        assert_eq!(links.len(), 1, "{links:?}");
        assert_eq!(links[0].waits_for.as_deref(), Some("the controllers of the finalizers a/b"));
    }
}
