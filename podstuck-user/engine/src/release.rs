//! What may release a pod where no known cause explains its wait: the usual acts on the last known link of its chain,
//! the least harmful first. None is proven to help, and each says what it risks.

use jiff::SignedDuration;

use crate::{
    causes::shared::{blamed, unit},
    chain::{Facts, failed_look, holding, weightiest},
    command::{NAME, Process, Step, View, crictl_rm, docker_rm, kill},
    model::{
        call::Outcome,
        chain::{Link, Who, WhoKind},
        diagnosis::{PodStage, Stage},
        identity::Component,
        mounted::Mounted,
        node::{PodState, VolumeState},
        path::{clip, safe, safe_path},
        remedy::Remedy,
        runtime::Runtime,
        said::{Level, Said},
        waiting::{Part, Waiting},
    },
};

const KILL: &str =
    "low for a pod that is to be deleted: the container ends at once, without its own clean-up";
const KILL_SHIM: &str =
    "low for a pod that is to be deleted: the runtime cleans up after a shim that has ended";
const KILL_COMMAND: &str =
    "low: the component that has started it gets an error, and tries again later";
const UMOUNT: &str = "low: umount fails while a process uses the mount, and what was written stays. It waits where the \
    file system's server or disk does not answer";
const FORGET: &str = "low for a pod that is to be deleted: no process of the container was seen";
const RESTART_RUNTIME: &str =
    "low: containers keep running under their shims, and the runtime finds them again";
const RESTART_DOCKERD: &str = "all containers of the node end, unless Docker's live-restore is set";
const RESTART_DRIVER: &str =
    "volumes that a FUSE driver serves from that pod stop working for all pods of the node";

/// How long ago a deletion must have been requested: one that works ends within this time.
const LATE: SignedDuration = SignedDuration::from_secs(60);

/// The acts on the last link, if the pod's deletion is late and no finding blocks it. The commands start in the mount
/// namespace with the inode number `own_mnt_ns`.
pub(crate) fn releases(
    pod: &PodStage,
    links: &[Link],
    facts: &Facts<'_>,
    own_mnt_ns: u32,
) -> Vec<Remedy> {
    let now = facts.clock.at(facts.sample.at);
    let is_late = facts.terminating.is_some_and(|it| now.duration_since(it.since) >= LATE);
    let is_over = facts.record.and_then(|it| it.deletion).is_none_or(|by| by <= now);
    let is_open = is_late && is_over && holding(pod, facts.causes).is_none();
    let state = facts.sample.pod(&pod.pod.uid).filter(|_| is_open);
    let Some((last, state)) = links.last().zip(state) else { return Vec::new() };
    let of = Of { pod, state, facts, own_mnt_ns };
    of.process(&last.who).unwrap_or_else(|| of.failed_look())
}

struct Of<'a> {
    pod: &'a PodStage,
    state: &'a PodState,
    facts: &'a Facts<'a>,
    own_mnt_ns: u32,
}

impl Of<'_> {
    /// A link about a process.
    fn process(&self, who: &Who) -> Option<Vec<Remedy>> {
        let Facts { sample, waits, .. } = self.facts;
        let is = |pid: u32| who.pid == Some(pid);
        if sample.kubelets.iter().any(|pid| is(*pid)) {
            return Some(self.kubelet());
        }
        if let Some(runtime) = sample.runtimes.iter().find(|it| is(it.pid)) {
            let named = weightiest(self.facts.said.iter()).and_then(|it| blamed::way_out(&it.text));
            let named = named.map(|way_out| Remedy::advice(way_out, "none")).into_iter();
            return Some(named.chain([restart(runtime)]).chain(self.forget()).collect());
        }
        let mut drivers = self.state.volumes.iter().filter_map(VolumeState::driver);
        let is_component = who.kind == WhoKind::Component;
        if drivers.any(|driver| is_component && is(driver.pid)) {
            let act =
                "restart the CSI driver's pod on this node: kubelet then calls the driver again";
            let mut all: Vec<Remedy> = self.umount().into_iter().collect();
            all.push(Remedy::advice(act, RESTART_DRIVER));
            return Some(all);
        }
        // Another command, such as a repair of a file system, may need its time.
        let is_unmount = |it: &&Waiting| it.part == Part::Task && it.command.starts_with("umount");
        let mut unmounts = waits.all().filter(is_unmount).filter(|it| it.state != 'D');
        if let Some(task) = unmounts.find(|it| is(it.pid)) {
            let process = Process::new(task.pid, Some(task.started), Some(&task.command));
            return Some(vec![kill("kill -9", process).remedy(KILL_COMMAND)]);
        }
        self.container(who)
    }

    /// The removal of a container that has ended, and that the runtime does not stop. The removal stops it first, so that
    /// it may fail in the same way.
    fn forget(&self) -> Option<Remedy> {
        let its = self.facts.ended_container(&self.state.uid)?;
        let (is_dockers, id) = its.docker_and_id()?;
        let does = format!("remove the container {}", clip(&safe(its.name.as_bytes()), NAME));
        let program = if is_dockers { "docker" } else { "crictl" };
        let step = Step::new(does, format!("{program} rm --force {id}"));
        Some(step.so(", of which no process is left").remedy(FORGET))
    }

    /// A process or a shim of the pod.
    fn container(&self, who: &Who) -> Option<Vec<Remedy>> {
        let Facts { sample, .. } = self.facts;
        let group = sample.cgroups.iter().find(|it| it.uid == self.state.uid)?;
        let runs = |pid: u32| group.shims.iter().all(|shim| shim.pid != pid);
        let is = |pid: u32| who.pid == Some(pid);
        let mut tasks = group.tasks.iter().chain(&group.outside);
        let task = tasks.find(|it| runs(it.pid) && is(it.pid));
        let shim = group.shims.iter().find(|it| is(it.pid));
        if task.is_none() && shim.is_none() {
            return None;
        }
        let mut all = Vec::new();
        if group.frozen.is_some() || !self.is_due() {
            return Some(all);
        }
        if let Some(task) = task {
            if !task.is_alive() {
                return Some(all);
            }
            match group.is_sandboxs(task) {
                true => all.push(self.restart_kubelet()),
                false => all.push(kill("kill -9", Process::thread(task)).remedy(KILL)),
            }
        } else if let Some(shim) = shim {
            if shim.is_halted() || group.tasks.iter().any(|task| runs(task.pid)) {
                return Some(all);
            }
            let process = Process::new(shim.pid, Some(shim.started), Some(&shim.comm));
            all.push(kill("kill -9", process).remedy(KILL_SHIM));
        }
        all.extend(sample.runtimes.iter().filter(|_| sample.runtimes.len() == 1).map(restart));
        Some(all)
    }

    /// Whether the grace period is over: by the record, or because kubelet or the runtime complains that a stop fails.
    fn is_due(&self) -> bool {
        let Facts { record, said, .. } = self.facts;
        record.is_some_and(|it| it.deletion.is_some())
            || said.iter().any(|it| it.level == Level::Error && it.complaint.is_some())
    }

    fn kubelet(&self) -> Vec<Remedy> {
        let restart = self.restart_kubelet();
        let own = self.kubelets_complaint();
        let named = own.and_then(|said| blamed::way_out(&said.text));
        let named = named.map(|way_out| Remedy::advice(way_out, "none"));
        // A call of kubelet's on the pod's files, or a server, fails: another kubelet meets the same.
        let is_refused = own.is_some_and(|said| Outcome::named_in(&said.text).is_some());
        if is_refused && self.pod.stage == Stage::Volumes {
            return self.umount().into_iter().chain(named).collect();
        }
        if let Some(named) = named {
            return vec![named];
        }
        match self.pod.stage {
            Stage::Volumes => {}
            Stage::Directories => {
                return [Some(restart), self.remove_ended()].into_iter().flatten().collect();
            }
            _ => return vec![restart],
        }
        if let Some(umount) = self.umount() {
            return vec![umount, restart];
        }
        // A kubelet that does not see a mount does not see it after a restart, either.
        let mut left = self.state.volumes.iter().filter(|volume| !volume.mounts.is_empty());
        let is_own = left.clone().all(VolumeState::is_of_api);
        let own = left.find_map(|volume| volume.mounts.last()).filter(|_| is_own);
        std::iter::once(restart).chain(own.map(|mount| self.unmount(mount))).collect()
    }

    /// The removal of the pod's containers from the runtime. Older releases of kubelet delete the record only after that
    /// (pkg/kubelet/kubelet_pods.go, `PodResourcesAreReclaimed`), and fail at the removal without an error about the pod.
    fn remove_ended(&self) -> Option<Remedy> {
        const DOES: &str =
            "remove the pod's containers that have ended: older releases of kubelet wait for that";
        const RISK: &str = "low: no container that runs is removed";
        let of = |component| self.facts.sample.runtimes.iter().any(|it| it.component == component);
        let uid = &self.state.uid;
        let step = match of(Component::Dockerd) {
            true => docker_rm(DOES, uid, None),
            false => {
                crictl_rm(DOES, uid).filter(|_| of(Component::Containerd) || of(Component::CriO))
            }
        };
        Some(step?.remedy(RISK))
    }

    fn kubelets_complaint(&self) -> Option<&Said> {
        let is_own = |said: &&Said| said.component == Component::Kubelet;
        weightiest(self.facts.said.iter().filter(is_own))
    }

    fn restart_kubelet(&self) -> Remedy {
        let then = "it starts without what its memory has";
        unit::restart_kubelet(Some(self.facts.sample), then)
    }

    /// The unmount of the volume that kubelet complains about, or of the only one that is left mounted; kubelet's own
    /// files in memory are left because of something else.
    fn umount(&self) -> Option<Remedy> {
        let complaint = self.kubelets_complaint();
        let mounted = self.state.volumes.iter().filter(|volume| !volume.mounts.is_empty());
        let is_meant = |volume: &&VolumeState| {
            let name = volume.path.file_name().and_then(|name| name.to_str());
            complaint
                .zip(name)
                .is_some_and(|(said, name)| said.text.contains(name) || said.volume.contains(name))
        };
        let meant = mounted.clone().find(is_meant).or_else(|| {
            let mut mounted = mounted.filter(|it| complaint.is_none() && !it.is_of_api());
            mounted.next().filter(|_| mounted.next().is_none())
        })?;
        Some(self.unmount(meant.mounts.last()?))
    }

    fn unmount(&self, mount: &Mounted) -> Remedy {
        let view = View::from(self.own_mnt_ns, mount.namespace, mount.pid);
        let step = view.on_mount("umount", &mount.point, Some(mount.id));
        step.so(": kubelet then finds nothing mounted there").remedy(UMOUNT)
    }

    /// kubelet's look at a mount fails, so that it does not come to the unmount.
    fn failed_look(&self) -> Vec<Remedy> {
        let failed = failed_look(self.state, self.facts.said);
        let Some(failed) = failed.filter(|_| self.pod.stage == Stage::Volumes) else {
            return Vec::new();
        };
        let mount = failed.mount;
        let point = safe_path(&mount.point);
        let act = format!(
            "restore the server of {}, mounted at {point}: kubelet then unmounts it by itself",
            mount.what
        );
        vec![self.unmount(mount), Remedy::advice(act, "none")]
    }
}

/// A restart of a runtime.
fn restart(runtime: &Runtime) -> Remedy {
    let risk = match runtime.component {
        Component::Dockerd => RESTART_DOCKERD,
        _ => RESTART_RUNTIME,
    };
    let unit = runtime.group.as_deref().and_then(unit::of);
    unit::restart_of(runtime.component.name(), unit, risk)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use jiff::Timestamp;

    use super::*;
    use crate::{
        chain::{
            chain,
            tests::{UID, at, facts, node, said, shim},
        },
        model::{
            call::Outcome,
            diagnosis::Terminating,
            node::NodeSample,
            pod_group::{PodGroup, Task},
            pod_record::{ContainerRecord, ContainerState, PodRecord},
            runtime::Shim,
            said::{Complaint, NamedLook},
            time::Monotonic,
        },
        testing::{
            container_record, mounted, pod_group, pod_record, pod_state, runtime, task,
            volume_state,
        },
    };

    /// The commands, or else the advice, that are given at this stage.
    fn given(stage: Stage, facts: &Facts<'_>) -> Vec<String> {
        let by = "its record".to_owned();
        let terminating = Terminating { since: Timestamp::UNIX_EPOCH, by };
        let facts = Facts { terminating: Some(&terminating), ..*facts };
        let pod = at(stage);
        let links = chain(&pod, &facts);
        let all = releases(&pod, &links, &facts, 1);
        all.into_iter().filter_map(|it| it.command.or(it.advice)).collect()
    }

    fn starts(given: &[String], with: &[&str]) {
        let fits = |(given, with): (&String, &&str)| given.contains(*with);
        assert!(given.len() == with.len() && given.iter().zip(with).all(fits), "{given:?}");
    }

    /// A node at this second, whose pod has these processes.
    fn running(tasks: Vec<Task>, second: u64) -> NodeSample {
        let cgroups = vec![PodGroup { tasks, ..pod_group(UID) }];
        let runtimes = vec![Runtime {
            group: Some("/system.slice/containerd.service".into()),
            ..runtime(Component::Containerd)
        }];
        NodeSample { cgroups, runtimes, at: Monotonic(second * 1_000_000_000), ..node() }
    }

    fn volume(name: &str) -> VolumeState {
        let path = Path::new("/k/pods/u/volumes/kubernetes.io~nfs").join(name);
        let mounts = vec![mounted(&path, 12)];
        volume_state(path, mounts)
    }

    fn with_volumes(names: &[&str]) -> NodeSample {
        let volumes = names.iter().map(|name| volume(name)).collect();
        let pods = vec![PodState { volumes, ..pod_state(UID) }];
        NodeSample { pods, at: Monotonic(100_000_000_000), ..node() }
    }

    /// containerd#4016: the runtime gives up before it sends SIGKILL.
    #[test]
    fn a_process_that_outlasts_its_grace_period_is_killed_and_none_before() {
        let by = |second| {
            let deletion = Some(Timestamp::from_second(second).unwrap());
            PodRecord { deletion, ..pod_record(UID) }
        };
        let sample = running(vec![task("pause", 5), task("web", 7)], 100);
        let record = by(90);
        let late = Facts { record: Some(&record), ..facts(&sample) };
        starts(&given(Stage::Containers, &late), &["kill -9 7", "restart containerd.service"]);
        let record = by(130);
        let early = Facts { record: Some(&record), ..facts(&sample) };
        assert!(given(Stage::Containers, &early).is_empty(), "its grace period is not over");
        let record = by(90);
        let pause = running(vec![task("pause", 5)], 100);
        let late = Facts { record: Some(&record), ..facts(&pause) };
        let both = ["restart kubelet", "restart containerd.service"];
        starts(&given(Stage::Containers, &late), &both);
        let frozen = PodGroup { frozen: Some("/g".into()), ..sample.cgroups[0].clone() };
        let sample = NodeSample { cgroups: vec![frozen], ..sample };
        let late = Facts { record: Some(&record), ..facts(&sample) };
        assert!(given(Stage::Containers, &late).is_empty(), "a signal does not thaw it");
    }

    /// cri-o#7004: the runtime has a container as running of which no process is left.
    #[test]
    fn a_container_without_a_process_is_removed_if_a_restart_of_the_runtime_has_not_helped() {
        let sample = running(vec![task("pause", 5)], 100);
        let id = "a".repeat(64);
        let container = ContainerRecord {
            id: Some(format!("containerd://{id}")),
            ..container_record(ContainerState::Running)
        };
        let record = PodRecord { containers: Some(vec![container]), ..pod_record(UID) };
        let text = "failed to \"KillContainer\" for \"app\" with KillContainerError: \"rpc error\"";
        let fails = [Said { level: Level::Error, ..said(Component::Kubelet, text) }];
        let given_on = |sample: &NodeSample| {
            let facts = Facts { said: &fails, record: Some(&record), ..facts(sample) };
            given(Stage::Containers, &facts)
        };
        let both = ["systemctl restart containerd.service", &format!("crictl rm --force {id}")];
        starts(&given_on(&sample), &both);
        let with = |group: PodGroup| NodeSample { cgroups: vec![group], ..sample.clone() };
        let group = || sample.cgroups[0].clone();
        let kata = Shim { comm: "containerd-shim-kata-v2".into(), ..shim(6) };
        starts(&given_on(&with(PodGroup { shims: vec![kata], ..group() })), &both[..1]);
        // containerd#11984
        let outside = vec![task("pause", 9)];
        let moved = with(PodGroup { tasks: Vec::new(), outside, ..group() });
        starts(&given_on(&moved), &["kill -9 9", both[0]]);
    }

    /// kubernetes#92368: kubelet waits for the removal of the pod's ended containers.
    #[test]
    fn what_has_ended_is_removed_from_the_runtime_after_a_restart_has_not_helped() {
        let cri = NodeSample { cgroups: Vec::new(), ..running(Vec::new(), 100) };
        let all = ["restart kubelet", "crictl ps --all --quiet --state exited --label"];
        starts(&given(Stage::Directories, &facts(&cri)), &all);
        let docker = NodeSample { runtimes: vec![runtime(Component::Dockerd)], ..cri };
        let all = ["restart kubelet", "docker ps --all --quiet --filter status=exited"];
        starts(&given(Stage::Directories, &facts(&docker)), &all);
    }

    /// containerd#8425.
    #[test]
    fn a_runtime_at_which_the_chain_ends_is_restarted() {
        let sample = running(vec![task("pause", 5)], 100);
        let fails = said(Component::Containerd, "failed to stop sandbox: not found");
        let (level, complaint) = (Level::Error, Some(Complaint::StateLost));
        let fails = [Said { level, complaint, ..fails }];
        let facts = Facts { said: &fails, ..facts(&sample) };
        starts(&given(Stage::Containers, &facts), &["systemctl restart containerd.service"]);
    }

    /// kubernetes#72604, #90950, and with a token's tmpfs #118286 and #129402.
    #[test]
    fn the_volume_that_kubelet_names_is_unmounted_and_no_other() {
        let sample = with_volumes(&["token", "data"]);
        let names = |text| [said(Component::Kubelet, text)];
        let fails = names("UnmountVolume.TearDown failed for volume \"data\"");
        let known = Facts { said: &fails, ..facts(&sample) };
        let both = ["umount '/k/pods/u/volumes/kubernetes.io~nfs/data'", "restart kubelet"];
        starts(&given(Stage::Volumes, &known), &both);
        let fails = names("Predicate failed on Pod");
        let other = Facts { said: &fails, ..facts(&sample) };
        starts(&given(Stage::Volumes, &other), &["restart kubelet"]);
        starts(&given(Stage::Volumes, &facts(&sample)), &["restart kubelet"]);
        let sample = with_volumes(&["data"]);
        starts(&given(Stage::Volumes, &facts(&sample)), &both);
    }

    /// kubernetes#52641 and coreos-kubernetes#856.
    #[test]
    fn kubelets_own_files_are_unmounted_after_a_restart_has_not_helped() {
        let mut sample = with_volumes(&["token"]);
        let volume = &mut sample.pods[0].volumes[0];
        volume.path = "/k/pods/u/volumes/kubernetes.io~secret/token".into();
        volume.mounts = vec![mounted(&volume.path, 12)];
        let both = ["restart kubelet", "umount '/k/pods/u/volumes/kubernetes.io~secret/token'"];
        starts(&given(Stage::Volumes, &facts(&sample)), &both);
        // Named by kubelet, they come first, and once.
        let fails =
            [said(Component::Kubelet, "UnmountVolume.TearDown failed for volume \"token\"")];
        let named = Facts { said: &fails, ..facts(&sample) };
        starts(&given(Stage::Volumes, &named), &[both[1], both[0]]);
    }

    /// azurefile-csi-driver#662.
    #[test]
    fn a_mount_that_kubelet_cannot_look_at_is_unmounted_or_its_server_restored() {
        let mut sample = with_volumes(&["data"]);
        let volume = &mut sample.pods[0].volumes[0];
        volume.mounts[0].device.major = 0;
        let path = volume.path.clone();
        let outcome = Outcome(crate::model::errno::Errno::EHOSTDOWN as u16);
        let looked = Some(NamedLook { path, outcome });
        let fails = [Said { looked, times: 2, ..said(Component::Kubelet, "stat: host is down") }];
        let facts = Facts { said: &fails, ..facts(&sample) };
        starts(&given(Stage::Volumes, &facts), &["/data", "restore the server"]);
    }

    /// kubernetes pkg/volume/emptydir and pkg/kubelet/cm: a restart of kubelet changes nothing.
    #[test]
    fn what_an_error_of_kubelets_names_is_looked_at_and_kubelet_is_not_restarted() {
        let sample = with_volumes(&[]);
        let names = |text| [said(Component::Kubelet, text)];
        for (stage, text, with) in [
            (Stage::Volumes, "unlinkat /k/plugins/x/ready: read-only file system", "findmnt -T"),
            (
                Stage::Directories,
                "rmdir /sys/fs/cgroup/a.slice: device or resource busy",
                "a.slice",
            ),
            (
                Stage::Directories,
                "Patch \"https://10.0.0.1:6443/api\": i/o timeout",
                "10.0.0.1:6443",
            ),
        ] {
            let fails = names(text);
            let facts = Facts { said: &fails, ..facts(&sample) };
            starts(&given(stage, &facts), &[with]);
        }
    }

    #[test]
    fn a_process_of_the_pod_is_no_other_one_by_its_name() {
        let late = PodRecord { deletion: Some(Timestamp::UNIX_EPOCH), ..pod_record(UID) };
        let sample = running(vec![task("kubelet (pid 1)", 7)], 100);
        let facts = Facts { record: Some(&late), ..facts(&sample) };
        let both = ["kill -9 7", "restart containerd.service"];
        starts(&given(Stage::Containers, &facts), &both);
    }

    #[test]
    fn without_a_known_deletion_or_early_nothing_is_given() {
        let mut sample = with_volumes(&["data"]);
        sample.at = Monotonic(59_000_000_000);
        assert!(given(Stage::Volumes, &facts(&sample)).is_empty(), "it may work");
        let (pod, facts) = (at(Stage::Volumes), facts(&sample));
        let links = chain(&pod, &facts);
        assert!(!links.is_empty() && releases(&pod, &links, &facts, 1).is_empty());
    }
}
