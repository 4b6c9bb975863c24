//! The directory of a pod that the API server no longer knows.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;

use crate::{
    cause::{Cause, Kind, TriedWith, like, log, way},
    causes::orphan::tracker::Housekeeping,
    command::{Step, View},
    ids,
    model::{
        csi::VolumeData,
        diagnosis::Stage,
        evidence::Source,
        finding::Severity,
        identity::{Pod, Target, TargetKind},
        node::PodState,
        operation::Operation,
        path::safe_path,
        shell::word,
        time::Monotonic,
    },
    tracker::{Context, TrackerId},
    verdict::{Draft, times},
};

/// What is left of a pod that nobody knows any more.
pub(crate) static ORPHANED_POD_DIR: Cause = Cause {
    id: ids::ORPHANED_POD_DIR,
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
        like(ids::VOL_DATA_MISSING_OR_CORRUPT, "kubelet tries to remove the pod's directory"),
        like(ids::DATA_UNDER_MOUNTPOINT, "kubelet's housekeeping removes it, and no pod waits"),
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
    let view = state
        .seen_by
        .map_or(View::OURS, |(pid, namespace)| View::in_namespace(context, namespace, pid));
    tell_left(&mut draft, view, state);
    let known = "the API server has no such pod, whatever else keeps its directory";
    draft.rule_out(ids::VOL_DATA_MISSING_OR_CORRUPT, known);
    draft.rule_out(ids::DATA_UNDER_MOUNTPOINT, known);
    draft
}

/// What is left of it by the last look, and how that goes: what is mounted first.
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
            "low: removes what kubelet wrote about a volume that is not mounted, and empty directories only; kubelet \
             removes the rest",
        );
    }
    look(draft, view, &state.directory);
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
    draft.remedy(Step::new(does, list), "none; unmount that first");
}

fn look(draft: &mut Draft, view: View, directory: &Path) {
    draft.remedy(
        view.look("list the files in the way in", directory, |it| {
            format!("find {it} -xdev -type f")
        }),
        "none. Move what you need, and only then remove them: `rm -rf` \
         through a mount that is still there deletes the data behind it",
    );
}
