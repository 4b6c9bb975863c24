//! Findings about EPERM, by the attributes of the object and its directory, and by swap files: the kernel refuses to
//! remove an active one, and to unmount its file system.

use std::path::{Path, PathBuf};

use crate::{
    cause::Cause,
    causes::permission::{
        causes::{APPEND_ONLY_ATTRIBUTE, IMMUTABLE_ATTRIBUTE, PERMISSION_UNEXPLAINED, SWAP_FILE},
        tracker::Refused,
    },
    command::{NAME, Step, View},
    ids,
    model::{
        evidence::Source,
        finding::Severity,
        identity::{Component, Target, TargetKind},
        object::{Attributes, FileId},
        operation::Operation,
        path::{clip, safe_path},
    },
    query::{NoAnswer, ObjectAttributes},
    tracker::{Context, TrackerId},
    verdict::Draft,
};

pub(super) const MAY_DELETE: &str = "linux fs/namei.c, may_delete";
pub(super) const CHATTR_RISK: &str = "low: removes the protection of this one object; the owner's next attempt \
    deletes it. Ask who set it: hardening scripts do, and so do intruders";

pub(crate) fn draft(context: &Context<'_>, refused: &Refused, seen: &ObjectAttributes) -> Draft {
    let ObjectAttributes { object, directory, same_directory, sticky, files, .. } = *seen;
    if seen.swap {
        return swap_file(context, refused, files.map(|(object, _)| object));
    }
    let op = &refused.op;
    let (cause, on_directory) = match (cause_of(object), cause_of(directory)) {
        (Some(cause), _) => (cause, false),
        (None, Some(cause)) => (cause, true),
        (None, None) => {
            let mut draft = unexplained(refused, explained_by_none(seen));
            rule_out(&mut draft, object, directory);
            if sticky {
                draft.fact("the directory has the sticky bit", Source::Look("statx"));
            }
            return draft;
        }
    };
    let mut draft = Draft::about(TrackerId::Refused, cause, op);
    let (flag, word) = flag(cause);
    let (flagged, file): (PathBuf, _) = match (on_directory, op.path.parent()) {
        (true, Some(parent)) => (parent.into(), files.map(|(_, directory)| directory)),
        _ => (op.path.clone(), files.map(|(object, _)| object)),
    };
    let what = if on_directory { "the directory that holds it" } else { "the object itself" };
    draft.fact(
        format!("{what}, {}, has the {word} attribute", safe_path(&flagged)),
        Source::Look("statx"),
    );
    if same_directory {
        draft.fact(
            "it is the same directory by device and inode number as in the failed call",
            Source::Look("statx"),
        );
    }
    // A call from a log has no inode number to compare; the path identifies the object.
    if !seen.swap_unknown && (same_directory || op.logged_in.is_some()) {
        draft.rule_out(ids::SWAPFILE_ACTIVE, "the object is not an active swap file");
    }
    draft.severity = Severity::Warning;
    draft.blocks_deletion = blocks(op);
    draft.explanation = format!(
        "The file system refuses to remove an object with the {word} attribute, even for root. \
        Everything else in the volume is removed, and every attempt fails at the same place. Ask \
        who set it: hardening scripts do, and so do intruders."
    );
    if is_snapshotters(&flagged) {
        draft.explanation = "containerd's erofs snapshotter sets the immutable attribute on the layers of images, and \
            clears it before it removes one (`set_immutable` in its configuration)."
            .into();
        draft.advice(
            "leave the attribute to containerd, and read in its log why it does not clear it: a layer without it can \
             be removed while other containers use it",
            "none",
        );
        rule_out(&mut draft, object, directory);
        return draft;
    }
    draft.remedy(
        View::of(context, op)
            .on_file(&unflag(cause), &flagged, file, |it| format!("chattr -{flag} {it}")),
        "low: removes the protection of this one object; the owner's next attempt deletes it",
    );
    if let (Component::Dockerd, TargetKind::ContainerLayer, Some(container)) =
        (op.actor.component, op.target.kind, &op.target.container)
    {
        ask_dockerd_again(&mut draft, container, op.target.pod.is_some());
    }
    rule_out(&mut draft, object, directory);
    draft
}

/// Whether containerd's erofs snapshotter protects the file (plugins/snapshots/erofs, `setImmutable`, since containerd
/// 2.1): the layer of an image, which other containers may use.
fn is_snapshotters(path: &Path) -> bool {
    let is_in =
        path.components().any(|part| part.as_os_str() == "io.containerd.snapshotter.v1.erofs");
    is_in && path.file_name().is_some_and(|name| name == "layer.erofs")
}

/// Length of a container's id.
const CONTAINER_ID: usize = 64;

/// Adds the command that repeats the removal: dockerd does not retry by itself. For a pod's container, kubelet retries.
pub(super) fn ask_dockerd_again(draft: &mut Draft, container: &str, is_pods: bool) {
    let is_id = container.len() == CONTAINER_ID && container.bytes().all(|b| b.is_ascii_hexdigit());
    if is_id && !is_pods {
        draft.remedy(
            Step::new(
                format!("have dockerd remove container {} again", clip(container, NAME)),
                format!("docker rm -f {container}"),
            ),
            "none: the container's removal was begun already, and dockerd does not retry by \
            itself",
        );
    }
}

/// The attribute of an inode that forbids its removal, as a cause.
pub(super) fn cause_of(attributes: Attributes) -> Option<&'static Cause> {
    match attributes {
        Attributes { immutable: true, .. } => Some(&IMMUTABLE_ATTRIBUTE),
        Attributes { append_only: true, .. } => Some(&APPEND_ONLY_ATTRIBUTE),
        _ => None,
    }
}

/// chattr's letter of the attribute, and its name.
pub(super) fn flag(cause: &Cause) -> (&'static str, &'static str) {
    if *cause == IMMUTABLE_ATTRIBUTE { ("i", "immutable") } else { ("a", "append-only") }
}

/// The action on the object, without the object's name.
pub(super) fn unflag(cause: &Cause) -> String {
    format!("remove the {} attribute of", flag(cause).1)
}

/// Rules out attributes that are not set, if the file system reports them.
fn rule_out(draft: &mut Draft, object: Attributes, directory: Attributes) {
    if !object.known {
        draft.fact("this file system does not report both attributes", Source::Look("statx"));
        return;
    }
    let unset = [
        (object.immutable, ids::IMMUTABLE_ATTRIBUTE, "the object is not immutable"),
        (object.append_only, ids::APPEND_ONLY_ATTRIBUTE, "the object is not append-only"),
    ];
    let directory_is_plain = directory.known && !directory.immutable && !directory.append_only;
    if !directory_is_plain && draft.cause.is_admission() {
        // An attribute of the directory may be the cause.
        draft.fact(
            "the file system of its directory does not report both attributes",
            Source::Look("statx"),
        );
        return;
    }
    for (set, other, text) in unset {
        if !set {
            let also = if directory_is_plain { ", and neither is its directory" } else { "" };
            draft.rule_out(other, format!("{text}{also}"));
        }
    }
}

/// The possible reasons, if no attribute was found.
fn explained_by_none(seen: &ObjectAttributes) -> &'static str {
    match (seen.object.known && seen.directory.known, seen.swap_unknown) {
        (true, false) => {
            "no attribute explains it. Still possible: a sticky directory of another owner"
        }
        (true, true) => {
            "no attribute explains it. Still possible: an active swap file, which could not be \
            checked, a sticky directory of another owner"
        }
        (false, _) => {
            "whether an attribute explains it is not known: its file system does not report them. Possible: \
             an immutable or append-only attribute, an active swap file, a sticky directory of another owner"
        }
    }
}

/// The finding if the object could not be read.
pub(crate) fn unseen(refused: &Refused, error: &NoAnswer) -> Draft {
    let mut draft = unexplained(
        refused,
        "whether an attribute explains it is not known: the object could not be read. Possible: \
        an immutable or append-only attribute of the object or of its directory, an active swap \
        file, a sticky directory of another owner",
    );
    draft.fact(format!("the object could not be read: {error}"), Source::Look("statx"));
    draft
}

/// A finding without a cause; `reason` says what was checked, and what is still possible.
fn unexplained(refused: &Refused, reason: &str) -> Draft {
    let mut draft = Draft::about(TrackerId::Refused, &PERMISSION_UNEXPLAINED, &refused.op);
    draft.blocks_deletion = blocks(&refused.op);
    draft.explanation = format!(
        "The kernel refused the removal with EPERM, and {reason}, an owner that is not mapped in the \
         caller's user namespace, a security module."
    );
    draft
}

/// Whether the target is of a container without a pod. Whether a pod waits for the removal of its container is up to
/// kubelet.
fn waits_alone(target: &Target) -> bool {
    target.container.is_some() && target.pod.is_none()
}

/// Whether the pod, or a container without a pod, waits for this removal.
pub(crate) fn blocks(op: &Operation) -> Option<bool> {
    match (op.target.kind, op.actor.component) {
        (TargetKind::PodVolume | TargetKind::PodDirectory, _) => Some(true),
        // containerd logs a warning and retries at the next garbage collection.
        (TargetKind::ContainerLayer, Component::Containerd) => Some(false),
        // dockerd gives up, and the container stays.
        (TargetKind::ContainerLayer, Component::Dockerd) => waits_alone(&op.target).then_some(true),
        _ => None,
    }
}

/// Cause and explanation of an unmount that is refused because of a swap file.
pub(crate) fn on_unmount() -> (&'static Cause, &'static str) {
    (
        &SWAP_FILE,
        "The kernel swaps to a file of this volume, and releases neither the file nor the mount \
        until swapping is switched off.",
    )
}

/// The finding if the removal of an active swap file was refused.
fn swap_file(context: &Context<'_>, refused: &Refused, file: Option<FileId>) -> Draft {
    let op = &refused.op;
    let mut draft = Draft::about(TrackerId::Refused, &SWAP_FILE, op);
    let path = safe_path(&op.path);
    draft.fact(
        format!("{path} is an active swap file, by device and inode number"),
        Source::file("/proc/swaps"),
    );
    for other in [ids::IMMUTABLE_ATTRIBUTE, ids::APPEND_ONLY_ATTRIBUTE] {
        draft.rule_out(other, "the object of the call is the swap file");
    }
    for other in [
        ids::VOLUME_HELD_BY_HOST_PROCESS,
        ids::VOLUME_HELD_BY_HOSTTOCONTAINER_AGENT,
        ids::NESTED_MOUNT_UNDER_VOLUME,
    ] {
        draft.suffices_beside(other);
    }
    draft.blocks_deletion = blocks(op);
    draft.explanation = "The kernel swaps to this file, and refuses to remove it until swapping \
        is switched off."
        .into();
    draft.remedy(
        View::of(context, op).on_file("stop swapping to", &op.path, file, |it| format!("swapoff {it}")),
        "reads all that was swapped there back into memory: fails, or makes the node kill \
         processes, where there is too little. `swapon --show` says by which path the node knows it",
    );
    draft
}
