//! A mount inside a volume that somebody left there.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use nix::errno::Errno;

use crate::{
    cause::{Cause, Kind, TriedWith, like, log, way},
    ids,
    model::{
        diagnosis::Stage, evidence::Source, file_system::is_fuse, identity::SUBPATH, mounts::Mount,
        operation::Operation, path::safe, pod_record::PodRecord,
    },
    verdict::Draft,
};

pub(crate) const LEFT_RISK: &str = "low if whoever mounted it has ended: check first";
const SOURCE: &[&str] = &["linux fs/namei.c, vfs_rmdir and vfs_unlink: is_local_mountpoint"];

/// In any volume.
pub(crate) static NESTED_MOUNT: Cause = Cause {
    id: ids::NESTED_MOUNT_UNDER_VOLUME,
    title: "something is mounted inside the volume",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A file system is mounted below the volume's own mount. The kernel unmounts nothing \
        that has a mount on it, and removes no directory that is a mount point.",
    confirmed_by: &["the caller's mountinfo has a mount below the volume's"],
    log: log("kubelet", "umount: ...: target is busy"),
    look_alikes: &[
        like(ids::VOLUME_HELD_BY_HOST_PROCESS, "a mount lies on it, and that alone makes it busy"),
        like(
            ids::VOLUME_HELD_BY_HOSTTOCONTAINER_AGENT,
            "the mount is in the caller's own namespace",
        ),
        like(ids::SWAPFILE_ACTIVE, "a mount lies on it, and that alone makes it busy"),
        like(ids::NODE_FS_READONLY, "the call fails with EBUSY, not with EROFS"),
    ],
    ways_out: &[way("`umount` that first", LEFT_RISK)],
    field: &["bb-clientd#2"],
    tried: &[TriedWith::Lab],
    source: &["linux fs/pnode.c, propagate_mount_busy", SOURCE[0]],
};

/// In an emptyDir, often by a container with Bidirectional propagation.
pub(crate) static SUBMOUNT: Cause = Cause {
    id: ids::EMPTYDIR_BIDIRECTIONAL_SUBMOUNT,
    title: "something is mounted inside the emptyDir, and kubelet does not unmount it",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A file system or a directory is mounted inside the emptyDir. A container with mountPropagation \
        Bidirectional leaves such a mount when it ends without unmounting it; somebody on the node may have \
        mounted it as well. kubelet's removal goes through the mount, deletes what it can reach, and fails at the \
        mount point.",
    confirmed_by: &[
        "the removal of a directory below the emptyDir fails with EBUSY",
        "the caller's mountinfo has that directory as a mount point",
    ],
    log: log("kubelet", "UnmountVolume.TearDown failed ... device or resource busy"),
    look_alikes: &[
        like(ids::FUSE_DAEMON_DEAD, "the file system on it is none of FUSE, or answers"),
        like(
            ids::REMOVAL_CROSSES_MOUNT,
            "the removal is at the mount point, which has to go first either way",
        ),
        like(ids::TERMINATION_MESSAGE_IN_BIDIRECTIONAL, "the mount point is a directory"),
    ],
    ways_out: &[way("`umount` it", LEFT_RISK), way("let a preStop hook unmount it", "")],
    field: &["kubernetes#129550", "kubernetes#137143"],
    tried: &[TriedWith::RealKubelet, TriedWith::Recording],
    source: SOURCE,
};

/// The same, with a file.
pub(crate) static TERMINATION_MESSAGE: Cause = Cause {
    id: ids::TERMINATION_MESSAGE_IN_BIDIRECTIONAL,
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
    look_alikes: &[like(ids::EMPTYDIR_BIDIRECTIONAL_SUBMOUNT, "the mount point is a file")],
    ways_out: &[
        way("`umount` the file", LEFT_RISK),
        way("move terminationMessagePath out of the volume", ""),
    ],
    field: &["kubernetes#115054", "kubernetes#137143"],
    tried: &[TriedWith::RealKubelet],
    source: SOURCE,
};

/// A subPath's own mount.
pub(crate) static SUBPATH_BUSY: Cause = Cause {
    id: ids::SUBPATH_BUSY,
    title: "a subPath is still mounted where kubelet removes its mount point",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "kubelet removes the mount point of a subPath that was not unmounted before.",
    confirmed_by: &[
        "the removal of a path below volume-subpaths fails with EBUSY",
        "the caller's mountinfo has it as a mount point",
    ],
    log: log("kubelet", "error cleaning subPath mounts for volume"),
    look_alikes: &[
        like(
            ids::SUBPATH_SOURCE_DELETED,
            "the removal comes to the mount point and fails with EBUSY, not with ENOTEMPTY above it",
        ),
        like(ids::KUBELET_ROOT_SYMLINK, "no symbolic link leads to kubelet's root"),
    ],
    ways_out: &[way("`umount` it", LEFT_RISK)],
    field: &["kubernetes#51835", "kubernetes#68740", "kubernetes#89181"],
    tried: &[TriedWith::Test],
    source: &["kubernetes pkg/volume/util/subpath/subpath_linux.go, doCleanSubPaths", SOURCE[0]],
};

/// Over the volume's own directory.
pub(crate) static MOUNT_OVER_VOLUME: Cause = Cause {
    id: ids::MOUNT_OVER_VOLUME,
    title: "something is mounted over the directory of an emptyDir, and kubelet does not unmount it",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "kubelet keeps an emptyDir on disk as a plain directory, and removes it without an unmount. \
        Something that was mounted over it stays: what is in it is deleted unless the mount is \
        read-only, and the removal of the directory fails.",
    confirmed_by: &[
        "the removal of the emptyDir's own directory fails with EBUSY, or of something in it with EROFS",
        "the caller's mountinfo has that directory as a mount point, and not of a file system in memory of \
         its own",
    ],
    log: log("kubelet", "unlinkat ...: read-only file system, or device or resource busy"),
    look_alikes: &[like(ids::NODE_FS_READONLY, "what is mounted lies in the pod's own directory")],
    ways_out: &[way("`umount` it", LEFT_RISK)],
    field: &[],
    tried: &[TriedWith::Lab, TriedWith::RealKubelet, TriedWith::Recording],
    source: &["kubernetes pkg/volume/emptydir/empty_dir.go, TearDownAt", SOURCE[0]],
};

pub(crate) const EMPTY_DIR: &str = "kubernetes.io/empty-dir";

/// Whether something is mounted over an emptyDir that kubelet has not mounted: it mounts a file system in
/// memory, of its own and whole.
pub(crate) fn over_volume(
    op: &Operation,
    point: &Path,
    may_be_kubelets: bool,
) -> Option<&'static Cause> {
    let plugin = op.target.volume.as_ref().map(|volume| volume.plugin.as_str());
    (plugin == Some(EMPTY_DIR) && *point == op.target.root && !may_be_kubelets)
        .then_some(&MOUNT_OVER_VOLUME)
}

/// Of the types that kubelet mounts for an emptyDir (`medium: Memory` and `HugePages`).
pub(crate) fn in_memory(fs_type: &str) -> bool {
    ["tmpfs", "hugetlbfs"].contains(&fs_type)
}

pub(crate) fn tell_apart_over_volume(draft: &mut Draft) {
    let fact = "what is mounted lies in the pod's own directory";
    draft.rule_out(ids::NODE_FS_READONLY, fact);
}

/// Which of them fits a mount point below a volume's own, by the uppermost mount on it.
pub(crate) fn cause(op: &Operation, top: &Mount) -> &'static Cause {
    match op.target.volume.as_ref().map_or("", |volume| volume.plugin.as_str()) {
        EMPTY_DIR if is_last_words(&top.root) => &TERMINATION_MESSAGE,
        // Go's errors call both removals `unlinkat`: what a log tells of is not known to be a file.
        EMPTY_DIR if !op.call.removes_directory() && op.told_by.is_none() => &TERMINATION_MESSAGE,
        EMPTY_DIR => &SUBMOUNT,
        SUBPATH => &SUBPATH_BUSY,
        _ => &NESTED_MOUNT,
    }
}

/// Whether what is mounted is the file for a container's last words, which kubelet makes at
/// `pods/UID/containers/NAME/HASH` (`makeMounts` in pkg/kubelet/kuberuntime).
fn is_last_words(root: &Path) -> bool {
    // The kernel says so of what was removed and is still mounted.
    let root = root.as_os_str().as_bytes();
    let root = Path::new(OsStr::from_bytes(root.strip_suffix(b"//deleted").unwrap_or(root)));
    let mut above = root.iter().rev().skip(2);
    let containers = above.next().is_some_and(|name| name == "containers");
    containers && above.nth(1).is_some_and(|name| name == "pods")
}

/// What it means that one of them is in the way.
pub(crate) fn words(cause: &Cause) -> Option<&'static str> {
    let words = [
        (
            &SUBMOUNT,
            "Something is mounted inside the emptyDir, and kubelet does not unmount it: a removal fails at a \
             mount point. Before that it goes through the mount, so that what lay behind it may have been \
             deleted by an earlier attempt. Who mounted it, the mount does not say: a container of the pod with \
             mountPropagation Bidirectional, or somebody on the node.",
        ),
        (
            &TERMINATION_MESSAGE,
            "A file inside the volume is a mount point (often the container's \
             terminationMessagePath inside a volume with Bidirectional propagation).",
        ),
        (&SUBPATH_BUSY, "A subPath mount was not unmounted before its directory is removed."),
        (&NESTED_MOUNT, "Something is mounted inside the volume and must be unmounted first."),
        (
            &MOUNT_OVER_VOLUME,
            "Something is mounted over the emptyDir, and kubelet removes an emptyDir on disk without an \
             unmount. It deletes what it can reach: see that nothing valuable lies behind the mount.",
        ),
    ];
    words.iter().find(|(known, _)| **known == *cause).map(|(_, words)| *words)
}

/// Who may have mounted it, by the pod's record.
pub(crate) fn tell_propagation(draft: &mut Draft, record: &PodRecord) {
    let (Some(volume), Some(both)) = (&draft.target.volume, &record.bidirectional) else { return };
    let is_its = draft.target.pod.as_ref().is_some_and(|pod| pod.uid == record.pod.uid);
    if *draft.cause != SUBMOUNT || !is_its {
        return;
    }
    let source = record.read.map_or(Source::Record, Source::Api);
    let name = safe(volume.name.as_bytes());
    let fact = if both.contains(&volume.name) {
        format!(
            "a container of the pod has the volume {name} with mountPropagation Bidirectional: what it mounts there \
             reaches the node"
        )
    } else {
        format!(
            "no container of the pod has the volume {name} with mountPropagation Bidirectional: somebody on the node \
             has mounted it, and no container of the pod"
        )
    };
    draft.fact(fact, source);
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
            ids::VOLUME_HELD_BY_HOST_PROCESS,
            ids::VOLUME_HELD_BY_HOSTTOCONTAINER_AGENT,
            ids::SWAPFILE_ACTIVE,
        ] {
            draft.suffices_beside(other);
        }
        draft.rule_out(ids::NODE_FS_READONLY, "the error is EBUSY, not EROFS");
    }
    if *draft.cause == MOUNT_OVER_VOLUME {
        tell_apart_over_volume(draft);
    }
    if *draft.cause == SUBMOUNT {
        // One that is dead is found by a look at it, which comes first.
        draft.rule_out(ids::FUSE_DAEMON_DEAD, "no look at the mount failed with ENOTCONN");
        let (crosses, file) =
            (ids::REMOVAL_CROSSES_MOUNT, ids::TERMINATION_MESSAGE_IN_BIDIRECTIONAL);
        // The mount is in the way, and must go, whatever went through it, now or before anybody watched.
        draft.suffices_beside(crosses);
        if op.told_by.is_some() {
            draft.suffices_beside(file);
        } else {
            draft.rule_out(file, "it is a directory");
        }
        if is_fuse(&top.fs_type) {
            draft.doubt("whether its server answers");
        }
    }
    draft.rule_out(ids::EMPTYDIR_BIDIRECTIONAL_SUBMOUNT, "the mount point is a file");
    if op.outcome.is(Errno::EBUSY) {
        let fact = "the removal came to the mount point, and failed there with EBUSY";
        draft.rule_out(ids::SUBPATH_SOURCE_DELETED, fact);
    }
}
