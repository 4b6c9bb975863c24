//! The directory of a pod that the API server no longer knows.

use std::{path::PathBuf, sync::Arc};

use jiff::Timestamp;

use crate::{
    cause::{Cause, CauseId, Kind, TriedWith, id, like, log, way},
    command::View,
    model::{
        diagnosis::Stage,
        evidence::Source,
        finding::Severity,
        identity::{Pod, Target, TargetKind},
        node::PodState,
        operation::Operation,
        path::{safe_path, shell_word},
        time::Monotonic,
    },
    tracker::{Context, TrackerId},
    trackers::orphan::Housekeeping,
    verdict::{Draft, times},
};

/// What is left of a pod that nobody knows any more.
pub(crate) static ORPHANED_POD_DIR: Cause = Cause {
    id: CauseId::new("orphaned-pod-dir"),
    title: "the directory of a pod that is long gone; holds up no pod",
    stage: Stage::Directories,
    kind: Kind::Cause,
    meaning: "The API server does not know the pod any more. kubelet tries every two seconds to \
        remove what is left of its directory, by `rmdir` alone, so that no data are lost. A file in \
        a volume is enough to make that fail for ever. It costs a line in kubelet's log.",
    confirmed_by: &[
        "kubelet removes the pod's `volumes` directory by rmdir alone, every two seconds",
        "it unmounts nothing and removes no file of the pod",
        "or the API server, asked by `--api`, has no such pod on this node",
    ],
    log: log("kubelet", "orphaned pod ... found, but"),
    look_alikes: &[
        like("vol-data-missing-or-corrupt", "kubelet tries to remove the pod's directory"),
        like("data-under-mountpoint", "kubelet's housekeeping removes it, and no pod waits"),
    ],
    ways_out: &[way(
        "move away what is in it",
        "look for mounts below it first: `rm -rf` through a mount deletes the data behind it",
    )],
    field: &["kubernetes#60987", "kubernetes#105536"],
    tried: &[TriedWith::Lab],
    source: &["kubernetes pkg/kubelet/kubelet_volumes.go, cleanupOrphanedPodDirs"],
};

/// The API server's own word.
pub(crate) fn missing(
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
    draft.fact("it has no pod of this UID on this node", Source::Api(read));
    let directory = safe_path(&state.directory);
    draft.fact(format!("{directory} is still there"), Source::file(directory));
    if let Some((path, errno)) = obstacle {
        let fact = format!("{} is in the way: rmdir fails with {errno}", safe_path(path));
        draft.fact(fact, Source::Probe);
    }
    draft.explanation = "The API server does not know this pod any more, so it is not Terminating, and \
        nobody waits for it: what is left is its directory, and what may be mounted or run in it. A pod \
        that was deleted by force is in this state as long as kubelet goes on with it."
        .into();
    draft.remedy(
        format!("grep -F -- {} /proc/self/mountinfo", shell_word(&state.directory)),
        "none: lists what is still mounted below; unmount that first",
    );
    let known = "the API server has no such pod, whatever else keeps its directory";
    draft.rule_out(id!("vol-data-missing-or-corrupt"), known);
    draft.rule_out(id!("data-under-mountpoint"), known);
    draft
}

/// No pod waits for anything of one that the API server does not have.
pub(crate) fn nobody_waits(draft: &mut Draft, read: Timestamp) {
    if draft.blocks_deletion == Some(true) {
        draft.blocks_deletion = Some(false);
        draft.fact("it has no such pod on this node: nobody waits for it", Source::Api(read));
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
        draft.fact(
            format!("{} is in the way: rmdir fails with {errno}", safe_path(path)),
            Source::Probe,
        );
    }
    draft.explanation = "The API server does not know this pod any more, so it is not Terminating: \
        what is left is its directory, which kubelet cannot remove because something lies in it. It \
        costs a line in kubelet's log every two seconds, and it holds no other pod up."
        .into();
    let directory = op.path.parent().unwrap_or(&op.path);
    draft.remedy(
        format!("grep -F -- {} {}", shell_word(directory), View::of(context, op).table()),
        "none: lists what is still mounted below; unmount that first",
    );
    draft.remedy(
        View::of(context, op).look(directory, |it| format!("find {it} -xdev -type f")),
        "none: lists the files in the way. Move what you need, and only then remove them: `rm -rf` \
         through a mount that is still there deletes the data behind it",
    );
    draft.rule_out(
        id!("vol-data-missing-or-corrupt"),
        "kubelet removes nothing of a pod whose volume it cannot read",
    );
    draft.rule_out(
        id!("data-under-mountpoint"),
        "it is kubelet's housekeeping, which removes the whole directory by rmdir alone",
    );
    draft
}
