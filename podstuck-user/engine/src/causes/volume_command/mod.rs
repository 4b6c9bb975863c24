//! A command that kubelet or a volume's driver has started to release a volume, and that does not return: a FlexVolume
//! driver, umount(8) and its helpers, the unmount of a FUSE file system. Calls that hang in the kernel are followed in
//! [`super::hung_call`].

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use podstuck_common::component::name_hash;

use crate::{
    cause::{Cause, Kind, Origin, TriedWith, log, seen, way},
    causes::shared::{hung_command, pending_deletion::ToGo},
    event::{Event, What},
    family::Family,
    ids, kubelet_steps,
    model::{
        degraded::Feed,
        diagnosis::Stage,
        evidence::Source,
        finding::Severity,
        node::{NodeSample, PodState},
        path::safe_path,
        time::Monotonic,
    },
    tracker::{Claim, Context, Scope, Steps, Subject, Tracker, TrackerId, TrackerSpec, yields},
    verdict::{Draft, Verdict},
    waits::HungCommand,
};

/// Its cause and tracker.
pub(crate) static FAMILY: Family = Family {
    causes: &[&COMMAND_HANGS],
    trackers: &[TrackerSpec {
        id: TrackerId::VolumeCommand,
        feeds: &[Feed::Node],
        yields: &[yields(
            TrackerId::HungCall,
            Claim::Suspicion,
            Scope::Target,
            "the command waits in the kernel, for a call on the volume",
        )],
        new: || Box::<VolumeCommands>::default(),
    }],
};

/// An unmount that writes back what is cached ends within this time, mostly.
const OLD: Duration = Duration::from_secs(60);
/// Programs that only unmount, or what their names begin with.
const UNMOUNT: [&str; 2] = ["umount", "fusermount"];
const RISK: &str = "medium: what the command has not written yet is lost; the component that waits for it receives an \
    error, and runs it again at the next attempt";

pub(crate) static COMMAND_HANGS: Cause = Cause {
    id: ids::VOLUME_COMMAND_HUNG,
    title: "a command that kubelet or the volume's driver runs to release the volume does not return",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "To unmount a volume, kubelet runs a FlexVolume driver or umount(8), and a CSI driver runs programs of its \
        own: umount(8) with its helpers, fusermount, the client of a file system. Such a command waits for a lock, an \
        answer, or a process that it has started. Neither kubelet nor most drivers limit its time: until it returns, no \
        other attempt is made for this volume.",
    confirmed_by: &[
        seen(
            "a thread of kubelet, or of the volume's CSI driver, waits for a child process whose command line has the pod's \
             UID",
            &[Origin::Proc],
        ),
        seen(
            "that process was started after the pod's deletion was requested, and has run for 30 s or longer",
            &[Origin::Proc, Origin::Api, Origin::Log],
        ),
        seen("a volume of the pod is still mounted, or its directory is left", &[Origin::Mounts]),
    ],
    log: log("kubelet", "operationExecutor.UnmountVolume started for volume ..., and no result"),
    look_alikes: &[],
    ways_out: &[
        way("resume or restart what the command waits for", ""),
        way(
            "kill the command, or the last of the processes that it has started: kubelet or the driver receives an error, \
             and tries again",
            "what it has not written yet is lost",
        ),
    ],
    field: &["fstab/cifs#10", "rook#4695", "juicefs#5359", "aws-fsx-csi-driver#495"],
    tried: &[TriedWith::Test],
    source: &[
        "kubernetes pkg/volume/flexvolume/driver-call.go, Run",
        "kubernetes k8s.io/mount-utils, mount_linux.go, Unmount",
    ],
};

/// The deletions, and the pod with a finding.
#[derive(Default)]
pub(crate) struct VolumeCommands {
    to_go: ToGo,
    /// By UID: when the deletion was requested, by the pod's record.
    requested: BTreeMap<String, Timestamp>,
    found: Option<String>,
}

impl VolumeCommands {
    fn sampled(&mut self, context: &Context<'_>, sample: &NodeSample, steps: &mut Steps) {
        let before = self.found.take();
        if let Some((uid, draft)) = self.judge(context, sample) {
            self.found = Some(uid);
            steps.found([draft]);
        }
        let (tracker, at) = (self.id(), sample.at);
        let over = before.filter(|uid| self.found.as_ref() != Some(uid));
        let over = over.map(|uid| name_hash(uid.as_bytes()));
        steps.say(over.map(|target_id| Verdict::Over { tracker, target_id, at }));
    }

    fn judge(&self, context: &Context<'_>, sample: &NodeSample) -> Option<(String, Draft)> {
        let pod = sample.pod(context.asked?)?;
        if pod.populated == Some(true) || pod.volumes.is_empty() {
            return None;
        }
        let requested = self.requested.get(&pod.uid).map(|at| context.when(*at));
        let since = requested.or_else(|| self.to_go.known_since(context, &pod.uid));
        // A file system's server that a driver has started with the volume's path is older than the deletion.
        let drivers = pod.volumes.iter().filter_map(|volume| volume.driver());
        let drivers = drivers.map(|driver| driver.pid).filter(|_| since.is_some());
        let by: Vec<u32> = sample.kubelets.iter().copied().chain(drivers).collect();
        let hung = context.waits.command_of(&by, since.unwrap_or_default(), context.clock)?;
        let (tracker, at) = (self.id(), sample.at);
        let is_explained = pod.volumes.iter().any(|volume| {
            let (target_id, path) = (volume.target_id, volume.path.as_path());
            let subject = Subject { target_id, path, pod: &pod.uid, at };
            context.is_explained(tracker, &subject)
        });
        (!is_explained).then(|| (pod.uid.clone(), self.draft(context, pod, &hung, at)))
    }

    fn draft(
        &self,
        context: &Context<'_>,
        pod: &PodState,
        hung: &HungCommand<'_>,
        at: Monotonic,
    ) -> Draft {
        let HungCommand { by, command, since, .. } = hung;
        let (named, directory) = (pod.named(), Some(pod.directory.as_path()));
        let mut draft = Draft::about_pod(self.id(), &COMMAND_HANGS, named, directory, at);
        draft.first = *since;
        (draft.severity, draft.blocks_deletion) = (Severity::Warning, Some(true));
        let (own, parent, age) = (command.who(), by.who(), at.since(*since));
        draft.fact_since(
            format!(
                "{parent} waits for its child {own}, whose command line names the pod, and which has run for {} s",
                age.as_secs()
            ),
            Source::proc(format!("/proc/{}/stat, /proc/{}/task/*/syscall", command.pid, by.pid)),
            *since,
        );
        match self.to_go.word(&pod.uid) {
            Some(word) => word.tell(&mut draft),
            None => draft.doubt("whether the pod is to be deleted: nothing that was read says so"),
        }
        let mounted = pod.volumes.iter().find_map(|volume| volume.mounts.first());
        match mounted {
            Some(mount) => draft.fact(
                format!("{} is still mounted: {}", safe_path(&mount.point), mount.what),
                Source::mountinfo(&mount.source),
            ),
            None => draft.fact(
                "the directories of its volumes are left",
                Source::file(safe_path(&pod.directory)),
            ),
        }
        let last = hung_command::tell(&mut draft, hung);
        draft.explanation = format!(
            "{parent} has started {own} for a volume of this pod and waits for it to end, without a time limit. Until \
             then, no other attempt is made to unmount that volume."
        );
        // What a program has started keeps its output open: the program's end alone would not be enough.
        let innermost = context.waits.innermost(command);
        if let Some(last) = last.filter(|last| !last.who.is(&innermost.who())) {
            draft.advice(
                format!("have {} {}", last.who, last.must),
                "a restart interrupts everything else that this process serves",
            );
        }
        hung_command::end(&mut draft, hung, innermost, RISK);
        if age < OLD {
            draft.doubt("whether the command returns by itself after all");
        }
        // A driver that was restarted mounts its volumes again.
        let is_kubelets = context.sample.is_some_and(|it| it.kubelets.contains(&by.pid));
        if !is_kubelets && !UNMOUNT.iter().any(|name| command.command.starts_with(name)) {
            draft.doubt("whether the program releases the volume, or serves it");
        }
        draft
    }
}

impl Tracker for VolumeCommands {
    fn id(&self) -> TrackerId {
        TrackerId::VolumeCommand
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        self.to_go.listen(context, &event.what);
        match &event.what {
            What::Record { record, .. } => {
                let uid = record.pod.uid.clone();
                match kubelet_steps::requested(record) {
                    Some(at) => drop(self.requested.insert(uid, at)),
                    None => drop(self.requested.remove(&uid)),
                }
            }
            What::Sample(sample) => self.sampled(context, sample, steps),
            _ => {}
        }
    }

    fn explains(&self, subject: &Subject<'_>, _: Claim) -> bool {
        self.found.as_ref().is_some_and(|uid| subject.is_of_pod(uid))
    }

    fn dropped(&self) -> u64 {
        self.to_go.dropped()
    }
}
