//! A swap file that is in use: the kernel refuses to remove it, and to unmount what it lies on.

use crate::{
    cause::{Cause, Kind, TriedWith, like, way},
    causes::permission::{refused::blocks, refused_tracker::Refused},
    command::View,
    ids,
    model::{diagnosis::Stage, evidence::Source, object::FileId, path::safe_path},
    tracker::{Context, TrackerId},
    verdict::Draft,
};

/// The kernel holds the file itself.
pub(crate) static SWAP_FILE: Cause = Cause {
    id: ids::SWAPFILE_ACTIVE,
    title: "the kernel swaps to a file of the volume",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A file of the volume is an active swap file. The kernel lets neither the file be \
        removed (EPERM) nor its file system be unmounted (EBUSY) until swapping to it is switched \
        off. It has no process that could be stopped.",
    confirmed_by: &["/proc/swaps has a file on this mount, by device and inode number"],
    log: None,
    look_alikes: &[
        like(ids::VOLUME_HELD_BY_HOST_PROCESS, "the kernel holds the file, and no process does"),
        like(ids::VOLUME_HELD_BY_HOSTTOCONTAINER_AGENT, "the kernel holds the file itself"),
        like(ids::NESTED_MOUNT_UNDER_VOLUME, "the swap file lies on the mount itself"),
        like(ids::IMMUTABLE_ATTRIBUTE, "the object of the call is the swap file"),
        like(ids::APPEND_ONLY_ATTRIBUTE, "the object of the call is the swap file"),
    ],
    ways_out: &[way(
        "`swapoff`",
        "reads all that was swapped there back into memory; fails, or makes the node kill processes, \
         where there is too little",
    )],
    field: &["moby#30392"],
    tried: &[TriedWith::Lab],
    source: &["linux fs/namei.c, may_delete: IS_SWAPFILE", "linux mm/swapfile.c, sys_swapon"],
};

/// An unmount is refused because of one: the cause, and what it means.
pub(crate) fn on_unmount() -> (&'static Cause, &'static str) {
    (
        &SWAP_FILE,
        "The kernel swaps to a file of this volume, and lets neither the file nor the mount go until \
         that is switched off.",
    )
}

/// The removal of the file was refused.
pub(crate) fn draft(context: &Context<'_>, refused: &Refused, file: Option<FileId>) -> Draft {
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
    draft.explanation = "The kernel swaps to this file, and does not let it be removed until that \
        is switched off."
        .into();
    draft.remedy(
        View::of(context, op).on_file("stop swapping to", &op.path, file, |it| format!("swapoff {it}")),
        "reads all that was swapped there back into memory: fails, or makes the node kill \
         processes, where there is too little. `swapon --show` says by which path the node knows it",
    );
    draft
}
