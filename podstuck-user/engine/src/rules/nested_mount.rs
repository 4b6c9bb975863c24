//! A mount inside a volume that somebody left there.

use nix::errno::Errno;

use crate::{
    cause::{Cause, CauseId, Kind, TriedWith, id, like, log, way},
    model::{
        diagnosis::Stage, file_system::is_fuse, identity::SUBPATH, mounts::Mount,
        operation::Operation,
    },
    verdict::Draft,
};

const LEFT_RISK: &str = "low if whoever mounted it has ended: check first";
const SOURCE: &[&str] = &["linux fs/namei.c, vfs_rmdir and vfs_unlink: is_local_mountpoint"];

/// In any volume.
pub(crate) static NESTED_MOUNT: Cause = Cause {
    id: CauseId::new("nested-mount-under-volume"),
    title: "something is mounted inside the volume",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A file system is mounted below the volume's own mount. The kernel unmounts nothing \
        that has a mount on it, and removes no directory that is a mount point.",
    confirmed_by: &["the caller's mountinfo has a mount below the volume's"],
    log: log("kubelet", "umount: ...: target is busy"),
    look_alikes: &[
        like("volume-held-by-host-process", "a mount lies on it, and that alone makes it busy"),
        like("volume-held-by-hosttocontainer-agent", "the mount is in the caller's own namespace"),
        like("swapfile-active", "a mount lies on it, and that alone makes it busy"),
        like("node-fs-readonly", "the call fails with EBUSY, not with EROFS"),
    ],
    ways_out: &[way("`umount` that first", LEFT_RISK)],
    tried: &[TriedWith::Lab],
    source: &["linux fs/pnode.c, propagate_mount_busy", SOURCE[0]],
};

/// In an emptyDir, by a container with Bidirectional propagation.
pub(crate) static SUBMOUNT: Cause = Cause {
    id: CauseId::new("emptydir-bidirectional-submount"),
    title: "a container mounted something inside its emptyDir and left it behind",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A container with mountPropagation Bidirectional mounted something inside its emptyDir \
        and ended without unmounting it. kubelet deletes what it can reach and fails at the mount \
        point.",
    confirmed_by: &[
        "the removal of a directory below the emptyDir fails with EBUSY",
        "the caller's mountinfo has that directory as a mount point",
    ],
    log: log("kubelet", "UnmountVolume.TearDown failed ... device or resource busy"),
    look_alikes: &[
        like("fuse-daemon-dead", "the file system on it is none of FUSE, or answers"),
        like("removal-crosses-mount", "no deletion behind the mount was seen"),
        like("termination-message-in-bidirectional", "the mount point is a directory"),
    ],
    ways_out: &[way("`umount` it", LEFT_RISK), way("let a preStop hook unmount it", "")],
    tried: &[],
    source: SOURCE,
};

/// The same, with a file.
pub(crate) static TERMINATION_MESSAGE: Cause = Cause {
    id: CauseId::new("termination-message-in-bidirectional"),
    title: "a file inside the volume is a mount point, often the container's \
        terminationMessagePath",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A file inside the emptyDir is a mount point. The runtime mounts a container's \
        terminationMessagePath; inside a volume with Bidirectional propagation that mount reaches \
        the node and outlives the container.",
    confirmed_by: &[
        "the removal of a file below the emptyDir fails with EBUSY",
        "the caller's mountinfo has that file as a mount point",
    ],
    log: log("kubelet", "unlinkat ...: device or resource busy"),
    look_alikes: &[like("emptydir-bidirectional-submount", "the mount point is a file")],
    ways_out: &[
        way("`umount` the file", LEFT_RISK),
        way("move terminationMessagePath out of the volume", ""),
    ],
    tried: &[],
    source: SOURCE,
};

/// A subPath's own mount.
pub(crate) static SUBPATH_BUSY: Cause = Cause {
    id: CauseId::new("subpath-busy"),
    title: "a subPath is still mounted where kubelet removes its mount point",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "kubelet removes the mount point of a subPath that was not unmounted before.",
    confirmed_by: &[
        "the removal of a path below volume-subpaths fails with EBUSY",
        "the caller's mountinfo has it as a mount point",
    ],
    log: log("kubelet", "error cleaning subPath mounts for volume"),
    look_alikes: &[like(
        "subpath-source-deleted",
        "the removal comes to the mount point and fails with EBUSY, not with ENOTEMPTY above it",
    )],
    ways_out: &[way("`umount` it", LEFT_RISK)],
    tried: &[],
    source: &["kubernetes pkg/volume/util/subpath/subpath_linux.go, doCleanSubPaths", SOURCE[0]],
};

/// Which of them fits a mount point below a volume's own.
pub(crate) fn cause(op: &Operation) -> &'static Cause {
    match op.target.volume.as_ref().map_or("", |volume| volume.plugin.as_str()) {
        // Go's errors call both removals `unlinkat`: what a log tells of is not known to be a file.
        "kubernetes.io/empty-dir" if !op.call.removes_directory() && op.told_by.is_none() => {
            &TERMINATION_MESSAGE
        }
        "kubernetes.io/empty-dir" => &SUBMOUNT,
        SUBPATH => &SUBPATH_BUSY,
        _ => &NESTED_MOUNT,
    }
}

/// What it means that one of them is in the way.
pub(crate) fn words(cause: &Cause) -> Option<&'static str> {
    let words = [
        (
            &SUBMOUNT,
            "A container mounted something inside its emptyDir with Bidirectional propagation and \
             ended without unmounting it. kubelet deletes what it can reach before it fails: see \
             that nothing valuable lies behind the mount.",
        ),
        (
            &TERMINATION_MESSAGE,
            "A file inside the volume is a mount point (often the container's \
             terminationMessagePath inside a volume with Bidirectional propagation).",
        ),
        (&SUBPATH_BUSY, "A subPath mount was not unmounted before its directory is removed."),
        (&NESTED_MOUNT, "Something is mounted inside the volume and must be unmounted first."),
    ];
    words.iter().find(|(known, _)| **known == *cause).map(|(_, words)| *words)
}

/// An unmount is refused because of one.
pub(crate) fn on_unmount() -> (&'static Cause, &'static str) {
    (&NESTED_MOUNT, "A mount on it must go first.")
}

/// What tells the causes of this rule apart from their look-alikes.
pub(crate) fn tell_apart(draft: &mut Draft, op: &Operation, top: &Mount) {
    if *draft.cause == NESTED_MOUNT {
        // A mount point cannot be removed, whoever uses what.
        for other in [
            id!("volume-held-by-host-process"),
            id!("volume-held-by-hosttocontainer-agent"),
            id!("swapfile-active"),
        ] {
            draft.suffices_beside(other);
        }
        draft.rule_out(id!("node-fs-readonly"), "the error is EBUSY, not EROFS");
    }
    if *draft.cause == SUBMOUNT {
        // One that is dead is found by a look at it, which comes first.
        draft.rule_out(id!("fuse-daemon-dead"), "no look at the mount failed with ENOTCONN");
        let (crosses, file) =
            (id!("removal-crosses-mount"), id!("termination-message-in-bidirectional"));
        if op.told_by.is_some() {
            // The mount is in the way, and must go, whatever it is on and whatever went through it.
            draft.suffices_beside(crosses);
            draft.suffices_beside(file);
        } else {
            draft.rule_out(crosses, "nothing behind the mount was deleted");
            draft.rule_out(file, "it is a directory");
        }
        if is_fuse(&top.fs_type) {
            draft.doubt("whether its server answers");
        }
    }
    draft.rule_out(id!("emptydir-bidirectional-submount"), "the mount point is a file");
    if op.outcome.is(Errno::EBUSY) {
        let fact = "the removal came to the mount point, and failed there with EBUSY";
        draft.rule_out(id!("subpath-source-deleted"), fact);
    }
}
