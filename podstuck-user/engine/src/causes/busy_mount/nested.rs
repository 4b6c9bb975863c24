//! A mount that was left inside a volume.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use crate::{
    cause::Cause,
    causes::busy_mount::causes::{
        MOUNT_OVER_VOLUME, NESTED_MOUNT, SUBMOUNT, SUBPATH_BUSY, TERMINATION_MESSAGE,
    },
    ids,
    model::{
        errno::Errno, evidence::Source, file_system::is_fuse, identity::SUBPATH, mounts::Mount,
        operation::Operation, path::safe, pod_record::PodRecord,
    },
    verdict::Draft,
};

pub(crate) const LEFT_RISK: &str = "low if the process that mounted it has ended: check first";
pub(super) const SOURCE: &[&str] =
    &["linux fs/namei.c, vfs_rmdir and vfs_unlink: is_local_mountpoint"];

pub(crate) const EMPTY_DIR: &str = "kubernetes.io/empty-dir";

/// The cause if a mount over an emptyDir's directory is not kubelet's. kubelet mounts only the root of a file system in
/// memory there.
pub(crate) fn over_volume(
    op: &Operation,
    point: &Path,
    may_be_kubelets: bool,
) -> Option<&'static Cause> {
    let plugin = op.target.volume.as_ref().map(|volume| volume.plugin.as_str());
    (plugin == Some(EMPTY_DIR) && *point == op.target.root && !may_be_kubelets)
        .then_some(&MOUNT_OVER_VOLUME)
}

/// Whether kubelet mounts this type for an emptyDir (`medium: Memory` and `HugePages`).
pub(crate) fn in_memory(fs_type: &str) -> bool {
    ["tmpfs", "hugetlbfs"].contains(&fs_type)
}

/// The cause of a mount inside a volume whose removal fails behind the mount point: kubelet's removal goes through it.
pub(crate) fn inside_volume(op: &Operation, point: &Path) -> Option<&'static Cause> {
    let plugin = op.target.volume.as_ref().map(|volume| volume.plugin.as_str());
    let is_inside = *point != op.target.root && point.starts_with(&op.target.root);
    (plugin == Some(EMPTY_DIR) && is_inside && *point != op.path).then_some(&SUBMOUNT)
}

/// Rules out that the mount point is a file.
pub(crate) fn tell_directory(draft: &mut Draft) {
    let fact = "the mount point is a directory";
    draft.rule_out(ids::TERMINATION_MESSAGE_IN_BIDIRECTIONAL, fact);
}

/// Rules out the look-alikes of a mount inside an emptyDir.
pub(crate) fn tell_apart_inside(draft: &mut Draft, fs_type: &str) {
    // The mount must be unmounted in any case, whether or not a removal went through it.
    draft.suffices_beside(ids::REMOVAL_CROSSES_MOUNT);
    // Whether a FUSE server is gone shows only when the mount is accessed.
    if !is_fuse(fs_type) {
        let fact = format!("it is a file system of type {}", safe(fs_type.as_bytes()));
        draft.rule_out(ids::FUSE_DAEMON_DEAD, fact);
    }
}

pub(crate) fn tell_apart_over_volume(draft: &mut Draft) {
    let fact = "the mount is in the pod's own directory";
    draft.rule_out(ids::NODE_FS_READONLY, fact);
}

/// The cause of a mount point inside a volume, by the uppermost mount on it.
pub(crate) fn cause(op: &Operation, top: &Mount) -> &'static Cause {
    match op.target.volume.as_ref().map_or("", |volume| volume.plugin.as_str()) {
        EMPTY_DIR if is_last_words(&top.root) => &TERMINATION_MESSAGE,
        // Go's errors name both removals `unlinkat`: a path from a log is not known to be a file.
        EMPTY_DIR if !op.call.removes_directory() && op.logged_in.is_none() => &TERMINATION_MESSAGE,
        EMPTY_DIR => &SUBMOUNT,
        SUBPATH => &SUBPATH_BUSY,
        _ => &NESTED_MOUNT,
    }
}

/// Whether the mounted file is a container's termination message, which kubelet creates at
/// `pods/UID/containers/NAME/HASH` (`makeMounts` in pkg/kubelet/kuberuntime).
fn is_last_words(root: &Path) -> bool {
    // The kernel appends this to the path of a mounted object that was removed.
    let root = root.as_os_str().as_bytes();
    let root = Path::new(OsStr::from_bytes(root.strip_suffix(b"//deleted").unwrap_or(root)));
    let mut above = root.iter().rev().skip(2);
    let containers = above.next().is_some_and(|name| name == "containers");
    containers && above.nth(1).is_some_and(|name| name == "pods")
}

/// The explanation of a mount that blocks the removal.
pub(crate) fn words(cause: &Cause) -> Option<&'static str> {
    let words = [
        (
            &SUBMOUNT,
            "There is a mount inside the emptyDir, and kubelet does not unmount it, so the \
             removal fails at the mount point. The removal first goes through the mount, so an \
             earlier attempt may have deleted what lay behind it. The mount does not show its \
             maker: a container of the pod with mountPropagation Bidirectional, or a process on \
             the node.",
        ),
        (
            &TERMINATION_MESSAGE,
            "A file inside the volume is a mount point (often the container's \
             terminationMessagePath inside a volume with Bidirectional propagation).",
        ),
        (
            &SUBPATH_BUSY,
            "kubelet tries to remove the directory of a subPath that is still mounted.",
        ),
        (&NESTED_MOUNT, "A mount inside the volume must be unmounted first."),
        (
            &MOUNT_OVER_VOLUME,
            "Something is mounted over the emptyDir, and kubelet removes an emptyDir on disk \
             without an unmount. kubelet deletes what it can reach: check that nothing valuable \
             lies behind the mount.",
        ),
    ];
    words.iter().find(|(known, _)| **known == *cause).map(|(_, words)| *words)
}

/// States whether a container of the pod may have made the mount, by the pod's record.
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
            "a container of the pod has the volume {name} with mountPropagation Bidirectional: \
             its mounts there propagate to the node"
        )
    } else {
        format!(
            "no container of the pod has the volume {name} with mountPropagation Bidirectional: a \
             process on the node has mounted it, not a container of the pod"
        )
    };
    draft.fact(fact, source);
}

/// Cause and explanation of an unmount that is refused because of a nested mount.
pub(crate) fn on_unmount() -> (&'static Cause, &'static str) {
    (&NESTED_MOUNT, "The mount on it must be unmounted first.")
}

/// Rules out the look-alikes of these causes.
pub(crate) fn tell_apart(draft: &mut Draft, op: &Operation, top: &Mount) {
    if *draft.cause == NESTED_MOUNT {
        // A mount point cannot be removed, in use or not.
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
        if op.logged_in.is_some() {
            draft.suffices_beside(ids::TERMINATION_MESSAGE_IN_BIDIRECTIONAL);
        } else {
            tell_directory(draft);
        }
        tell_apart_inside(draft, &top.fs_type);
    }
    draft.rule_out(ids::EMPTYDIR_BIDIRECTIONAL_SUBMOUNT, "the mount point is a file");
    if op.outcome.is(Errno::EBUSY) {
        let fact = "the removal reached the mount point, and failed there with EBUSY";
        draft.rule_out(ids::SUBPATH_SOURCE_DELETED, fact);
    }
}
