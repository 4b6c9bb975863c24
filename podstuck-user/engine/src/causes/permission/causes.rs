//! Causes of removals that fail with EPERM.

use crate::cause::Origin;
use crate::{
    cause::{Cause, Kind, TriedWith, like, log, or_seen, seen, way},
    causes::permission::verdict::{CHATTR_RISK, MAY_DELETE},
    ids,
    model::diagnosis::Stage,
};

/// `chattr +i`
pub(crate) static IMMUTABLE_ATTRIBUTE: Cause = Cause {
    id: ids::IMMUTABLE_ATTRIBUTE,
    title: "a file or its directory has the immutable attribute (`chattr +i`)",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The file system refuses to remove a file or directory with the immutable \
        attribute, and any entry of a directory with it, even for root. Everything else in the \
        volume is removed, and every attempt fails at the same place. In a volume the attribute \
        blocks the pod; in a container's layer it does so up to Kubernetes 1.26 or with dockerd.",
    confirmed_by: &[
        seen("a removal fails with EPERM", &[Origin::Calls, Origin::Log]),
        or_seen(
            "or the pod is to be deleted, or dockerd has begun to remove the container, and no attempt was seen yet",
            &[Origin::Api, Origin::Log, Origin::Proc, Origin::Files],
        ),
        seen(
            "statx shows the immutable attribute on the object or on its directory",
            &[Origin::Look],
        ),
    ],
    log: log("kubelet or dockerd", "unlinkat ...: operation not permitted"),
    look_alikes: &[
        like(ids::APPEND_ONLY_ATTRIBUTE, "the attribute is `i`, not `a`"),
        like(ids::SWAPFILE_ACTIVE, "the object is not an active swap file"),
    ],
    ways_out: &[way("`chattr -i`", CHATTR_RISK)],
    field: &["TKE's guide to pods that stay Terminating", "docker/for-mac#5691", "lxc#3185"],
    tried: &[TriedWith::Lab, TriedWith::RealRuntime, TriedWith::RealKubelet, TriedWith::Recording],
    source: &[MAY_DELETE, "linux fs/namei.c, inode_permission"],
};

/// `chattr +a`
pub(crate) static APPEND_ONLY_ATTRIBUTE: Cause = Cause {
    id: ids::APPEND_ONLY_ATTRIBUTE,
    title: "a file or its directory has the append-only attribute (`chattr +a`)",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "The file system refuses to remove a file or directory with the append-only \
        attribute, and any entry of a directory with it, even for root. Everything else in the \
        volume is removed, and every attempt fails at the same place.",
    confirmed_by: &[
        seen("a removal fails with EPERM", &[Origin::Calls, Origin::Log]),
        or_seen(
            "or the pod is to be deleted, or dockerd has begun to remove the container, and no attempt was seen yet",
            &[Origin::Api, Origin::Log, Origin::Proc, Origin::Files],
        ),
        seen(
            "statx shows the append-only attribute on the object or on its directory",
            &[Origin::Look],
        ),
    ],
    log: log("kubelet or dockerd", "unlinkat ...: operation not permitted"),
    look_alikes: &[
        like(ids::IMMUTABLE_ATTRIBUTE, "the attribute is `a`, not `i`"),
        like(ids::SWAPFILE_ACTIVE, "the object is not an active swap file"),
    ],
    ways_out: &[way("`chattr -a`", CHATTR_RISK)],
    field: &["lxd#6998"],
    tried: &[TriedWith::Lab],
    source: &[MAY_DELETE],
};

/// EPERM without an attribute.
pub(crate) static PERMISSION_UNEXPLAINED: Cause = Cause {
    id: ids::PERMISSION_UNEXPLAINED,
    title: "not a cause: a removal fails with EPERM for a reason that podstuck could not determine; the finding lists what is unknown",
    stage: Stage::Volumes,
    kind: Kind::Admission,
    meaning: "The kernel refused a removal with EPERM, and no attribute is known that explains \
        it: either none is set, or the attributes could not be read, and the finding says which. \
        Still possible: a sticky directory of another owner, an owner that is not mapped in the \
        caller's user namespace, a security module.",
    confirmed_by: &[seen("a removal fails with EPERM", &[Origin::Calls, Origin::Log])],
    log: None,
    look_alikes: &[
        like(ids::IMMUTABLE_ATTRIBUTE, "neither the object nor its directory is immutable"),
        like(ids::APPEND_ONLY_ATTRIBUTE, "neither the object nor its directory is append-only"),
    ],
    ways_out: &[way("the finding says where to look", "")],
    field: &[],
    tried: &[],
    source: &[MAY_DELETE],
};

/// The file is an active swap file.
pub(crate) static SWAP_FILE: Cause = Cause {
    id: ids::SWAPFILE_ACTIVE,
    title: "a file of the volume is an active swap file",
    stage: Stage::Volumes,
    kind: Kind::Cause,
    meaning: "A file of the volume is an active swap file. The kernel refuses to remove the file \
        (EPERM) and to unmount its file system (EBUSY) until swapping to the file is switched \
        off. There is no process to stop.",
    confirmed_by: &[seen(
        "/proc/swaps has a file on this mount, by device and inode number",
        &[Origin::Files, Origin::Proc],
    )],
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
