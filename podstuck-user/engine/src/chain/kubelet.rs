//! kubelet's link.

use jiff::SignedDuration;

use super::{
    cause::{holding, is_of_kubelet, waited_for},
    containers::runtime,
    driver::{driver, first_left, mount_of},
    facts::{Facts, weightiest},
    link::{CONTAINER, halted, logged, logs, seen},
};
use crate::{
    ids,
    model::{
        chain::{Link, LinkFact, Who},
        diagnosis::{PodStage, Stage},
        finding::Finding,
        identity::Component,
        mounted::Mounted,
        node::PodState,
        path::{clip, safe, safe_path},
        pod_record::{ContainerRecord, ContainerState, PodRecord},
        said::{self, Complaint, Level, Said},
    },
};

/// How long after the end of the grace period a record must have been read that shows containers as running.
pub(super) const REPORTED: SignedDuration = SignedDuration::from_secs(30);

/// What shows that kubelet has not learned of the containers' end.
pub(super) const RUNNING: &str =
    "the pod's record shows its containers as running, and no process of the pod is left";

/// Number of lines from which an error does not pass by itself.
pub(super) const AGAIN: u64 = 3;

/// kubelet's link at this stage, and whether kubelet can act.
pub(super) fn of_kubelet(pod: &PodStage, facts: &Facts<'_>) -> (Link, bool) {
    const WHERE: &str = "kubelet's directory, mountinfo, control groups";
    let holding_cause = holding(pod, facts.causes);
    let holding = holding_cause.map(|cause| cause.id);
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
        let who = Who::component("kubelet", Some(it.pid));
        return (seen(who, must, None, halted(&it.halted), "/proc"), false);
    }
    let who = match sample.kubelets[..] {
        // The node was not scanned: the pod's record alone is known.
        [] if sample.begun.is_none() => Who::component("kubelet", None),
        [] => {
            let (its_start, fact) = ("its start".to_owned(), "no kubelet runs on this node".into());
            let who = Who::component("kubelet", None);
            return (seen(who, must, Some(its_start), fact, "/proc"), false);
        }
        [pid] => Who::component("kubelet", Some(pid)),
        _ => Who::component("kubelet (one of several)", None),
    };
    let waits_for = match pod.stage {
        Stage::Containers if facts.watch.is_some() => {
            Some("its watch of pods at the API server to succeed".to_owned())
        }
        _ if let Some(cause) = holding_cause
            && is_of_kubelet(cause.id) =>
        {
            waited_for(cause).map(ToString::to_string)
        }
        Stage::Containers if holding == Some(ids::POSTSTART_HOOK_PENDING) => {
            Some("the postStart hook of a container".to_owned())
        }
        Stage::Containers if facts.not_asked.is_some() => pre_stop_hook(facts),
        Stage::Containers
            if fails_itself(facts).is_some_and(|own| said::answered(&own.text).is_none()) =>
        {
            None
        }
        Stage::Containers => {
            let runtime = runtime(&pod.pod.uid, facts).map(|it| it.component.name());
            Some(runtime.unwrap_or("the container runtime").to_owned())
        }
        Stage::Volumes => sample.pod(&pod.pod.uid).and_then(|state| left(state, facts.said)),
        _ => None,
    };
    if pod.stage > Stage::Containers && takes_for_running(pod, facts) {
        let must = "learn that the pod's containers have ended";
        return (seen(who, must, None, RUNNING.into(), "the pod's record, control groups"), true);
    }
    let link = seen(who, must, waits_for, pod.fact.clone(), WHERE);
    let of_log = match (facts.watch, &facts.not_asked) {
        (Some(watch), _) if pod.stage == Stage::Containers => Link { facts: logs(watch), ..link },
        (_, Some(it)) if pod.stage == Stage::Containers => {
            let own = facts.last_of(&[Component::Kubelet]);
            let fails = own.filter(|said| said.level == Level::Error && said.times > 1);
            let fails = fails.map(|said| format!("; {}", said.quote("it"))).unwrap_or_default();
            let fact = format!("{}{fails}", it.fact());
            Link { facts: vec![LinkFact { fact, source: it.log.to_owned() }], ..link }
        }
        _ => logged(link, facts.last_of(&[Component::Kubelet])),
    };
    (of_log, true)
}

/// The preStop hook that kubelet runs before it asks the runtime, if it has received the deletion.
fn pre_stop_hook(facts: &Facts<'_>) -> Option<String> {
    facts.not_asked?.received?;
    let mut containers = facts.record?.containers.as_ref()?.iter();
    let hooked = containers.find(|it| it.has_pre_stop && it.state == ContainerState::Running)?;
    Some(format!("the preStop hook of {}", clip(&safe(hooked.name.as_bytes()), CONTAINER)))
}

/// Whether kubelet reports containers as running although no process of the pod is left, and says nothing else about it.
pub(super) fn takes_for_running(pod: &PodStage, facts: &Facts<'_>) -> bool {
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
        && facts.last_of(&[Component::Kubelet]).is_none_or(|said| said.volume.is_empty())
}

/// The call in which kubelet hangs, if that is the cause.
pub(super) fn kubelets_call(cause: &Finding, kubelet: &Who) -> Option<String> {
    let holder = cause.held_by.as_ref().filter(|it| it.pid.is_some() && it.more.is_empty());
    // A kubelet that is stopped, or may start nothing, makes no call.
    let is_other = is_of_kubelet(cause.id) || cause.id == ids::KUBELET_STOPPED;
    let is_its = !is_other && holder.is_some_and(|it| it.pid == kubelet.pid);
    is_its.then(|| format!("its call on {} to return", safe_path(&cause.call.path.0)))
}

/// A task that kubelet has started for the pod, such as an `umount`: what kubelet waits for, and the links from
/// there.
pub(super) fn kubelets_task(facts: &Facts<'_>) -> Option<(Option<String>, Vec<Link>)> {
    let [kubelet] = facts.sample.kubelets[..] else { return None };
    let mut links = facts.waits.task(kubelet, "", facts.clock).links.into_iter();
    Some((links.next()?.waits_for, links.collect()))
}

/// An error that kubelet repeats about the pod, if no component has begun to end it.
pub(super) fn fails_itself<'a>(facts: &Facts<'a>) -> Option<&'a Said> {
    let own = facts.last_of(&[Component::Kubelet]).filter(|_| !facts.has_acted)?;
    (own.level == Level::Error && own.times >= AGAIN).then_some(own)
}

/// A `stat` of a volume that fails on each attempt, so that its unmount is never attempted.
pub(crate) struct FailedLook<'a> {
    pub(crate) mount: &'a Mounted,
    errno: String,
    said: &'a Said,
}

/// The last failed `stat` in kubelet's log, if its volume is still mounted and is on no block device. One of a mount says
/// nothing about the unmount.
pub(crate) fn failed_look<'a>(state: &'a PodState, said: &'a [Said]) -> Option<FailedLook<'a>> {
    let of_unmounts = said.iter().filter(|said| said.complaint != Some(Complaint::MountFails));
    let looks = of_unmounts.filter_map(|said| Some((said, said.looked.as_ref()?)));
    let (last, look) = looks.max_by_key(|(said, _)| said.at)?;
    let of_volume = said.iter().filter(|said| said.volume == last.volume);
    let is_last = of_volume.map(|said| said.at).max() == Some(last.at);
    let mount = state.mount_of(&look.path)?;
    let is_served = mount.device.major == 0;
    let errno = look.outcome.name();
    (is_last && is_served && last.times > 1).then_some(FailedLook { mount, errno, said: last })
}

impl FailedLook<'_> {
    pub(super) fn waited_for(&self) -> String {
        let Self { mount, errno, .. } = self;
        let point = safe_path(&mount.point);
        format!("stat(2) of {point} ({}) to succeed: it fails with {errno}", mount.what)
    }

    pub(super) fn link(&self) -> Link {
        let must = format!("answer stat(2) of {}", safe_path(&self.mount.point));
        let fact = self.said.quote(self.said.component.name());
        seen(Who::object(&self.mount.what), &must, None, fact, &self.said.source)
    }
}

/// kubelet's link for a static pod whose mirror pod is deleted: kubelet has nothing to do.
pub(super) fn of_static_pod(facts: &Facts<'_>) -> Link {
    let pid = match facts.sample.kubelets[..] {
        [pid] => Some(pid),
        _ => None,
    };
    let who = Who::component("kubelet", pid);
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

/// What kubelet waits for at a pod's volumes: the driver that must unmount one, or the mount.
pub(super) fn left(state: &PodState, said: &[Said]) -> Option<String> {
    let volume = first_left(state)?;
    // kubelet fails at its own map of a raw block volume before it calls the driver (pkg/volume/util/operationexecutor).
    let is_own = |said: &Said| said.text.starts_with("blkUtil.");
    let last = weightiest(said.iter().filter(|said| said.component == Component::Kubelet));
    let csi = volume.csi.as_ref().filter(|_| !last.is_some_and(is_own));
    let csi = csi.map(|csi| driver(csi, said));
    csi.or_else(|| mount_of(volume))
        .or_else(|| Some(format!("{} to be removed", safe_path(&volume.path))))
}
