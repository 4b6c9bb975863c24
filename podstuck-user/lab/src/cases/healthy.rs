//! Cases without a fault.

use super::{LOGS, SOON, TOKENS, csi, empty_dir};
use crate::case::{Case, Driver, Fixture, Kind};

/// Long enough for a missing call on each volume to be reported.
const LONG: &[&str] = &["--duration", "14s"];

pub(super) const CASES: &[Case] = &[
    Case {
        id: "healthy",
        cause: None,
        summary: "ordinary pods are deleted one after the other: nothing is wrong",
        volumes: &[TOKENS, csi("scratch", Driver::Works), LOGS, empty_dir("data", Kind::Files)],
        repeats: true,
        options: LONG,
        watch_options: SOON,
        ..Case::PLAIN
    },
    Case {
        id: "held-for-a-moment",
        cause: None,
        summary: "an agent has a volume open for 100 ms: the first umount fails with EBUSY, nothing is wrong",
        volumes: &[TOKENS, LOGS, empty_dir("cache", Kind::Memory)],
        fixtures: &[Fixture::Reader],
        repeats: true,
        options: LONG,
        watch_options: SOON,
        ..Case::PLAIN
    },
];
