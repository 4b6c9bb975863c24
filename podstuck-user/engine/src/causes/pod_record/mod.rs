//! Findings from the pod's record at the API server: whether the pod is stuck at all, and whether this node is the place
//! to look. Each sample judges the record again by how far the deletion has come on this node: the record stays the
//! same, while the node makes progress.

mod grace;
mod mirror;
mod refused;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;

use crate::{
    bounded::Bounded,
    cause::{Cause, Kind, Origin, TriedWith, absent, like, seen, way},
    command::{NAME, Step},
    event::{Event, What},
    family::Family,
    ids,
    kubelet_steps::{self, NotAsked},
    model::{
        chain::Who,
        degraded::Feed,
        diagnosis::Stage,
        evidence::Source,
        finding::{Finding, Severity},
        identity::Component,
        node::NodeSample,
        path::{clip, safe},
        pod_group::PodGroup,
        pod_record::PodRecord,
        said::Said,
        shell::{is_object_name, word},
        time::Monotonic,
    },
    stage,
    tracker::{Context, Steps, Tracker, TrackerId, TrackerSpec},
    verdict::{Draft, Verdict},
};

pub(crate) use grace::IN_GRACE;
pub(crate) use mirror::MIRROR;
pub(crate) use refused::STATUS_REFUSED;

/// The family's causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[
        &FINALIZER,
        &NOT_DELETED,
        &grace::IN_GRACE,
        &NOT_ON_THIS_NODE,
        &mirror::MIRROR,
        &refused::STATUS_REFUSED,
    ],
    trackers: &[
        TrackerSpec {
            id: TrackerId::PodRecord,
            feeds: &[Feed::Node, Feed::Logs],
            yields: &[],
            new: || Box::<PodRecords>::default(),
        },
        TrackerSpec {
            id: TrackerId::StatusRefused,
            feeds: &[Feed::Node, Feed::Logs],
            yields: &[],
            new: || Box::<refused::StatusRefusals>::default(),
        },
    ],
};

/// Containers remembered whose log names a pod.
const NAMED: usize = 256;

/// The records of pods, and the last sample of the node.
#[derive(Default)]
pub(crate) struct PodRecords {
    sample: Option<Arc<NodeSample>>,
    /// The records, by UID.
    records: BTreeMap<String, Known>,
    /// This machine's nodes at the API server, by name, with kubelet's minor version.
    nodes: BTreeMap<String, Option<u32>>,
    /// By UID and log: the last complaint about the pod in the log of another container.
    named: Bounded<(String, String), Said, NAMED>,
}

/// One pod's record.
struct Known {
    record: PodRecord,
    /// The name of this node.
    node: String,
    /// The target of the current finding.
    reported: Option<u64>,
    /// Whether the node had not finished the pod when the record was read.
    was_left: bool,
}

impl PodRecords {
    fn judge(&mut self, context: &Context<'_>, steps: &mut Steps) {
        let sample = self.sample.as_deref();
        let (nodes, named) = (&self.nodes, &self.named);
        for (uid, known) in &mut self.records {
            let all = named.iter().filter(|((of, _), _)| of == uid).map(|(_, said)| said);
            let named_by = all.max_by_key(|said| (said.times > 1, said.at));
            known.judge((sample, nodes), named_by, context, steps);
        }
    }
}

impl Known {
    fn judge(
        &mut self,
        (sample, nodes): (Option<&NodeSample>, &BTreeMap<String, Option<u32>>),
        named_by: Option<&Said>,
        context: &Context<'_>,
        steps: &mut Steps,
    ) {
        let Self { record, node, .. } = &*self;
        let kubelet = nodes.get(node);
        let now = context.calendar;
        let grace = Duration::from_secs(record.grace_s);
        let requested = kubelet_steps::requested(record);
        let not_asked = context.kubelet_steps.not_asked(&record.pod.uid, requested, grace, now);
        let not_asked = not_asked.as_ref().filter(|it| it.received.is_some());
        // `None` before the first sample.
        let stage = sample.and_then(|sample| stage::stage(&record.pod, sample));
        let stage = stage.map(|known| known.stage);
        let was_left = self.was_left || stage.is_some_and(|stage| stage < Stage::Directories);
        let group = sample.and_then(|it| it.cgroups.iter().find(|it| it.uid == record.pod.uid));
        let at = context.now;
        let has_kubelet = sample.is_some_and(|sample| !sample.kubelets.is_empty());
        let stop_ends = context.kubelet_steps.stop_ends(&record.pod.uid);
        let here = Here {
            node,
            is_named: kubelet.is_some(),
            has_kubelet,
            kubelet: kubelet.copied().flatten(),
            stage,
            was_left,
            group,
            not_asked,
            stop_ends,
            named_by,
            now,
            at,
        };
        let found = verdict(record, here);
        let reported = found.as_ref().map(|draft| draft.target_id);
        if let (Some(target_id), None) = (self.reported, reported) {
            let tracker = TrackerId::PodRecord;
            steps.say([Verdict::Over { tracker, target_id, at: context.now }]);
        }
        (self.reported, self.was_left) = (reported, was_left);
        steps.found(found);
    }
}

impl Tracker for PodRecords {
    fn id(&self) -> TrackerId {
        TrackerId::PodRecord
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Sample(sample) => {
                self.sample = Some(sample.clone());
                self.judge(context, steps);
            }
            What::Record { record, node } => {
                let (record, node) = (PodRecord::clone(record), node.clone());
                // The progress of the node counts from when this record was read.
                let before = self.records.remove(&record.pod.uid);
                let (reported, was_left) = (before.and_then(|it| it.reported), false);
                let known = Known { record, node, reported, was_left };
                self.records.insert(known.record.pod.uid.clone(), known);
                // The meaning of the record depends on the node; without a sample, the first one follows soon.
                if self.sample.is_some() {
                    self.judge(context, steps);
                }
            }
            What::Said(said) if said.component == Component::Workload => {
                self.named.insert((said.uid.clone(), said.source.clone()), Said::clone(said));
                if self.sample.is_some() {
                    self.judge(context, steps);
                }
            }
            // The records no longer exist.
            What::Node(node) => {
                self.nodes.insert(node.node.clone(), node.kubelet_minor());
                let gone = node.missing.iter().filter_map(|pod| self.records.remove(&pod.uid));
                let tracker = TrackerId::PodRecord;
                let over = gone.filter_map(|known| known.reported);
                steps.say(over.map(|target_id| Verdict::Over {
                    tracker,
                    target_id,
                    at: context.now,
                }));
            }
            // The samples may hang. Then only the record is available.
            What::WindowEnded if self.sample.is_none() => self.judge(context, steps),
            _ => {}
        }
    }
}

const WHO: &str = "see the finding";

/// A finalizer keeps the record.
pub(crate) static FINALIZER: Cause = Cause {
    id: ids::POD_FINALIZER,
    title: "a finalizer is set, and the node has done its part (according to the API server or `--pod-json`)",
    stage: Stage::Gone,
    kind: Kind::Cause,
    meaning: "The pod's record has a finalizer. The API server keeps the record until the \
        client that set it, mostly a controller, removes it. It is the cause only when the node has done its \
        part, or when the record's deletionGracePeriodSeconds is 0, after which only finalizers keep a record.",
    confirmed_by: &[
        seen("metadata.finalizers of the record is not empty", &[Origin::Api]),
        absent("nothing of the pod is left on its node", Feed::Node),
    ],
    log: None,
    look_alikes: &[],
    ways_out: &[
        way(WHO, ""),
        way("remove the finalizer from the record", "skips the clean-up of its controller"),
    ],
    field: &[
        "TKE's guide to pods that stay Terminating",
        "kubernetes#121828",
        "kubernetes#127917",
        "juicefs-csi-driver#1208",
    ],
    tried: &[TriedWith::RealKubelet, TriedWith::Recording],
    source: &[
        "kubernetes pkg/registry/core/pod/strategy.go",
        "kubernetes pkg/kubelet/status/status_manager.go, canBeDeleted",
    ],
};

/// No deletion was requested.
pub(crate) static NOT_DELETED: Cause = Cause {
    id: ids::POD_NOT_DELETED,
    title: "the pod is not being deleted (according to the API server or `--pod-json`)",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The record has no deletionTimestamp: no deletion of the pod was requested, or the \
        request was refused. A PodDisruptionBudget makes an eviction wait.",
    confirmed_by: &[seen("the record has no metadata.deletionTimestamp", &[Origin::Api])],
    log: None,
    look_alikes: &[like(ids::UNMOUNT_NOT_ATTEMPTED, "the pod's record has no deletionTimestamp")],
    ways_out: &[way(WHO, "")],
    field: &[],
    tried: &[TriedWith::RealKubelet],
    source: &["kubernetes pkg/registry/core/pod/storage/eviction.go"],
};

/// The pod is on another node.
pub(crate) static NOT_ON_THIS_NODE: Cause = Cause {
    id: ids::POD_NOT_ON_THIS_NODE,
    title: "the pod runs on another node (according to the API server or `--pod-json`)",
    stage: Stage::Gone,
    kind: Kind::Cause,
    meaning: "The record names another node, and nothing of the pod is here. If that node is \
        down, its kubelet cannot report that the containers have ended, and the pod stays until \
        kubelet can, or until the node is deleted.",
    confirmed_by: &[
        seen("spec.nodeName is another node", &[Origin::Api]),
        absent("this node has nothing of the pod", Feed::Node),
    ],
    log: None,
    look_alikes: &[],
    ways_out: &[way("look on that node", "")],
    field: &[],
    tried: &[TriedWith::Test],
    source: &["kubernetes pkg/controller/podgc/gc_controller.go"],
};

/// The node and the state by which a record is judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here<'a> {
    /// This node's name.
    pub(crate) node: &'a str,
    /// Whether the name is that at the API server, and not only the host's own.
    pub(crate) is_named: bool,
    /// Whether a kubelet runs here.
    pub(crate) has_kubelet: bool,
    /// kubelet's minor version of Kubernetes 1, if known.
    pub(crate) kubelet: Option<u32>,
    /// How far the deletion has come here, if that is known.
    pub(crate) stage: Option<Stage>,
    /// Whether the node finished the pod only after the record was read.
    pub(crate) was_left: bool,
    /// The pod's processes; `None` if they were not read.
    pub(crate) group: Option<&'a PodGroup>,
    /// Set if kubelet has received the deletion and has not asked the runtime to stop a container.
    pub(crate) not_asked: Option<&'a NotAsked<'a>>,
    /// When the last grace period ends that kubelet gave the runtime for a container, and the log.
    pub(crate) stop_ends: Option<(Timestamp, &'a str)>,
    /// The last complaint about the pod in the log of another container of the node.
    pub(crate) named_by: Option<&'a Said>,
    /// The current time.
    pub(crate) now: Timestamp,
    /// The current time by the kernel's clock.
    pub(crate) at: Monotonic,
}

impl Here<'_> {
    /// Whether SIGKILL was sent to a process of the pod; `None` if its processes were not read.
    fn is_killed(self) -> Option<bool> {
        self.group.map(|group| group.tasks.iter().any(|task| task.killed))
    }
}

/// The finding that the record shows, if any.
pub(crate) fn verdict(record: &PodRecord, here: Here<'_>) -> Option<Draft> {
    let Some(deletion) = record.deletion else { return Some(not_deleted(record, here)) };
    if here.now < deletion {
        return Some(grace::in_grace(record, here, deletion));
    }
    let is_here = record.node.as_ref().is_none_or(|node| node == here.node);
    if here.stage == Some(Stage::Containers)
        && here.is_killed() == Some(false)
        && is_here
        && !record.is_mirror
        && let Some(draft) = grace::in_stop(record, here, deletion)
    {
        return Some(draft);
    }
    let nothing_left = matches!(here.stage, Some(Stage::Directories | Stage::Gone));
    let elsewhere = record.node.as_deref().filter(|node| *node != here.node);
    match elsewhere {
        Some(node) if here.stage == Some(Stage::Gone) => Some(not_here(record, here, node)),
        None if mirror::runs_on(record, here) => Some(mirror::draft(record, here)),
        _ if !record.finalizers.is_empty() => Some(finalizer(record, here, nothing_left)),
        _ => None,
    }
}

fn draft(cause: &'static Cause, record: &PodRecord, here: Here<'_>) -> Draft {
    let pod = record.pod.clone();
    let mut draft = Draft::about_pod(TrackerId::PodRecord, cause, pod, None, here.at);
    draft.severity = Severity::Info;
    draft
}

fn not_deleted(record: &PodRecord, here: Here<'_>) -> Draft {
    let mut draft = draft(&NOT_DELETED, record, here);
    draft.blocks_deletion = Some(false);
    draft.fact("it has no metadata.deletionTimestamp", of(record));
    draft.rule_out(ids::UNMOUNT_NOT_ATTEMPTED, "no deletion of the pod was requested");
    draft.explanation = "No deletion of the pod was requested, or the request was refused: \
        a PodDisruptionBudget makes an eviction wait."
        .into();
    draft
}

fn not_here(record: &PodRecord, here: Here<'_>, node: &str) -> Draft {
    let mut draft = draft(&NOT_ON_THIS_NODE, record, here);
    draft.blocks_deletion = Some(false);
    let node = safe(node.as_bytes());
    draft.fact(format!("spec.nodeName is {node}, and this node is {}", here.node), of(record));
    draft.fact(
        "this node has no directory, cgroup or mount of the pod",
        Source::file("kubelet's directories"),
    );
    if !here.is_named {
        draft.doubt(
            "the name of this node in Kubernetes: its record was not read, and kubelet can give \
            it another name than the host's (--hostname-override)",
        );
    }
    draft.explanation = format!(
        "Look on {node}. If that node is down, its kubelet cannot report that the containers \
        have ended, and the pod stays until kubelet can, or until the node is deleted."
    );
    draft
}

fn finalizer(record: &PodRecord, here: Here<'_>, nothing_left: bool) -> Draft {
    let mut draft = draft(&FINALIZER, record, here);
    draft.severity = Severity::Warning;
    draft.blocks_deletion = Some(true);
    for name in &record.finalizers {
        draft.held_by(Who::object(format!("the finalizer {}", safe(name.as_bytes()))));
        draft.fact(
            format!("the finalizer {} is set: {}", safe(name.as_bytes()), owner(name)),
            of(record),
        );
    }
    if nothing_left {
        draft.fact(
            "nothing of the pod is left on this node to wait for",
            Source::file("kubelet's directories"),
        );
        if record.all_terminated {
            draft.fact("all its containers have ended", of(record));
        }
        if !here.has_kubelet && here.stage == Some(Stage::Gone) {
            draft.doubt(
                "whether the node has done its part: no kubelet runs, and podstuck searches only \
                the usual and the configured directories for pods",
            );
        }
        if here.was_left {
            draft.doubt("whether it is still set: the node was not done when the record was read");
        }
        draft.explanation = "The node has done its part. The record stays until the controller \
            that set the finalizer removes it: look at that controller first."
            .into();
    } else {
        draft.is_later = true;
        match here.stage {
            Some(_) => draft.fact(
                "something of the pod is left on this node, and holds the pod first",
                Source::Samples,
            ),
            None => draft.lacks("whether anything of the pod is left on this node"),
        }
        draft.explanation =
            "The node has not done its part yet. The finalizer holds the pod only after that."
                .into();
    }
    if nothing_left {
        let find = "find out why the controller of the finalizer does not remove it";
        let act = match here.named_by {
            Some(said) => {
                let writer = said.writer();
                draft.fact(said.quote(writer), Source::Log(said.source.clone()));
                format!(
                    "{find}: {writer}, a container on this node, logs an error about the pod, and may be that controller"
                )
            }
            None => format!("{find}: its log names the pod"),
        };
        draft.advice(act, "none");
        remove(&mut draft, record);
    }
    draft
}

/// Adds the commands that remove the finalizers: the last first, since a removal moves those behind it; each tests the
/// name.
fn remove(draft: &mut Draft, record: &PodRecord) {
    let (Some(namespace), Some(name)) = (&record.pod.namespace, &record.pod.name) else { return };
    if !is_object_name(namespace) || !is_object_name(name) {
        return;
    }
    let plain =
        |name: &String| name.bytes().all(|b| b.is_ascii_graphic() && !b"'\"\\!".contains(&b));
    let all = record.finalizers.iter().enumerate().rev();
    let uid = &record.pod.uid;
    for (at, finalizer) in all.filter(|(_, finalizer)| plain(finalizer) && plain(uid)) {
        let patch = format!(
            "[{{\"op\":\"test\",\"path\":\"/metadata/uid\",\"value\":\"{uid}\"}},\
             {{\"op\":\"test\",\"path\":\"/metadata/finalizers/{at}\",\"value\":\"{finalizer}\"}},\
             {{\"op\":\"remove\",\"path\":\"/metadata/finalizers/{at}\"}}]"
        );
        let patch = word(patch);
        let command =
            format!("kubectl --namespace {namespace} patch pod {name} --type=json -p {patch}");
        let risk = format!("skips the clean-up of the controller of {finalizer}");
        let guard = format!("the pod is still {uid}, and the finalizer {finalizer}");
        let does = format!("remove the finalizer {} from the pod", clip(finalizer, NAME));
        draft.remedy(Step::new(does, command), risk).guard = Some(guard);
    }
}

/// Whether a finding says that no deletion was requested.
pub(crate) fn says_to_stay(finding: &Finding) -> bool {
    finding.id == NOT_DELETED.id
}

/// The source of facts from the record: the API server if podstuck read it itself.
fn of(record: &PodRecord) -> Source {
    record.read.map_or(Source::Record, Source::Api)
}

/// The component that removes this finalizer, as words.
fn owner(finalizer: &str) -> &'static str {
    match finalizer {
        "batch.kubernetes.io/job-tracking" => "the Job controller removes it",
        "foregroundDeletion" | "orphan" => "the garbage collector waits for dependents",
        _ => "the controller of that name removes it",
    }
}

#[cfg(test)]
mod tests;
