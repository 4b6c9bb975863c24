//! File systems and disks on which a call does not return or fails.

use podstuck_engine::{ids, model::finding::Severity};

use super::{IMPATIENT, LOGS, LOOP_DEVICES, TOKENS, empty_dir};
use crate::case::{Case, Expected, Fixture, Kind, Volume};

const ISCSI: Volume = Volume { plugin: "kubernetes.io~iscsi", name: "pv", kind: Kind::Mounted };

const HANGS: Expected = Expected { severity: Severity::Critical, ..Expected::STUCK };

pub(super) const CASES: &[Case] = &[
    Case {
        id: "fuse-daemon-hung",
        cause: Some(ids::FUSE_DAEMON_HUNG),
        summary: "a FUSE server in an emptyDir does not answer: the removal waits for it",
        volumes: &[TOKENS, LOGS, empty_dir("data", Kind::Files)],
        fixtures: &[Fixture::SilentServer],
        needs: Some("FUSE"),
        // Long enough for a silent server to be reported as more than slow.
        options: &["--duration", "10s"],
        watch_options: IMPATIENT,
        expected: Some(Expected { object: "/data/m", ..HANGS }),
        // The server ends first, and the removal may meet the dead mount.
        aftermath: Some(ids::FUSE_DAEMON_DEAD),
        ..Case::PLAIN
    },
    Case {
        id: "fuse-daemon-dead",
        cause: Some(ids::FUSE_DAEMON_DEAD),
        summary: "a FUSE server in an emptyDir has ended, its mount remains; openat fails with ENOTCONN",
        volumes: &[TOKENS, LOGS, empty_dir("data", Kind::Files)],
        fixtures: &[Fixture::DeadServer],
        needs: Some("FUSE"),
        expected: Some(Expected {
            syscall: Some("unlinkat+AT_REMOVEDIR"),
            outcomes: &["EBUSY", "ENOTEMPTY"],
            object: "/data/m",
            ..Expected::STUCK
        }),
        ..Case::PLAIN
    },
    Case {
        id: "filesystem-frozen",
        cause: Some(ids::FILESYSTEM_FROZEN),
        summary: "the disk of kubelet's root is frozen: the removal waits until it is thawed",
        volumes: &[empty_dir("data", Kind::Files)],
        fixtures: &[Fixture::Frozen],
        needs: LOOP_DEVICES,
        options: &[],
        watch_options: IMPATIENT,
        // The part of an emptyDir that kubelet removes first.
        expected: Some(Expected {
            syscall: Some("unlinkat"),
            object: "/plugins/kubernetes.io~empty-dir/data",
            ..HANGS
        }),
        ..Case::PLAIN
    },
    Case {
        id: "umount-flush-slow",
        cause: Some(ids::UMOUNT_FLUSH_SLOW),
        summary: "a volume's disk is slow: umount2 has returned, but much data is still to be written",
        volumes: &[TOKENS, LOGS, ISCSI],
        fixtures: &[Fixture::SlowDisk],
        needs: Some("FUSE, loop devices and ext4"),
        options: &[],
        expected: Some(Expected {
            syscall: Some("umount2"),
            object: "/pv",
            severity: Severity::Info,
            ..Expected::STUCK
        }),
        ..Case::PLAIN
    },
    Case {
        id: "umount-kernel-hang",
        cause: Some(ids::UMOUNT_KERNEL_HANG),
        summary: "a volume's disk has stopped: umount2 has returned, but its caller waits forever",
        volumes: &[TOKENS, LOGS, ISCSI],
        fixtures: &[Fixture::StoppedDisk],
        needs: Some("FUSE, loop devices and ext4"),
        options: &[],
        watch_options: IMPATIENT,
        expected: Some(Expected { syscall: Some("umount2"), object: "/pv", ..HANGS }),
        ..Case::PLAIN
    },
];
