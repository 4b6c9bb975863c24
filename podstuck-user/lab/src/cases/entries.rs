//! Entries of a directory that must be removed: undeletable ones, recreated ones, or very many.

use podstuck_engine::{ids, model::finding::Severity};

use super::{LOGS, PV, TOKENS, csi, empty_dir};
use crate::{
    attribute::Attribute,
    case::{Case, Driver, Expected, Fixture, Kind},
};

const NOT_PERMITTED: Expected = Expected {
    syscall: Some("unlinkat"),
    outcomes: &["EPERM"],
    object: "/journal.db",
    ..Expected::STUCK
};
const NOT_EMPTY: Expected = Expected {
    syscall: Some("unlinkat+AT_REMOVEDIR"),
    outcomes: &["ENOTEMPTY"],
    ..Expected::STUCK
};

pub(super) const CASES: &[Case] = &[
    Case {
        id: "immutable-attribute",
        cause: Some(ids::IMMUTABLE_ATTRIBUTE),
        summary: "a file in an emptyDir is immutable (chattr +i); unlink fails with EPERM",
        volumes: &[TOKENS, LOGS, empty_dir("data", Kind::Protected(Attribute::Immutable))],
        expected: Some(NOT_PERMITTED),
        ..Case::PLAIN
    },
    Case {
        id: "append-only-attribute",
        cause: Some(ids::APPEND_ONLY_ATTRIBUTE),
        summary: "a file in an emptyDir is append-only (chattr +a); unlink fails with EPERM",
        volumes: &[TOKENS, LOGS, empty_dir("data", Kind::Protected(Attribute::AppendOnly))],
        expected: Some(NOT_PERMITTED),
        ..Case::PLAIN
    },
    Case {
        id: "data-under-mountpoint",
        cause: Some(ids::DATA_UNDER_MOUNTPOINT),
        summary: "the mount point of a volume that is not mounted has files; rmdir fails with ENOTEMPTY",
        volumes: &[TOKENS, LOGS, csi(PV, Driver::UnmountedEarly)],
        expected: Some(Expected { object: "/mount", ..NOT_EMPTY }),
        ..Case::PLAIN
    },
    Case {
        id: "subpath-source-deleted",
        cause: Some(ids::SUBPATH_SOURCE_DELETED),
        summary: "kubelet skips the umount of a subPath; rmdir of its directory fails with ENOTEMPTY",
        volumes: &[TOKENS, LOGS, empty_dir("data", Kind::SubPath)],
        expected: Some(Expected { object: "/volume-subpaths/data/app", ..NOT_EMPTY }),
        ..Case::PLAIN
    },
    Case {
        id: "writer-still-alive",
        cause: Some(ids::WRITER_STILL_ALIVE),
        summary: "a process keeps writing into an emptyDir that is removed; rmdir fails with ENOTEMPTY",
        volumes: &[TOKENS, LOGS, empty_dir("data", Kind::Files)],
        fixtures: &[Fixture::Writer],
        options: &["--duration", "11s"],
        expected: Some(Expected { object: "/data/export", ..NOT_EMPTY }),
        ..Case::PLAIN
    },
    Case {
        id: "orphaned-pod-dir",
        cause: Some(ids::ORPHANED_POD_DIR),
        summary: "kubelet fails every 2 s to remove the directory of a pod that is long gone",
        volumes: &[csi(PV, Driver::Orphaned)],
        options: &["--duration", "11s"],
        expected: Some(Expected {
            object: "/volumes",
            severity: Severity::Info,
            blocks: Some(false),
            ..NOT_EMPTY
        }),
        ..Case::PLAIN
    },
    Case {
        id: "emptydir-mass-files",
        cause: Some(ids::EMPTYDIR_MASS_FILES),
        summary: "an emptyDir has hundreds of thousands of files: slow, not stuck",
        volumes: &[TOKENS, LOGS, empty_dir("data", Kind::MassFiles)],
        // It ends by itself.
        options: &["--entries", "60000", "--rate", "8000", "--duration", "60s"],
        expected: Some(Expected {
            syscall: Some("unlinkat"),
            outcomes: &["ok"],
            object: "/data",
            severity: Severity::Info,
            ..Expected::STUCK
        }),
        ..Case::PLAIN
    },
];
