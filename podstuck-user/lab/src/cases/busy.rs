//! Mounted or used objects that cannot be unmounted, removed or detached.

use podstuck_engine::{ids, model::finding::Severity};

use super::{LOGS, LOOP_DEVICES, PV, TOKENS, csi, empty_dir, local_disk};
use crate::case::{Case, Driver, Expected, Fixture, Kind};

const RMDIR_IS_BUSY: Expected =
    Expected { syscall: Some("unlinkat+AT_REMOVEDIR"), outcomes: &["EBUSY"], ..Expected::STUCK };
const UMOUNT_IS_BUSY: Expected =
    Expected { syscall: Some("umount2"), outcomes: &["EBUSY"], ..Expected::STUCK };

pub(super) const CASES: &[Case] = &[
    Case {
        id: "csi-driver-lost-publish-state",
        cause: Some(ids::CSI_DRIVER_LOST_PUBLISH_STATE),
        summary: "the CSI driver forgot its mount, answers OK without unmounting; rmdir fails with EBUSY",
        volumes: &[TOKENS, LOGS, csi(PV, Driver::Forgot)],
        expected: Some(Expected { object: "/mount", ..RMDIR_IS_BUSY }),
        ..Case::PLAIN
    },
    Case {
        id: "stacked-mounts",
        cause: Some(ids::STACKED_MOUNTS),
        summary: "a CSI volume was mounted twice and unmounted once; rmdir fails with EBUSY",
        volumes: &[TOKENS, LOGS, csi(PV, Driver::PublishedTwice)],
        expected: Some(Expected { object: "/mount", ..RMDIR_IS_BUSY }),
        ..Case::PLAIN
    },
    Case {
        id: "nested-mount-under-volume",
        cause: Some(ids::NESTED_MOUNT_UNDER_VOLUME),
        summary: "something is mounted inside a volume in memory; its umount fails with EBUSY",
        volumes: &[TOKENS, LOGS, empty_dir("cache", Kind::MemoryWithChild)],
        expected: Some(Expected { object: "/cache", ..UMOUNT_IS_BUSY }),
        ..Case::PLAIN
    },
    Case {
        id: "mount-over-volume",
        cause: Some(ids::MOUNT_OVER_VOLUME),
        summary: "another workload's directory is mounted over an emptyDir, read-only",
        volumes: &[TOKENS, LOGS, empty_dir("data", Kind::Covered)],
        expected: Some(Expected { object: "/data", ..RMDIR_IS_BUSY }),
        ..Case::PLAIN
    },
    Case {
        id: "volume-held-by-host-process",
        cause: Some(ids::VOLUME_HELD_BY_HOST_PROCESS),
        summary: "a process outside the pod works in a volume in memory; its umount fails with EBUSY",
        volumes: &[TOKENS, LOGS, empty_dir("cache", Kind::Memory)],
        fixtures: &[Fixture::HostProcess],
        expected: Some(Expected { object: "/cache", ..UMOUNT_IS_BUSY }),
        ..Case::PLAIN
    },
    Case {
        id: "volume-held-by-hosttocontainer-agent",
        cause: Some(ids::VOLUME_HELD_BY_HOSTTOCONTAINER_AGENT),
        summary: "an agent works in its slave copy of a volume; the umount fails with EBUSY",
        volumes: &[TOKENS, LOGS, empty_dir("cache", Kind::Memory)],
        fixtures: &[Fixture::Agent],
        expected: Some(Expected { object: "/cache", ..UMOUNT_IS_BUSY }),
        ..Case::PLAIN
    },
    Case {
        id: "swapfile-active",
        cause: Some(ids::SWAPFILE_ACTIVE),
        summary: "a volume on a disk (loop) has an active swap file; its umount fails with EBUSY",
        volumes: &[TOKENS, LOGS, local_disk(PV)],
        fixtures: &[Fixture::SwapFile],
        needs: Some("loop devices, ext4 and swap"),
        expected: Some(Expected { object: PV, ..UMOUNT_IS_BUSY }),
        ..Case::PLAIN
    },
    Case {
        id: "leaked-superblock-blocks-device",
        cause: Some(ids::LEAKED_SUPERBLOCK_BLOCKS_DEVICE),
        summary: "umount of a disk (loop) succeeds, but a private copy elsewhere keeps the device",
        volumes: &[TOKENS, LOGS, local_disk(PV)],
        fixtures: &[Fixture::PrivateCopy],
        needs: LOOP_DEVICES,
        options: &[],
        expected: Some(Expected {
            syscall: Some("umount2"),
            outcomes: &["ok"],
            object: PV,
            blocks: Some(false),
            ..Expected::STUCK
        }),
        ..Case::PLAIN
    },
    Case {
        id: "removal-crosses-mount",
        cause: Some(ids::REMOVAL_CROSSES_MOUNT),
        summary: "another workload's directory is mounted in an emptyDir: kubelet deletes its \
            files",
        volumes: &[TOKENS, LOGS, empty_dir("data", Kind::ForeignMount)],
        expected: Some(Expected {
            syscall: Some("unlinkat"),
            outcomes: &["ok"],
            severity: Severity::Critical,
            ..Expected::STUCK
        }),
        ..Case::PLAIN
    },
];
