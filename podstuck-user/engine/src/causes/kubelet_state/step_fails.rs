//! A kubelet that fails by itself, at a step before all others.

use crate::{
    cause::{Cause, Kind, Origin, TriedWith, hidden, log, seen, way},
    causes::{
        csi_volume::linked_root,
        kubelet_state::{
            dra,
            refusal::{Refusal, Way, refusal},
            suspect::{FRESH, IN_MEMORY, LATE, Suspect},
        },
        shared::{
            blamed, forced_deletion,
            repeated::{Repeated, is_another, tell_first},
            unit::{RUNTIME_RISK, of as unit_of, restart_kubelet, restart_of},
        },
    },
    command::{Step, View, docker_rm},
    ids,
    model::{
        call::Outcome,
        chain::Who,
        diagnosis::Stage,
        evidence::Source,
        identity::Component,
        mounted::Mounted,
        node::PodState,
        path::{safe, safe_path},
        runtime::Runtime,
        said::{self, Answered, Complaint, Level, Said},
        shell::word,
    },
    tracker::Context,
    verdict::Draft,
};

/// Errors after which kubelet continues to the next step (pkg/kubelet/kuberuntime, `killContainer`).
const CONTINUED: [&str; 1] = ["PreStop hook failed"];
/// Number of lines from which an error that no rule knows counts as one that does not pass by itself.
const OFTEN: u64 = 3;

/// A kubelet that fails by itself.
pub(crate) static STEP_FAILS: Cause = Cause {
    id: ids::KUBELET_STEP_FAILS,
    title: "a step of the pod's deletion fails inside kubelet, and kubelet does not reach the \
        later steps",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "kubelet logs at each attempt why it does not continue. The reason is in its own \
        memory, in the pod's record or in a driver of the pod's devices: no process, mount or \
        file on the node blocks it. Other mounts of the pod, such as a token's tmpfs, stay until \
        that step succeeds.",
    confirmed_by: &[
        seen("kubelet's log repeats the step with the same error", &[Origin::Log]),
        hidden("kubelet's memory has nothing else of the pod that kubelet waits for"),
    ],
    log: log("kubelet", "Error syncing pod, skipping"),
    look_alikes: &[],
    ways_out: &[
        way("restart kubelet, if its memory is wrong", "low: containers keep running"),
        way("remove the empty directory that kubelet treats as a mount point", ""),
        way("start the driver of the pod's devices", ""),
        way(
            "repair what the runtime's error names, or restart the runtime",
            "low: containers keep running",
        ),
        way(forced_deletion::WAY, forced_deletion::WAY_RISK),
    ],
    field: &[
        "kubernetes#122960",
        "kubernetes#119608",
        "kubernetes#139772",
        "kubernetes#129402",
        "kubernetes#131957",
        "kubernetes#87470",
        "kubernetes#106711",
        "kubernetes#114546",
        "longhorn#4782",
        "kubernetes#57095",
        "moby#43080",
    ],
    tried: &[TriedWith::Test],
    source: &[
        "kubernetes pkg/kubelet/kubelet.go, SyncTerminatingPod",
        "kubernetes pkg/kubelet/cm/dra/manager.go, UnprepareResources",
        "kubernetes pkg/volume/util/volumepathhandler",
        "mount-utils mount_linux.go, Unmount; mount_helper_common.go, CleanupMountPoint",
    ],
};

/// The finding that kubelet fails, if no process of the pod lives, or if kubelet does not learn the pod's state.
pub(super) fn step_fails(
    context: &Context<'_>,
    suspect: &Suspect<'_>,
    complaints: &[Repeated],
) -> Option<Draft> {
    let is_fresh =
        |complaint: &&Repeated| complaint.lines >= 2 && suspect.now.since(complaint.last) <= FRESH;
    let fresh = || complaints.iter().filter(is_fresh);
    let known =
        fresh().filter_map(|complaint| Some((complaint, refusal(&complaint.said, suspect)?)));
    // While a process lives, the runtime has its part; but not before kubelet knows the pod's state.
    let lives = suspect.pod.populated == Some(true);
    let known = known.filter(|(_, refusal)| !lives || matches!(refusal.way, Way::Untold(..)));
    let known = known.max_by_key(|(complaint, _)| complaint.last);
    let (complaint, refusal) = known.or_else(|| with_nothing_left(context, suspect, fresh()))?;
    let mut draft = suspect.draft(&STEP_FAILS);
    complaint.tell(&mut draft);
    tell_first(&mut draft, first_of(complaint, complaints));
    draft.doubt(IN_MEMORY);
    for claim in suspect.record.iter().flat_map(|record| &record.unmade_claims) {
        let claim = safe(claim.as_bytes());
        draft.fact(
            format!("the pod's record names no ResourceClaim for its claim {claim}"),
            Source::Record,
        );
    }
    let Refusal { means, way } = refusal;
    let restart = |then: &str| restart_kubelet(context.sample, then);
    match way {
        Way::Restart(then) => {
            draft.held_by(suspect.kubelet());
            draft.remedies.push(restart(then));
        }
        Way::Bare => {
            draft.held_by(suspect.kubelet());
            draft.fact("no process of the pod is left", Source::proc("control groups"));
            draft.fact("nothing of the pod is mounted", Source::proc("mountinfo"));
            draft.remedies.push(restart("it starts with what the runtime and the node have"));
        }
        Way::Answer => {
            let who = runtime(context, &complaint.said.text);
            let runtimes = context.sample.map_or(&[][..], |sample| &sample.runtimes);
            let its = runtimes.iter().find(|it| who.pid == Some(it.pid));
            draft.must = Some("stop the pod's containers and its sandbox without an error");
            draft.fact("no process of the pod is left", Source::proc("control groups"));
            draft.fact("nothing of the pod is mounted", Source::proc("mountinfo"));
            // dockerd passes on less than it logs.
            let dockerd = suspect
                .dockerd
                .filter(|_| said::answered(&complaint.said.text) == Some(Answered::Docker));
            let of_dockerd = dockerd.and_then(|own| Some((own, blamed::way_out(&own.text)?)));
            if let Some((own, _)) = &of_dockerd {
                draft.fact(own.quote(own.component.name()), Source::Log(own.source.clone()));
            }
            let way_out =
                of_dockerd.map(|it| it.1).or_else(|| blamed::way_out(&complaint.said.text));
            let unknown = || {
                "repair what the runtime's error names; its own log has more about it".to_owned()
            };
            draft.advice(
                way_out.unwrap_or_else(unknown),
                "none; kubelet asks again at each attempt",
            );
            let name = its.map_or("the container runtime", |it| it.component.name());
            let unit = its.and_then(|it| unit_of(it.group.as_deref()?));
            draft.remedies.push(restart_of(name, unit, RUNTIME_RISK));
            draft.held_by(who);
        }
        Way::NotMounted(volume) => {
            draft.held_by(suspect.kubelet());
            let path = safe_path(&volume.path);
            draft.fact(format!("{path} is not a mount point"), Source::proc("mountinfo"));
            let at = word(&volume.path);
            let does = format!("remove {path}, if it is empty: kubelet treats it as a mount point");
            let step = Step::new(does, format!("rmdir {at}")).verified_by(format!("! [ -e {at} ]"));
            draft.remedy(
                step,
                "none for data: rmdir fails on a directory that is not empty or is a mount \
                point. kubelet's next attempt finds no directory, and continues",
            );
            draft.remedies.push(restart("it checks again what is mounted"));
        }
        Way::Mounted(mount) => {
            draft.held_by(suspect.kubelet());
            if let Some(link) =
                context.sample.and_then(|sample| sample.link_to(&suspect.pod.directory))
            {
                linked_root::tell(&mut draft, link);
            }
            tell_left(context, &mut draft, suspect.pod, mount);
        }
        Way::Removal(id) => {
            draft.held_by(runtime(context, &complaint.said.text));
            draft.must = Some("remove the ended container");
            draft.fact("no process of the pod is left", Source::proc("control groups"));
            draft.fact("nothing of the pod is mounted", Source::proc("mountinfo"));
            if let Some(way_out) = blamed::way_out(&complaint.said.text) {
                draft.advice(way_out, "none");
            }
            let does = "restore what its error names as missing, or remove what its error names as in the way: the \
                runtime then removes the container";
            draft.advice(format!("{does} {id} at kubelet's next attempt"), "none");
        }
        Way::Record => draft.held_by(suspect.kubelet()),
        Way::Untold(container, dockerd) => {
            draft.held_by(runtime(context, &complaint.said.text));
            draft.must = Some("answer kubelet's requests about the container without an error");
            let quote = dockerd.quote(dockerd.component.name());
            draft.fact(quote, Source::Log(dockerd.source.clone()));
            let does = "remove the container that Docker does not describe";
            if let Some(step) = docker_rm(does, &suspect.pod.uid, Some(container)) {
                draft.remedy(step, "low: Docker removes no container that runs");
            }
            draft.advice(
                format!(
                    "if Docker lists that container as running, or does not remove it, use `docker rm --force {container}`"
                ),
                "the container's processes are killed",
            );
        }
        Way::NoImage(container) => {
            draft.held_by(suspect.kubelet());
            let does = "remove the container whose image is gone";
            if let Some(step) = docker_rm(does, &suspect.pod.uid, Some(container)) {
                draft.remedy(step, "low: Docker removes no container that runs");
            }
        }
        Way::Own => {
            draft.held_by(suspect.kubelet());
            let way_out = blamed::way_out(&complaint.said.text);
            draft.advice(
                way_out.unwrap_or_else(|| "repair what kubelet's error names".into()),
                "none",
            );
        }
        Way::Driver(name) => {
            dra::tell(&mut draft, suspect.pod, Some(&name));
            let driver = Who::component(format!("the DRA driver {name}"), None);
            draft.held_by(driver.and(match complaint.said.text.contains("registered") {
                true => ", which is not registered",
                false => ", which does not accept kubelet's calls",
            }));
            draft.advice(
                format!(
                    "start the DRA driver {name} on this node: kubelet's next attempt then \
                    continues"
                ),
                "none",
            );
        }
        Way::DriverFails(name) => {
            dra::tell(&mut draft, suspect.pod, None);
            if let Some(way_out) = blamed::way_out(&complaint.said.text) {
                draft.advice(way_out, "none");
            }
            dra::driver_fails(&mut draft, suspect.pod, name);
        }
    }
    suspect.force(&mut draft);
    draft.explanation = format!("{means} Nothing else on the node blocks the deletion.");
    Some(draft)
}

/// The first error about the same volume, if it is another.
fn first_of<'a>(complaint: &Repeated, complaints: &'a [Repeated]) -> Option<&'a Said> {
    let last = &complaint.said;
    let is_earlier = |other: &&Repeated| {
        let is_teardowns = other.said.complaint != Some(Complaint::MountFails);
        let is_its = !last.volume.is_empty() && other.said.volume == last.volume;
        is_teardowns && is_its && other.first < complaint.first && is_another(&other.said, last)
    };
    let first = complaints.iter().filter(is_earlier).min_by_key(|other| other.first)?;
    Some(&*first.said)
}

/// The last error of any kind, where nothing of the pod is left on the node that it could be about.
fn with_nothing_left<'a>(
    context: &Context<'_>,
    suspect: &Suspect<'a>,
    fresh: impl Iterator<Item = &'a Repeated>,
) -> Option<(&'a Repeated, Refusal<'a>)> {
    // What kubelet cannot remove, or the runtime cannot stop, has causes of its own.
    let PodState { populated, devices, volumes, .. } = suspect.pod;
    let is_bare = *populated == Some(false)
        && devices.is_empty()
        && volumes.iter().all(|volume| volume.mounts.is_empty());
    if !is_bare || !context.kubelet_steps.has_received(&suspect.pod.uid) {
        return None;
    }
    let is_open = |complaint: &&Repeated| {
        let Said { complaint: known, level, text, volume, .. } = &*complaint.said;
        known.is_none()
            && !volume.starts_with("flexvolume-")
            && *level == Level::Error
            && complaint.lines >= OFTEN
            && suspect.now.since(complaint.first).as_secs() >= LATE.unsigned_abs().as_secs()
            && !names_a_call(text)
            && (Outcome::named_in(text).is_none() || removal(text).is_some())
            && !CONTINUED.iter().any(|words| text.contains(words))
    };
    let last = fresh.filter(is_open).max_by_key(|complaint| complaint.last)?;
    if let Some(id) = removal(&last.said.text) {
        let means = "The runtime fails at each attempt to remove a container of the pod that has ended. Older releases \
            of kubelet delete the record only after that, and their restart changes nothing.";
        return Some((last, Refusal { means, way: Way::Removal(id) }));
    }
    if said::answered(&last.said.text).is_some() && is_kill(&last.said.text) {
        let means = "The runtime answers each of kubelet's requests to stop the pod with an error, and kubelet does not \
            delete the record before one succeeds. No process of the pod is left, and nothing of it is mounted.";
        return Some((last, Refusal { means, way: Way::Answer }));
    }
    let means = "kubelet fails at each attempt with an error of its own or of the runtime, and does \
        not delete the record. No process of the pod is left, and nothing of it is mounted, so that \
        only the memory of kubelet or the runtime is in the way.";
    Some((last, Refusal { means, way: Way::Bare }))
}

/// Whether kubelet asks the runtime to stop the pod (pkg/kubelet/container/sync_result.go).
fn is_kill(error: &str) -> bool {
    error.contains("KillContainer") || error.contains("KillPodSandbox")
}

/// The container that the runtime fails to remove, according to kubelet's error (`RemoveContainer` in pkg/kubelet/cri and
/// pkg/kubelet/kuberuntime).
fn removal(error: &str) -> Option<&str> {
    // Up to 1.20, the ID stands between the two.
    let by_cri =
        error.contains("RemoveContainer") && error.contains(" from runtime service failed");
    let is_removal = by_cri || error.contains("ailed to remove container");
    said::container_id(error).filter(|_| is_removal)
}

/// Whether an error is about a call on a path: the object of such a call is examined, and has causes of its own.
fn names_a_call(error: &str) -> bool {
    ["unlinkat ", "unlink ", "rmdir ", "remove /", "umount", "unmount"]
        .iter()
        .any(|it| error.contains(it))
}

/// The runtime that answers with this error.
fn runtime(context: &Context<'_>, error: &str) -> Who {
    let runtimes = context.sample.map_or(&[][..], |sample| &sample.runtimes);
    let is_dockerds = said::answered(error) == Some(Answered::Docker);
    let its = runtimes.iter().find(|it| (it.component == Component::Dockerd) == is_dockerds);
    its.map_or_else(|| Who::component("the container runtime", None), Runtime::who)
}

/// Adds the mount that kubelet leaves, and its unmount.
fn tell_left(context: &Context<'_>, draft: &mut Draft, pod: &PodState, mount: &Mounted) {
    const RISK: &str = "low while no process uses the mount; the data on it stays intact. Never run `rm -rf` below it: \
        that deletes the data behind the mount";
    let Mounted { point, what, source, namespace, pid, .. } = mount;
    let all = pod.volumes.iter().flat_map(|volume| &volume.mounts);
    let is_on_it = |other: &&Mounted| other.point == *point && other.namespace == *namespace;
    let mut here: Vec<u32> = all.filter(is_on_it).map(|other| other.id).collect();
    here.dedup();
    let (at, count) = (safe_path(point), here.len());
    draft.fact(format!("{at} is still mounted: {what}"), Source::mountinfo(source));
    let view = View::in_namespace(context, *namespace, *pid);
    let top = here.last().copied().unwrap_or(mount.id);
    if count < 2 || *namespace != context.own_mnt_ns {
        let step = view.on_mount("umount", point, Some(top));
        draft.remedy(step.so(", which kubelet leaves mounted"), RISK);
        return;
    }
    draft.fact(format!("{count} mounts are stacked on it"), Source::mountinfo(source));
    let act = format!("sh -c 'while umount \"$1\"; do :; done' sh {}", word(point));
    let step = Step::new(format!("unmount all {count} mounts on {at}, one after the other"), act);
    let there = view.is_mounted(top, point);
    let is_there = format!("mount {top} is still at {at}");
    let step = step.verified_by(format!("! mountpoint -q {}", word(point)));
    draft.remedy(step.only_if(there, is_there), RISK);
}
