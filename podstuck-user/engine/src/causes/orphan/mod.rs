//! The directory of a pod that the API server no longer knows, by its answer or by kubelet's calls. kubelet tries every
//! two seconds to remove it (`cleanupOrphanedPodDirs`), by `rmdir` alone, so that no data are lost: a file in a volume,
//! such as `vol_data.json`, makes that fail for ever. No pod waits for it.

mod logged;

use crate::cause::Origin;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use logged::Logged;

use crate::{
    backoff::Attempts,
    bounded::Bounded,
    cause::{Cause, Kind, TriedWith, absent, like, log, or_seen, seen, way},
    command::{Step, View},
    event::{Event, What},
    family::Family,
    ids,
    model::{
        call::Call,
        csi::VolumeData,
        degraded::Feed,
        diagnosis::Stage,
        evidence::Source,
        finding::Severity,
        identity::{Component, Pod, Target, TargetKind},
        node::{NodeSample, PodState},
        operation::Operation,
        path::safe_path,
        shell::word,
        time::Monotonic,
    },
    tracker::{Claim, Context, Steps, Subject, Tracker, TrackerId, TrackerSpec},
    verdict::{Draft, Verdict, times},
};

/// The family's causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[&ORPHANED_POD_DIR],
    trackers: &[TrackerSpec {
        id: TrackerId::Orphan,
        feeds: &[Feed::Calls, Feed::Node, Feed::Logs],
        yields: &[],
        new: || Box::<Orphans>::default(),
    }],
};

/// Pods followed.
const PODS: usize = 1024;
/// Attempts before the finding. A pod that is deleted normally sees one.
const ATTEMPTS_NEEDED: u64 = 3;
/// kubelet's housekeeping runs every two seconds; after a pause this long, it has stopped.
const TOO_LONG: Duration = Duration::from_secs(10);

/// kubelet's housekeeping on one pod's directory.
pub(crate) struct Housekeeping {
    /// The attempts, by time.
    pub(crate) attempts: Attempts,
    /// The first attempt.
    pub(crate) first: Monotonic,
    last: Monotonic,
    target_id: u64,
    /// The path that could not be removed last, and the error.
    pub(crate) obstacle: Option<(PathBuf, String)>,
    reported: bool,
}

/// A pod that the API server does not have, by its own answer.
struct Missing {
    pod: Pod,
    /// When the API server answered.
    read: Timestamp,
    /// The target of the finding, while it is reported.
    reported: Option<u64>,
}

/// Pods on which kubelet's housekeeping works, by UID, and those that the API server does not have.
#[derive(Default)]
pub(crate) struct Orphans {
    pods: Bounded<String, Housekeeping, PODS>,
    missing: Vec<Missing>,
    logged: Logged,
}

impl Orphans {
    fn observe(&mut self, context: &Context<'_>, op: &Operation) -> Option<Draft> {
        let uid = &op.target.pod.as_ref()?.uid;
        if op.actor.component != Component::Kubelet {
            return None;
        }
        let volumes = volumes_of(op, uid)?;
        if op.call != Call::UnlinkatDir {
            // Files are removed and mounts unmounted for pods that are still known.
            if op.path.starts_with(&volumes) {
                self.pods.remove(uid);
            }
            return None;
        }
        if op.path == volumes && op.outcome.errno().is_some() {
            return self.attempt(context, uid.clone(), op);
        }
        // A failure after the attempt on `volumes` is the obstacle; the last one is the deepest.
        if op.path.starts_with(&volumes)
            && op.outcome.errno().is_some()
            && let Some(pod) = self.pods.get_mut(uid)
        {
            pod.obstacle = Some((op.path.clone(), op.outcome.name()));
        }
        None
    }

    fn attempt(&mut self, context: &Context<'_>, uid: String, op: &Operation) -> Option<Draft> {
        let pod = self.pods.or_insert_with(uid.clone(), || Housekeeping {
            attempts: Attempts::default(),
            first: op.end,
            last: op.end,
            target_id: op.target_id,
            obstacle: None,
            reported: false,
        });
        if op.end.since(pod.last) > TOO_LONG {
            pod.attempts = Attempts::default();
            pod.first = op.end;
        }
        pod.attempts.note(op.end);
        pod.last = op.end;
        // The API server's answer needs no attempts, and is reported at the next sample.
        let is_said = self.missing.iter().any(|missing| missing.pod.uid == uid);
        if pod.attempts.count() < ATTEMPTS_NEEDED || is_said {
            return None;
        }
        pod.reported = true;
        Some(draft(context, pod, op))
    }

    /// Reports pods that the API server does not have and that have a directory here.
    fn look(&mut self, context: &Context<'_>, sample: &NodeSample, steps: &mut Steps) {
        for missing in &mut self.missing {
            let here = sample.pod(&missing.pod.uid);
            match (here, missing.reported) {
                (Some(state), None) => {
                    let obstacle =
                        self.pods.get(&missing.pod.uid).and_then(|pod| pod.obstacle.as_ref());
                    let pod = (state, &missing.pod);
                    let draft = draft_of_missing(context, pod, missing.read, obstacle, sample.at);
                    missing.reported = Some(draft.target_id);
                    steps.found(Some(draft));
                }
                (None, Some(target_id)) => {
                    missing.reported = None;
                    let tracker = TrackerId::Orphan;
                    steps.say([Verdict::Over { tracker, target_id, at: sample.at }]);
                }
                _ => {}
            }
        }
        // A pod without a directory here does not come back.
        self.missing.retain(|missing| sample.may_have_pod(&missing.pod.uid));
    }

    /// Clears pods on which housekeeping has stopped: their directory is gone.
    fn over(&mut self, now: Monotonic, steps: &mut Steps) {
        let tracker = self.id();
        self.pods.retain(|_, pod| {
            let over = now.since(pod.last) > TOO_LONG;
            if over && pod.reported {
                steps.say([Verdict::Over { tracker, target_id: pod.target_id, at: now }]);
            }
            !over
        });
    }
}

impl Tracker for Orphans {
    fn id(&self) -> TrackerId {
        TrackerId::Orphan
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Operation(op) => steps.found(self.observe(context, op)),
            What::Sample(sample) => {
                self.over(sample.at, steps);
                self.look(context, sample, steps);
                let (pods, missing) = (&self.pods, &self.missing);
                let is_known = |uid: &str| {
                    pods.iter().any(|(known, pod)| known == uid && pod.reported)
                        || missing.iter().any(|it| it.pod.uid == uid && it.reported.is_some())
                };
                self.logged.look(context, sample, is_known, steps);
            }
            What::Said(said) => self.logged.listen(context, said),
            What::Node(node) => {
                for pod in &node.missing {
                    if !self.missing.iter().any(|known| known.pod == *pod) {
                        self.missing.push(Missing {
                            pod: pod.clone(),
                            read: node.read,
                            reported: None,
                        });
                    }
                }
            }
            _ => {}
        }
    }

    /// Suspicion: housekeeping ran on this pod lately. Finding: the pod was reported as an orphan.
    fn explains(&self, subject: &Subject<'_>, claim: Claim) -> bool {
        self.logged.is_found(subject.pod)
            || self.pods.get(subject.pod).is_some_and(|pod| match claim {
                Claim::Suspicion => subject.at.since(pod.last) <= TOO_LONG,
                Claim::Finding => pod.reported,
            })
    }

    fn dropped(&self) -> u64 {
        self.pods.dropped() + self.logged.dropped()
    }
}

/// `<kubelet root>/pods/<uid>/volumes`
fn volumes_of(op: &Operation, uid: &str) -> Option<PathBuf> {
    let pod = op.path.ancestors().find(|path| path.ends_with(uid))?;
    Some(pod.join("volumes"))
}

/// The directory of a pod that no longer exists.
pub(crate) static ORPHANED_POD_DIR: Cause = Cause {
    id: ids::ORPHANED_POD_DIR,
    title: "the directory of a pod that no longer exists; blocks no pod",
    stage: Stage::Directories,
    kind: Kind::Cause,
    meaning: "The API server no longer has the pod. kubelet tries every two seconds to remove \
        the rest of its directory, by `rmdir` alone, so that no data are lost. One file in a \
        volume makes that fail forever. Each attempt adds a line to kubelet's log.",
    confirmed_by: &[
        seen(
            "kubelet removes the pod's `volumes` directory by rmdir alone, every two seconds",
            &[Origin::Calls],
        ),
        absent("it unmounts nothing and removes no file of the pod", Feed::Calls),
        or_seen(
            "or the API server, asked by `--api`, has no such pod on this node",
            &[Origin::Api],
        ),
        or_seen(
            "or kubelet's log says at each attempt that the pod is orphaned, and what kubelet \
            cannot remove",
            &[Origin::Log],
        ),
    ],
    log: log("kubelet", "orphaned pod ... found, but"),
    look_alikes: &[
        like(ids::VOL_DATA_MISSING_OR_CORRUPT, "kubelet tries to remove the pod's directory"),
        like(ids::DATA_UNDER_MOUNTPOINT, "kubelet's housekeeping removes it, and no pod waits"),
    ],
    ways_out: &[
        way(
            "move its contents away",
            "look for mounts below it first: `rm -rf` through a mount deletes the data behind it",
        ),
        way("remove an empty file where kubelet expects a directory", ""),
    ],
    field: &["kubernetes#60987", "kubernetes#105536", "kubernetes#106942"],
    tried: &[TriedWith::Lab, TriedWith::Test],
    source: &["kubernetes pkg/kubelet/kubelet_volumes.go, cleanupOrphanedPodDirs"],
};

/// The finding by the API server's answer.
fn draft_of_missing(
    context: &Context<'_>,
    (state, pod): (&PodState, &Pod),
    read: Timestamp,
    obstacle: Option<&(PathBuf, String)>,
    at: Monotonic,
) -> Draft {
    let target = Target {
        kind: TargetKind::PodDirectory,
        root: state.directory.clone(),
        pod: Some(pod.clone()),
        ..Target::unknown()
    };
    let id = podstuck_common::component::name_hash(state.uid.as_bytes());
    let (cause, path) = (&ORPHANED_POD_DIR, state.directory.clone());
    let mut draft = Draft::about_state(TrackerId::Orphan, cause, id, Arc::new(target), path, at);
    draft.severity = Severity::Info;
    draft.blocks_deletion = Some(false);
    draft.fact("the API server has no pod of this UID on this node", Source::Api(read));
    let directory = safe_path(&state.directory);
    draft.fact(format!("{directory} is still there"), Source::file(directory));
    if let Some((path, errno)) = obstacle {
        let fact = format!("rmdir of {} fails with {errno}", safe_path(path));
        draft.fact(fact, Source::Probe);
    }
    draft.explanation = "The API server no longer has this pod, so the pod is not Terminating, \
        and nothing waits for it. Its directory is left, perhaps with mounts and processes. A \
        pod that was deleted by force is in this state until kubelet has ended it."
        .into();
    let view = state
        .seen_by
        .map_or(View::OURS, |(pid, namespace)| View::in_namespace(context, namespace, pid));
    tell_left(&mut draft, view, state);
    let known = "the API server has no such pod";
    draft.rule_out(ids::VOL_DATA_MISSING_OR_CORRUPT, known);
    draft.rule_out(ids::DATA_UNDER_MOUNTPOINT, known);
    draft
}

/// Adds what is left of the pod in the last sample, and the remedies: mounts come first.
fn tell_left(draft: &mut Draft, view: View, state: &PodState) {
    let mounts = state.volumes.iter().flat_map(|volume| &volume.mounts);
    let mut is_mounted = false;
    for mount in mounts {
        let fact = format!("{} is still mounted: {}", safe_path(&mount.point), mount.what);
        draft.fact(fact, Source::mountinfo(&mount.source));
        is_mounted = true;
    }
    if is_mounted {
        mounted_below(draft, view, &state.directory);
        look(draft, view, &state.directory);
        return;
    }
    for volume in &state.volumes {
        let directory = safe_path(&volume.path);
        let data = volume.csi.as_ref().map(|csi| &csi.data);
        if !matches!(data, Some(VolumeData::Known { .. } | VolumeData::Corrupt { .. })) {
            let fact = format!("{directory} is left, and nothing is mounted in it");
            draft.fact(fact, Source::file("kubelet's directory"));
            continue;
        }
        draft.fact(
            format!("{directory}/vol_data.json is left, and nothing is mounted for the volume"),
            Source::file("kubelet's directory"),
        );
        let verb = "remove kubelet's vol_data.json and empty directories in";
        let clear = view.on_file(verb, &volume.path, volume.file, |it| {
            format!("rm -f {it}/vol_data.json && find {it} -depth -type d -empty -delete")
        });
        draft.remedy(
            clear,
            "low: removes only kubelet's file about a volume that is not mounted, and empty \
            directories; kubelet removes the rest",
        );
    }
    look(draft, view, &state.directory);
}

/// Marks a finding about a pod that the API server does not have: no pod waits for it.
pub(crate) fn blocks_no_pod(draft: &mut Draft, read: Timestamp) {
    if draft.blocks_deletion == Some(true) {
        draft.blocks_deletion = Some(false);
        draft.fact(
            "the API server has no such pod on this node: nothing waits for the pod",
            Source::Api(read),
        );
    }
}

pub(crate) fn draft(context: &Context<'_>, pod: &Housekeeping, op: &Operation) -> Draft {
    let mut draft = Draft::about(TrackerId::Orphan, &ORPHANED_POD_DIR, op);
    draft.severity = Severity::Info;
    draft.blocks_deletion = Some(false);
    draft.count = pod.attempts.count();
    draft.first = pod.first;
    draft.fact(
        format!(
            "kubelet tried {} in {:.0} s to remove the pod's volumes by rmdir alone, and unmounted \
             nothing",
            times(draft.count),
            op.end.since(pod.first).as_secs_f64()
        ),
        Source::Probe,
    );
    if let Some((path, errno)) = &pod.obstacle {
        draft.fact(format!("rmdir of {} fails with {errno}", safe_path(path)), Source::Probe);
    }
    draft.explanation = "The API server no longer has this pod, so the pod is not Terminating. \
        Only its directory is left, which kubelet cannot remove because of its contents. This \
        adds a line to kubelet's log every two seconds, and blocks no other pod."
        .into();
    let directory = op.path.parent().unwrap_or(&op.path);
    let uid = op.target.pod.as_ref().map_or("", |pod| pod.uid.as_str());
    match context.sample.and_then(|sample| sample.pod(uid)) {
        Some(state) => tell_left(&mut draft, View::of(context, op), state),
        None => {
            mounted_below(&mut draft, View::of(context, op), directory);
            look(&mut draft, View::of(context, op), directory);
        }
    }
    draft.rule_out(
        ids::VOL_DATA_MISSING_OR_CORRUPT,
        "kubelet removes nothing of a pod whose volume it cannot read",
    );
    draft.rule_out(
        ids::DATA_UNDER_MOUNTPOINT,
        "it is kubelet's housekeeping, which removes the whole directory by rmdir alone",
    );
    draft
}

fn mounted_below(draft: &mut Draft, view: View, directory: &Path) {
    let list = format!("grep -F -- {} {}", word(directory), view.table());
    let does = view.says("list what is still mounted below", directory);
    draft.remedy(Step::new(does, list), "none; unmount these first");
}

fn look(draft: &mut Draft, view: View, directory: &Path) {
    draft.remedy(
        view.look("list the files in", directory, |it| format!("find {it} -xdev -type f")),
        "none. Move what you need, and only then remove them: `rm -rf` \
         through a mount that is still there deletes the data behind it",
    );
}

#[cfg(test)]
mod tests;
