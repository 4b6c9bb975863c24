//! Labs whose finding's commands are run as printed, by `remedies.rs`, each in a lab of its own; `ways_out.rs` says of
//! which causes no command is.
#![allow(unreachable_pub, reason = "each of the two uses it as it is")]

/// The pod goes within a minute.
pub const RELEASED: &[&str] = &[
    "csi-driver-lost-publish-state",
    "csi-driver-lost-publish-state-silent",
    "stacked-mounts",
    "nested-mount-under-volume",
    "mount-over-volume",
    "volume-held-by-host-process",
    "volume-held-by-hosttocontainer-agent",
    "swapfile-active",
    "fuse-daemon-hung",
    "fuse-daemon-dead",
    "filesystem-frozen",
    "immutable-attribute",
    "append-only-attribute",
    "data-under-mountpoint",
    "subpath-source-deleted",
    "writer-still-alive",
    "node-fs-readonly",
    "cgroup-v1-frozen",
    "cgroup-populated-leftover",
];

/// What the finding is about is over, and the pod waits for more: kubelet for its own restart, the pod for a
/// driver whose part the lab does not play. Or the pod has gone before, and a device is released.
pub const CURED: &[&str] =
    &["vol-data-missing-or-corrupt", "csi-unpublish-hung-lock", "leaked-superblock-blocks-device"];

/// The advice of the finding is followed as a person would follow it, and the pod goes.
pub const FOLLOWED: &[&str] = &["dstate-process"];

/// The second command, without the first: the pod goes.
pub const SECOND_RELEASES: &[&str] = &[
    "volume-held-by-host-process",
    "volume-held-by-hosttocontainer-agent",
    "cgroup-populated-leftover",
];

/// The same: what the finding is about is over.
pub const SECOND_CURES: &[&str] = &["csi-unpublish-hung-lock", "leaked-superblock-blocks-device"];

/// The second command is for who has run the first, or the part of it that it waits for: the pod goes.
pub const AFTER_THE_FIRST: &[&str] = &["fuse-daemon-hung", "removal-crosses-mount"];
