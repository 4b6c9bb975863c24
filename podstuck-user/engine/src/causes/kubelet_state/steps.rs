//! A deletion that waits inside kubelet, or between kubelet and the record: kubelet has not learned of the deletion,
//! fails by itself at a step before all others, or never started the pod. Nothing on the node is in the way, so
//! kubelet's log is the only source, and no finding is more than likely; except that kubelet's own list of its pods
//! ([`super::lists`]) shows whether kubelet has learned of the deletion.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use jiff::SignedDuration;
use podstuck_common::component::name_hash;

use crate::{
    backoff,
    bounded::Bounded,
    cause::{Cause, Kind, Origin, TriedWith, absent, hidden, log, or_seen, seen, way},
    causes::{
        kubelet_state::{
            dra,
            lists::{Lists, Shown},
            post_start, pull,
        },
        shared::{
            holders::is_same_pod,
            kubelets_list::{lacks_deletion, takes_changes},
            repeated::Repeated,
        },
    },
    command::{Step, View},
    event::{Event, What},
    ids,
    kubelet_steps::{self, KubeletSteps, NotAsked, Watch},
    model::{
        call::Outcome,
        degraded::Feed,
        diagnosis::Stage,
        evidence::Source,
        finding::Severity,
        identity::Component,
        mounted::Mounted,
        node::{NodeSample, PodState, VolumeState},
        path::{safe, safe_path},
        pod_record::PodRecord,
        said::{Level, Said, template},
        shell::{is_object_name, word},
        time::Monotonic,
    },
    tracker::{Context, Steps, Tracker, TrackerId},
    verdict::{Draft, Verdict, times},
};

/// Pods whose complaints are remembered, and kinds of complaints for each pod.
const PODS: usize = 1024;
const KINDS: usize = 8;
/// How long a pod must outlast its grace period before kubelet counts as late: it reports an end within ten seconds.
const LATE: SignedDuration = SignedDuration::from_secs(10);
/// The same if no failure is seen, or if kubelet may be removing containers meanwhile.
const VERY_LATE: SignedDuration = SignedDuration::from_secs(60);
/// kubelet fails again after two minutes at the latest.
const FRESH: Duration = Duration::from_secs(2 * backoff::CAP.as_secs());
/// Number of lines from which an error that no rule knows counts as one that does not pass by itself.
const OFTEN: u64 = 3;
/// Plugins whose volumes are in-memory files that kubelet makes from API objects.
const OF_API: [&str; 4] = ["projected", "secret", "configmap", "downward-api"];

/// How kubelet names the volumes of CSI drivers.
const CSI: &str = "kubernetes.io/csi/";

const FORCE: &str = "delete the record without kubelet, if no process of the pod lives and none \
    of its volumes is mounted";
const FORCE_RISK: &str = "a StatefulSet creates its next pod at once";

/// A kubelet that has not learned of the deletion.
pub(crate) static MISSED_DELETION: Cause = Cause {
    id: ids::KUBELET_MISSED_DELETION,
    title: "kubelet has not received the pod's deletion",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The API server has the deletion, and kubelet does nothing for it: its watch of \
        pods fails, or has lost the change. The containers run on: no component asks the runtime \
        to stop them, and the pod does not wait for the runtime. kubelet lists its pods again \
        when the watch works, or when kubelet is started.",
    confirmed_by: &[
        seen("the pod's deletionTimestamp has passed", &[Origin::Api]),
        seen("kubelet's log says repeatedly that its watch of pods fails", &[Origin::Log]),
        or_seen(
            "or kubelet's log, at --v=2 or more and from before the deletion, has neither `SyncLoop \
            DELETE` of the pod nor `Killing container`",
            &[Origin::Log],
        ),
        or_seen(
            "or kubelet processes other changes, according to its list or its health check",
            &[Origin::Kubelet],
        ),
        seen(
            "kubelet's own list of its pods has the pod without the deletion, in two reads",
            &[Origin::Kubelet],
        ),
    ],
    log: log("kubelet", "Failed to watch *v1.Pod"),
    look_alikes: &[],
    ways_out: &[
        way("restart kubelet, which lists its pods again", "low: containers keep running"),
        way("restore the connection to the API server, or renew kubelet's credentials", ""),
    ],
    field: &["kubernetes#25759"],
    tried: &[TriedWith::Test, TriedWith::RealKubelet, TriedWith::ApiServer, TriedWith::Objects],
    source: &["kubernetes pkg/kubelet/config/apiserver.go", "client-go tools/cache/reflector.go"],
};

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
        way(FORCE, FORCE_RISK),
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
    ],
    tried: &[TriedWith::Test],
    source: &[
        "kubernetes pkg/kubelet/kubelet.go, SyncTerminatingPod",
        "kubernetes pkg/kubelet/cm/dra/manager.go, UnprepareResources",
        "kubernetes pkg/volume/util/volumepathhandler",
        "mount-utils mount_linux.go, Unmount; mount_helper_common.go, CleanupMountPoint",
    ],
};

/// A pod that kubelet never started.
pub(crate) static NEVER_STARTED: Cause = Cause {
    id: ids::POD_NEVER_STARTED,
    title: "kubelet has started no container of the pod, and does not delete its record",
    stage: Stage::Directories,
    kind: Kind::Cause,
    meaning: "kubelet has rejected the pod, or could not create its containers, and finds \
        nothing of the pod to end. Some versions of kubelet then never report that the pod has \
        ended, and the record stays. Nothing on the node holds the pod.",
    confirmed_by: &[
        seen(
            "the pod's deletionTimestamp has passed, and no container of it has an id",
            &[Origin::Api],
        ),
        seen(
            "the record or kubelet's log says why kubelet has not started it",
            &[Origin::Api, Origin::Log],
        ),
        absent("no process of the pod is left on the node", Feed::Node),
        hidden("kubelet's memory has no container of the pod that is to be ended"),
    ],
    log: log("kubelet", "Predicate failed on Pod"),
    look_alikes: &[],
    ways_out: &[
        way(FORCE, FORCE_RISK),
        way(
            "update kubelet: 1.27.3 ends pods that it has rejected",
            "low: containers keep running",
        ),
    ],
    field: &[
        "kubernetes#118286",
        "kubernetes#118472",
        "kubernetes#118497",
        "kubernetes#23742",
        "kubernetes#22480",
        "kubernetes#24819",
    ],
    tried: &[TriedWith::Test],
    source: &[
        "kubernetes pkg/kubelet/pod_workers.go",
        "kubernetes pkg/kubelet/status/status_manager.go",
    ],
};

/// Records and complaints of all pods.
pub(crate) struct KubeletsPart {
    records: BTreeMap<String, (PodRecord, String)>,
    /// By UID: kubelet's complaints, one for each kind.
    complaints: Bounded<String, Vec<Repeated>>,
    /// UIDs of pods with a finding.
    found: BTreeSet<String>,
    lists: Lists,
}

impl Default for KubeletsPart {
    fn default() -> Self {
        let (records, found) = (BTreeMap::new(), BTreeSet::new());
        Self { records, complaints: Bounded::new(PODS), found, lists: Lists::default() }
    }
}

impl KubeletsPart {
    fn said(&mut self, context: &Context<'_>, said: &Said) {
        let is_complaint = said.component == Component::Kubelet && said.report.is_none();
        if !is_complaint || said.uid.is_empty() {
            return;
        }
        let at = context.when(said.at);
        let kinds = self.complaints.or_insert_with(said.uid.clone(), Vec::new);
        let kind = template(&said.text);
        match kinds.iter_mut().find(|known| template(&known.said.text) == kind) {
            Some(known) => {
                known.note(said, at);
            }
            None => {
                if kinds.len() >= KINDS {
                    kinds.remove(0);
                }
                let mut new = Repeated::begin(said, at);
                new.note(said, at);
                kinds.push(new);
            }
        }
    }

    fn sampled(&mut self, context: &Context<'_>, sample: &NodeSample, steps: &mut Steps) {
        let before = std::mem::take(&mut self.found);
        let mut overdue = BTreeMap::new();
        // Without a runtime, kubelet cannot see that there is no container.
        let runtime_answers = sample.gone.is_empty()
            && sample.runtimes.iter().all(|runtime| runtime.halted.is_none());
        for pod in &sample.pods {
            let Some(kubelet) = acting_kubelet(context.kubelet_steps, &pod.uid, sample) else {
                continue;
            };
            let groups = sample.cgroups.iter().filter(|group| group.uid == pod.uid);
            let is_killed =
                groups.flat_map(|group| &group.tasks).any(|task| task.killed && task.is_alive());
            let seen = Seen { pod, kubelet, runtime_answers, is_killed, sample };
            if self.is_overdue(context, &seen) {
                overdue.insert(pod.uid.clone(), kubelet);
            }
            let Some(draft) = self.judge(context, &seen) else { continue };
            self.found.insert(pod.uid.clone());
            steps.found([draft]);
        }
        let (tracker, at) = (self.id(), sample.at);
        steps.ask(self.lists.due(tracker, &overdue, context.now));
        let over = before.iter().filter(|uid| !self.found.contains(*uid));
        let over = over.map(|uid| name_hash(uid.as_bytes()));
        steps.say(over.map(|target_id| Verdict::Over { tracker, target_id, at }));
    }

    /// Whether kubelet's list shows more than is known: the log has no receipt of the deletion.
    fn is_overdue(&self, context: &Context<'_>, seen: &Seen<'_>) -> bool {
        let Some(known) = self.records.get(&seen.pod.uid) else { return false };
        let late = known.0.deletion.map(|by| context.calendar.duration_since(by));
        let is_late = late.is_some_and(|late| late >= LATE);
        let has_received = context.kubelet_steps.has_received(&seen.pod.uid);
        is_late && !seen.is_killed && !is_elsewhere(known) && !has_received
    }

    fn judge(&self, context: &Context<'_>, seen: &Seen<'_>) -> Option<Draft> {
        let &Seen { pod, kubelet, sample, .. } = seen;
        let at = sample.at;
        let record = self.records.get(&pod.uid);
        if record.is_some_and(is_elsewhere) {
            return None;
        }
        let record = record.map(|(record, _)| record);
        let now = context.calendar;
        let late = record.and_then(|it| it.deletion).map(|by| now.duration_since(by));
        let none = Vec::new();
        let complaints = self.complaints.get(&pod.uid).unwrap_or(&none);
        let suspect = Suspect { pod, record, kubelet, now: context.now, at };
        if late.is_none_or(|late| late >= LATE)
            && record.is_none_or(|record| record.deletion.is_some())
            && let Some(draft) = step_fails(context, &suspect, complaints)
        {
            return Some(draft);
        }
        let (record, late) = record.zip(late)?;
        if late >= VERY_LATE
            && seen.runtime_answers
            && let Some(draft) = never_started(&suspect, record, complaints)
        {
            return Some(draft);
        }
        // A SIGKILL shows that the runtime was asked for the end.
        if late < LATE || seen.is_killed {
            return None;
        }
        let requested = kubelet_steps::requested(record);
        let grace = Duration::from_secs(record.grace_s);
        let steps = context.kubelet_steps;
        let shown = self.lists.shown(&pod.uid, kubelet, context.now);
        if matches!(shown, Shown::Missed { .. }) {
            return missed(context, &suspect, record, late, &shown);
        }
        let not_asked = steps.not_asked(&pod.uid, requested, grace, now);
        let is_failing = |complaint: &Repeated| {
            complaint.said.level == Level::Error && context.now.since(complaint.last) <= FRESH
        };
        if let Some(draft) = post_start::draft(&suspect, record, steps, sample) {
            return Some(draft);
        }
        if seen.runtime_answers
            && !complaints.iter().any(is_failing)
            && let Some(draft) = pull::draft(&suspect, record, not_asked.as_ref(), sample)
        {
            return Some(draft);
        }
        missed(context, &suspect, record, late, &shown)
    }
}

impl Tracker for KubeletsPart {
    fn id(&self) -> TrackerId {
        TrackerId::KubeletsPart
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Said(said) => self.said(context, said),
            What::Record { record, node } => {
                let known = (PodRecord::clone(record), node.clone());
                self.records.insert(record.pod.uid.clone(), known);
            }
            What::Node(node) => {
                node.missing.iter().for_each(|pod| drop(self.records.remove(&pod.uid)));
            }
            What::Sample(sample) => self.sampled(context, sample, steps),
            What::Answer { query, answer } => {
                self.lists.answered(query, answer, event.at);
                // Scans may be seconds apart.
                if let Some(sample) = context.sample {
                    self.sampled(context, sample, steps);
                }
            }
            _ => {}
        }
    }

    fn dropped(&self) -> u64 {
        self.complaints.dropped()
    }
}

/// The process ID of the pod's kubelet, of several kubelets the one whose log names the pod; `None` if it is halted.
fn acting_kubelet(steps: &KubeletSteps, uid: &str, sample: &NodeSample) -> Option<u32> {
    let by_log = || {
        let (_, rest) = steps.log(uid)?.split_once("(pid ")?;
        rest.split_once(')')?.0.parse().ok().filter(|pid| sample.kubelets.contains(pid))
    };
    let pid = match sample.kubelets[..] {
        [pid] => Some(pid),
        _ => by_log(),
    };
    pid.filter(|pid| sample.halted_kubelets.iter().all(|halted| halted.pid != *pid))
}

/// Whether the pod's record is not that of a pod of this node.
fn is_elsewhere((record, here): &(PodRecord, String)) -> bool {
    record.is_mirror || record.node.as_ref().is_some_and(|node| node != here)
}

/// The finding that kubelet has not learned of the deletion.
fn missed(
    context: &Context<'_>,
    suspect: &Suspect<'_>,
    record: &PodRecord,
    late: SignedDuration,
    shown: &Shown<'_>,
) -> Option<Draft> {
    let (steps, now, uid) = (context.kubelet_steps, context.calendar, &suspect.pod.uid);
    let requested = kubelet_steps::requested(record);
    if steps.has_received(uid) || matches!(shown, Shown::Received) {
        return None;
    }
    let is_proven = matches!(shown, Shown::Missed { .. });
    // What ends by itself is no step of the deletion.
    if !is_proven && steps.has_acted(uid, requested) {
        return None;
    }
    // A kubelet that waits in a call learns of nothing, and a restart alone does not help.
    if context.waits.call_of(suspect.kubelet).is_some() {
        return None;
    }
    let not_asked = steps.not_asked(uid, requested, Duration::from_secs(record.grace_s), now);
    // If kubelet's log does not go back far enough, it may have ended the containers before.
    let runs = suspect.pod.populated == Some(true);
    let watch = steps.watch(uid, now).filter(|_| runs || not_asked.is_some());
    let is_missed = not_asked.as_ref().is_some_and(|it| it.is_unheard) && late >= VERY_LATE;
    if !is_proven && !is_missed && watch.is_none() {
        return None;
    }
    let mut draft = missed_deletion(suspect, watch, not_asked.as_ref(), shown);
    if let Shown::Missed { apart, latest, is_well } = *shown {
        lacks_deletion(&mut draft, apart);
        // A watch that fails explains it by itself.
        if watch.is_none()
            && let Some(requested) = requested
        {
            takes_changes(&mut draft, requested, now, latest, || is_well);
        }
    }
    Some(draft)
}

/// A pod in the last sample.
struct Seen<'a> {
    pod: &'a PodState,
    kubelet: u32,
    runtime_answers: bool,
    /// A SIGKILL is pending for a process of the pod.
    is_killed: bool,
    sample: &'a NodeSample,
}

/// A pod whose deletion kubelet does not finish.
pub(super) struct Suspect<'a> {
    pod: &'a PodState,
    record: Option<&'a PodRecord>,
    kubelet: u32,
    now: Monotonic,
    at: Monotonic,
}

impl Suspect<'_> {
    pub(super) fn draft(&self, cause: &'static Cause) -> Draft {
        let pod = self.record.map_or_else(|| self.pod.named(), |record| record.pod.clone());
        let directory = Some(self.pod.directory.as_path());
        let mut draft = Draft::about_pod(TrackerId::KubeletsPart, cause, pod, directory, self.at);
        (draft.severity, draft.blocks_deletion) = (Severity::Warning, Some(true));
        draft.is_settled = true;
        if let Some(record) = self.record.filter(|record| record.deletion.is_some()) {
            let by = record.deletion.map(|by| format!(" ({by:.0})")).unwrap_or_default();
            draft.fact(format!("its deletionTimestamp has passed{by}"), Source::Record);
        }
        draft
    }

    fn kubelet(&self) -> String {
        format!("kubelet (pid {})", self.kubelet)
    }

    /// Whether no process of the pod lives, and nothing of it is mounted but kubelet's own files in memory.
    fn is_free(&self) -> bool {
        let is_of_api = |volume: &VolumeState| {
            let plugin = volume.path.parent().and_then(|it| it.file_name());
            let plugin = plugin.and_then(|it| it.to_str()?.strip_prefix("kubernetes.io~"));
            plugin.is_some_and(|plugin| OF_API.contains(&plugin))
        };
        let mut mounted = self.pod.volumes.iter().filter(|volume| !volume.mounts.is_empty());
        let is_mapped = self.pod.devices.iter().any(|device| !device.mounts.is_empty());
        self.pod.populated == Some(false) && !is_mapped && mounted.all(is_of_api)
    }

    /// Adds the forced deletion of the record, if the pod is free.
    fn force(&self, draft: &mut Draft) {
        const RISK: &str = "the record is deleted without kubelet: no process of the pod lives \
            here, and nothing of it is mounted except kubelet's own in-memory files, which \
            kubelet removes afterwards. A StatefulSet creates its next pod at once";
        if !self.is_free() {
            return;
        }
        let named = self
            .record
            .and_then(|record| Some((record.pod.namespace.as_ref()?, record.pod.name.as_ref()?)));
        let named = named.filter(|(namespace, name)| {
            [namespace, name, &&self.pod.uid].iter().all(|it| is_object_name(it))
        });
        match named {
            Some((namespace, name)) => {
                let act = format!(
                    "kubectl --namespace {namespace} delete pod {name} --grace-period=0 --force"
                );
                let step = Step::new("delete the pod's record at once", act);
                let check = is_same_pod(namespace, name, &self.pod.uid);
                draft.remedy(step.only_if(check, "the record is still this pod's".into()), RISK);
            }
            None => {
                draft.advice(
                    "where the pod's deletion was requested, delete its record at once (`kubectl delete pod NAME \
                     --grace-period=0 --force`)",
                    RISK,
                );
            }
        }
    }
}

pub(crate) const RESTART_RISK: &str =
    "low: containers keep running, and kubelet finds the node's pods and volumes again";

pub(super) fn restart(draft: &mut Draft, and_then: &str) {
    draft.advice(
        format!("restart kubelet (`systemctl restart kubelet`, where it is a service of that name): {and_then}"),
        RESTART_RISK,
    );
}

const IN_MEMORY: &str = "what kubelet's memory has about the pod: no log shows that";

fn missed_deletion(
    suspect: &Suspect<'_>,
    watch: Option<&Watch>,
    not_asked: Option<&NotAsked<'_>>,
    shown: &Shown<'_>,
) -> Draft {
    let mut draft = suspect.draft(&MISSED_DELETION);
    draft.held_by(suspect.kubelet());
    if let Some(Watch { said, .. }) = watch {
        let fact = format!(
            "kubelet logged {} that its watch of pods fails: {}",
            times(said.times),
            safe(said.text.as_bytes())
        );
        draft.fact(fact, Source::Log(said.source.clone()));
    }
    if let Some(not_asked) = not_asked {
        draft.fact(not_asked.fact(), Source::Log(not_asked.log.to_owned()));
    }
    match (shown, not_asked) {
        (Shown::Open(unknown), Some(_)) => draft.doubt(unknown),
        (Shown::Open(_), None) => draft.doubt(
            "whether kubelet has received the deletion before: its log does not go back that \
            far, or does not name its steps (--v=2)",
        ),
        (Shown::Missed { .. } | Shown::Received, _) => {}
    }
    let text = watch.map_or("", |watch| watch.said.text.as_str());
    let has = |words: &[&str]| words.iter().any(|words| text.contains(words));
    let why = if has(&["Unauthorized", "x509", "certificate", "forbidden"]) {
        draft.remedy(
            Step::new(
                "show until when kubelet's client certificate is valid",
                "openssl x509 -noout -enddate -in /var/lib/kubelet/pki/kubelet-client-current.pem",
            ),
            "none",
        );
        draft.advice("renew kubelet's credentials, and restart kubelet", RESTART_RISK);
        "The API server does not let kubelet list its pods."
    } else if has(&["connect: ", "dial tcp", "no such host", "timeout", "EOF", "connection lost"]) {
        draft.advice(
            "restore kubelet's connection to the API server: kubelet then lists its pods, and \
            continues by itself",
            "none",
        );
        "kubelet does not reach the API server."
    } else {
        restart(&mut draft, "it lists its pods again, and ends this one");
        "kubelet does not receive changes of its pods."
    };
    draft.explanation = format!(
        "{why} The pod's containers run on because no component asks the runtime to stop them: \
        the pod does not wait for the runtime."
    );
    draft
}

/// Why kubelet fails, and what helps.
struct Refusal<'a> {
    means: &'static str,
    way: Way<'a>,
}

enum Way<'a> {
    /// kubelet's memory is wrong.
    Restart(&'static str),
    /// kubelet takes an empty directory for a mount point.
    NotMounted(&'a VolumeState),
    /// kubelet leaves this mounted.
    Mounted(&'a Mounted),
    /// The record is wrong.
    Record,
    /// Nothing of the pod is left on the node.
    Bare,
    /// A driver of the pod's devices is not registered.
    Driver(String),
    /// A driver of the pod's devices fails.
    DriverFails,
}

/// The refusal behind an error of kubelet's own.
fn refusal<'a>(said: &Said, suspect: &Suspect<'a>) -> Option<Refusal<'a>> {
    let text = said.text.as_str();
    let (has, record) = (|words: &str| text.contains(words), suspect.record);
    if let Some(mount) = left_mounted(said, suspect.pod) {
        return Some(Refusal {
            means: "kubelet gives up with an error of its own, and the volume stays mounted: the \
                kernel refuses no call, and no process is in the way.",
            way: Way::Mounted(mount),
        });
    }
    if let Some(mount) = closed(said, suspect.pod) {
        return Some(Refusal {
            means: "kubelet looks into the mounted directory before it unmounts it, and may not: the file \
                system's server refuses root the search of that directory, as an NFS server with root_squash \
                does. The server answers, and no process is in the way.",
            way: Way::Mounted(mount),
        });
    }
    if let Some(volume) = not_mounted(text, suspect.pod) {
        return Some(Refusal {
            means: "kubelet treats the volume's directory as a mount point and unmounts it at \
                each attempt, but nothing is mounted there, as after a reboot: `umount` fails, \
                and kubelet does not continue.",
            way: Way::NotMounted(volume),
        });
    }
    if has("mapPath is empty") || has("globalMapPath is empty") || has("volumeMapPath is empty") {
        return Some(Refusal {
            means: "kubelet's memory has a raw block volume without its map path, as after a \
                restart or a reboot, and kubelet gives up before it examines anything.",
            way: Way::Restart(
                "while the volume's driver runs, kubelet finds the volume's map again, or \
                nothing to unmap",
            ),
        });
    }
    if nothing_is_left(text, suspect.pod) {
        return Some(Refusal {
            means: "kubelet's memory has a CSI volume of the pod as mounted, and each attempt \
                fails because kubelet's own file about the volume (vol_data.json) is gone, with \
                the volume's directory: the volume is torn down already.",
            way: Way::Restart(
                "kubelet looks for volumes in the pod's directory, and finds none of that name",
            ),
        });
    }
    let unregistered = has("list of registered DRA");
    if has("unprepare dynamic resources") || has("NodeUnprepareResource") || unregistered {
        let is_away = unregistered || has("not registered") || has("dial unix");
        if is_away && let Some(driver) = driver(text) {
            return Some(Refusal {
                means: "Before kubelet unmounts anything, the driver of the pod's devices must \
                    release them, and that driver is not registered with kubelet.",
                way: Way::Driver(driver),
            });
        }
        let is_unmade = record.is_some_and(|record| !record.unmade_claims.is_empty());
        if is_unmade || has("not created yet") {
            return Some(Refusal {
                means: "kubelet releases the pod's devices before it unmounts anything, and \
                    fails because the pod's record names no ResourceClaim for one of its claims. \
                    No ResourceClaim is created any more: the pod is to be deleted.",
                way: Way::Record,
            });
        }
        return Some(Refusal {
            means: "Before kubelet unmounts anything, the driver of the pod's devices must \
                release them, and that fails.",
            way: Way::DriverFails,
        });
    }
    // `checkContainerStateTransition` in pkg/kubelet/status.
    if has("attempted illegal transition to non-terminated state") {
        return Some(Refusal {
            means: "kubelet rejects its own status update of the pod at each attempt: kubelet \
                has reported a container as ended, and its memory has that container as not \
                ended. Without that update kubelet never deletes the record.",
            way: Way::Record,
        });
    }
    let kills = ["KillContainer", "StopContainer", "Failed killing the pod"];
    let is_gone = has("No such container") || has("no such container");
    if is_gone && kills.iter().any(|word| text.contains(word)) {
        return Some(Refusal {
            means: "kubelet asks the runtime to stop a container that the runtime does not have, \
                and treats the answer as a failure.",
            way: Way::Restart("kubelet then sees that no container of the pod is left"),
        });
    }
    None
}

/// The marks of an error that is not kubelet's own: a program's status, a server's answer, a time-out, and another
/// operation than the unmount, whose prefix kubelet's log keeps.
const OF_OTHERS: [&str; 6] =
    ["exit status", "rpc error", "deadline exceeded", "timed out", "MountVolume.", "MapVolume."];

/// The mount of a volume that kubelet leaves, for an error of its own. What a call, a program or a driver returns is
/// explained by other causes.
fn left_mounted<'a>(said: &Said, pod: &'a PodState) -> Option<&'a Mounted> {
    let is_of_others = OF_OTHERS.iter().any(|words| said.text.contains(words));
    let is_of_a_call = Outcome::named_in(&said.text).is_some();
    let is_in_tree = said.volume.starts_with("kubernetes.io/") && !said.volume.starts_with(CSI);
    if said.complaint.is_some() || !is_in_tree || is_of_others || is_of_a_call {
        return None;
    }
    let its = pod.volumes.iter().filter(|volume| volume.csi.is_none());
    let mounts = its.clone().flat_map(|volume| &volume.mounts);
    // An error about a subPath names its path; kubelet's unique name of a volume ends with the volume's name.
    let is_named = |mount: &&Mounted| said.text.contains(&*mount.point.to_string_lossy());
    let by_path = mounts.filter(is_named).max_by_key(|mount| mount.point.as_os_str().len());
    let by_name = || {
        let mut its = its.filter(|volume| {
            let name = volume.path.file_name().map(|name| name.to_string_lossy());
            name.is_some_and(|name| said.volume.ends_with(&format!("-{name}")))
        });
        its.find_map(|volume| volume.mounts.iter().rev().find(|it| it.point == volume.path))
    };
    by_path.or_else(by_name)
}

/// The mount whose directory kubelet may not search.
fn closed<'a>(said: &Said, pod: &'a PodState) -> Option<&'a Mounted> {
    let look = said.looked.as_ref().filter(|look| look.outcome.name() == "EACCES")?;
    let mounts = pod.volumes.iter().flat_map(|volume| &volume.mounts);
    let on = mounts.filter(|mount| look.path.starts_with(&mount.point));
    on.max_by_key(|mount| mount.point.as_os_str().len())
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

/// Whether kubelet misses its own file about a CSI volume whose directory is gone.
fn nothing_is_left(text: &str, pod: &PodState) -> bool {
    let gone = || {
        let (_, rest) = text.rsplit_once("open ")?;
        let (file, _) = rest.split_once("/vol_data.json: no such file or directory")?;
        let path = Path::new(file);
        path.starts_with(&pod.directory).then_some(path)
    };
    // Raw block volumes have that file elsewhere.
    gone().is_some_and(|path| pod.volumes.iter().all(|volume| volume.path != path))
}

/// The volume that kubelet cannot unmount because nothing is mounted there, by the errors of util-linux and busybox.
fn not_mounted<'a>(text: &str, pod: &'a PodState) -> Option<&'a VolumeState> {
    let (_, rest) = text.split_once("Unmounting arguments: ")?;
    let (arguments, output) = rest.split_once("Output: umount: ")?;
    let says = ["not mounted", "no mount point specified", "Invalid argument", "not found"];
    if !says.iter().any(|words| output.contains(words)) {
        return None;
    }
    let is_its = |volume: &&VolumeState| {
        arguments.split_whitespace().next_back().is_some_and(|it| volume.path == Path::new(it))
    };
    let its = pod.volumes.iter().find(is_its)?;
    (its.mounts.is_empty() && its.csi.is_none()).then_some(its)
}

/// `driver NAME`, or `driver name NAME`.
fn driver(text: &str) -> Option<String> {
    let words: Vec<&str> =
        text.split([' ', ',', ':', '"', '\\']).filter(|it| !it.is_empty()).collect();
    let names = words.windows(2).filter(|pair| matches!(pair[0], "driver" | "name" | "plugin"));
    let mut names = names.map(|pair| pair[1]).filter(|name| name.contains('.'));
    names.find(|name| is_object_name(name)).map(str::to_owned)
}

fn step_fails(
    context: &Context<'_>,
    suspect: &Suspect<'_>,
    complaints: &[Repeated],
) -> Option<Draft> {
    if suspect.pod.populated == Some(true) {
        return None;
    }
    let is_fresh =
        |complaint: &&Repeated| complaint.lines >= 2 && suspect.now.since(complaint.last) <= FRESH;
    let fresh = || complaints.iter().filter(is_fresh);
    let known =
        fresh().filter_map(|complaint| Some((complaint, refusal(&complaint.said, suspect)?)));
    let known = known.max_by_key(|(complaint, _)| complaint.last);
    let (complaint, refusal) = known.or_else(|| with_nothing_left(context, suspect, fresh()))?;
    let mut draft = suspect.draft(&STEP_FAILS);
    complaint.tell(&mut draft);
    draft.doubt(IN_MEMORY);
    for claim in suspect.record.iter().flat_map(|record| &record.unmade_claims) {
        let claim = safe(claim.as_bytes());
        draft.fact(
            format!("the pod's record names no ResourceClaim for its claim {claim}"),
            Source::Record,
        );
    }
    let Refusal { means, way } = refusal;
    match way {
        Way::Restart(then) => {
            draft.held_by(suspect.kubelet());
            restart(&mut draft, then);
        }
        Way::Bare => {
            draft.held_by(suspect.kubelet());
            draft.fact("no process of the pod is left", Source::proc("control groups"));
            draft.fact("nothing of the pod is mounted", Source::proc("mountinfo"));
            restart(&mut draft, "kubelet then starts with what the runtime and the node have");
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
            restart(&mut draft, "kubelet checks again what is mounted");
        }
        Way::Mounted(mount) => {
            draft.held_by(suspect.kubelet());
            tell_left(context, &mut draft, suspect.pod, mount);
        }
        Way::Record => draft.held_by(suspect.kubelet()),
        Way::Driver(name) => {
            dra::tell(&mut draft, suspect.pod, Some(&name));
            draft.held_by(format!("the DRA driver {name}, which is not registered"));
            draft.advice(
                format!(
                    "start the DRA driver {name} on this node: kubelet's next attempt then \
                    continues"
                ),
                "none",
            );
        }
        Way::DriverFails => {
            dra::tell(&mut draft, suspect.pod, None);
            dra::driver_fails(&mut draft, suspect.pod);
        }
    }
    suspect.force(&mut draft);
    draft.explanation = format!("{means} Nothing else on the node blocks the deletion.");
    Some(draft)
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
        let Said { complaint: known, level, text, .. } = &complaint.said;
        known.is_none()
            && *level == Level::Error
            && complaint.lines >= OFTEN
            && suspect.now.since(complaint.first).as_secs() >= LATE.unsigned_abs().as_secs()
            && Outcome::named_in(text).is_none()
    };
    let last = fresh.filter(is_open).max_by_key(|complaint| complaint.last)?;
    let means = "kubelet fails at each attempt with an error of its own or of the runtime, and does \
        not delete the record. No process of the pod is left, and nothing of it is mounted, so that \
        only the memory of kubelet or the runtime is in the way.";
    Some((last, Refusal { means, way: Way::Bare }))
}

fn never_started(
    suspect: &Suspect<'_>,
    record: &PodRecord,
    complaints: &[Repeated],
) -> Option<Draft> {
    let PodState { devices, .. } = suspect.pod;
    if record.never_started() != Some(true) || !suspect.is_free() || !devices.is_empty() {
        return None;
    }
    // A known complaint belongs to another rule.
    let is_fresh = |complaint: &&Repeated| suspect.now.since(complaint.last) <= FRESH;
    if complaints.iter().filter(is_fresh).any(|complaint| complaint.said.complaint.is_some()) {
        return None;
    }
    let rejects =
        |text: &str| ["Predicate", "rejected", "Admit"].iter().any(|it| text.contains(it));
    let makes = |text: &str| {
        let words = [
            "StartContainer",
            "CreateContainer",
            "RegistryUnavailable",
            "ImagePull",
            "InvalidImageName",
        ];
        words.iter().any(|word| text.contains(word))
    };
    let why = complaints
        .iter()
        .filter(|complaint| rejects(&complaint.said.text) || makes(&complaint.said.text));
    let why = why.max_by_key(|complaint| complaint.last);
    if why.is_none() && record.reason.is_none() {
        return None;
    }
    let mut draft = suspect.draft(&NEVER_STARTED);
    draft.held_by(suspect.kubelet());
    if let Some(why) = why {
        why.tell(&mut draft);
    }
    if let Some(reason) = &record.reason {
        draft
            .fact(format!("its status has the reason {}", safe(reason.as_bytes())), Source::Record);
    }
    draft.fact("according to its record, none of its containers was ever created", Source::Record);
    draft.fact("no process of the pod is on this node", Source::proc("control groups"));
    draft.doubt(IN_MEMORY);
    let is_rejected = record.reason.is_some() || why.is_some_and(|why| rejects(&why.said.text));
    let why = match is_rejected {
        true => {
            "kubelet has rejected the pod and has no worker that ends it; after a restart, \
            kubelet rejects the pod again as long as the reason holds."
        }
        false => {
            "kubelet could not create the pod's containers, and treats a container that was \
            never created as one that has not ended."
        }
    };
    suspect.force(&mut draft);
    if !is_rejected {
        draft.advice(
            "or let kubelet create the container: remove the obstacle that the error \
            names",
            "none",
        );
    }
    draft.explanation = format!(
        "{why} Nothing on the node holds the pod, and there is nothing to unmount by hand."
    );
    Some(draft)
}
