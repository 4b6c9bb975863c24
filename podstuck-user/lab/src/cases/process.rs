//! Processes of the pod that do not end.

use podstuck_engine::{ids, model::finding::Severity};

use super::{LOGS, TOKENS};
use crate::case::{Case, Expected, Fixture};

/// The object is a cgroup, whose path depends on the cgroup version.
const DOES_NOT_END: Expected = Expected { severity: Severity::Critical, ..Expected::STUCK };

pub(super) const CASES: &[Case] = &[
    Case {
        id: "dstate-process",
        cause: Some(ids::DSTATE_PROCESS),
        summary: "a container was killed and does not end: its process waits for a frozen file system",
        volumes: &[TOKENS, LOGS],
        fixtures: &[Fixture::Unkillable],
        needs: Some("control groups that can be made, loop devices and ext4"),
        options: &[],
        expected: Some(Expected { actor: Some("touch"), ..DOES_NOT_END }),
        ..Case::PLAIN
    },
    Case {
        id: "cgroup-v1-frozen",
        cause: Some(ids::CGROUP_V1_FROZEN),
        summary: "a container was killed and does not end: its pod's control group is frozen",
        volumes: &[TOKENS, LOGS],
        fixtures: &[Fixture::FrozenGroup],
        needs: Some("the freezer of control groups version 1"),
        options: &[],
        expected: Some(Expected { actor: Some("sleep"), ..DOES_NOT_END }),
        ..Case::PLAIN
    },
    Case {
        id: "cgroup-populated-leftover",
        cause: Some(ids::CGROUP_POPULATED_LEFTOVER),
        summary: "a process is left in the pod's control group; its rmdir fails with EBUSY",
        volumes: &[TOKENS, LOGS],
        fixtures: &[Fixture::GroupMember],
        needs: Some("control groups that can be made"),
        options: &[],
        expected: Some(Expected { actor: Some("sleep"), ..Expected::STUCK }),
        ..Case::PLAIN
    },
];
