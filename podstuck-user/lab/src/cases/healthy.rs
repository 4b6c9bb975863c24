//! Where nothing is wrong.

use super::{LOGS, SOON, TOKENS, csi, empty_dir};
use crate::case::{Case, Driver, Kind};

pub(super) const CASES: &[Case] = &[Case {
    id: "healthy",
    cause: None,
    summary: "ordinary pods are deleted one after the other: nothing is wrong",
    volumes: &[TOKENS, csi("scratch", Driver::Works), LOGS, empty_dir("data", Kind::Files)],
    repeats: true,
    // Long enough for each of its volumes to be missed.
    options: &["--duration", "14s"],
    watch_options: SOON,
    ..Case::PLAIN
}];
