//! Faults of the node's own disk and of its mount table.

use podstuck_engine::{ids, model::finding::Severity};

use super::{LOGS, TOKENS};
use crate::case::{Case, Expected, Fixture};

pub(super) const CASES: &[Case] = &[
    Case {
        id: "disk-full-runtime",
        cause: Some(ids::DISK_FULL_RUNTIME),
        summary: "the disk of kubelet's root is full: kubelet cannot write, and does nothing",
        volumes: &[TOKENS, LOGS],
        fixtures: &[Fixture::FullDisk],
        options: &[],
        expected: Some(Expected {
            object: "/var/lib/kubelet",
            severity: Severity::Critical,
            blocks: None,
            actor: None,
            of_pod: false,
            ..Expected::STUCK
        }),
        ..Case::PLAIN
    },
    Case {
        id: "mount-table-storm",
        cause: Some(ids::MOUNT_TABLE_STORM),
        summary: "a directory is mounted 10,000 times: slow, not stuck",
        volumes: &[TOKENS, LOGS],
        fixtures: &[Fixture::ManyMounts],
        options: &[],
        expected: Some(Expected {
            object: "/somebody-elses-data/runs",
            blocks: None,
            actor: None,
            of_pod: false,
            ..Expected::STUCK
        }),
        ..Case::PLAIN
    },
    Case {
        id: "node-fs-readonly",
        cause: Some(ids::NODE_FS_READONLY),
        summary: "the disk of kubelet's root has become read-only; every removal fails with EROFS",
        volumes: &[TOKENS, LOGS],
        fixtures: &[Fixture::ReadOnlyDisk],
        expected: Some(Expected {
            syscall: Some("unlinkat"),
            outcomes: &["EROFS"],
            severity: Severity::Critical,
            ..Expected::STUCK
        }),
        ..Case::PLAIN
    },
];
