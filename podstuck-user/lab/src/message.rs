//! The lab's lines on stdout, one JSON object each.

use std::io::Write;

use anyhow::{Context, Result};
use serde::Serialize;

use podstuck_engine::model::{path::JsonPath, summary::ByOutcome};

/// Everything is built and mounted; the removal is about to start.
#[derive(Debug, Serialize)]
pub(super) struct Ready<'a> {
    /// The case.
    pub(super) lab: &'a str,
    /// Always `ready`.
    pub(super) state: &'a str,
    /// The pod.
    pub(super) pod_uid: &'a str,
    /// The volume that is the subject of the case.
    #[serde(flatten)]
    pub(super) path: JsonPath,
    /// The lab's directory.
    pub(super) root: String,
    /// kubelet's root directory in it.
    pub(super) kubelet_root: String,
    /// Process id of the removal process, whose mount namespace has the mounts.
    pub(super) pid: u32,
}

/// The removal process has made its mounts. An internal message.
#[derive(Debug, Serialize)]
pub(super) struct Mounted {
    /// Always `mounted`.
    pub(super) state: &'static str,
}

/// The result of the removal process.
#[derive(Debug, Serialize)]
pub(super) struct Done<'a> {
    /// The case.
    pub(super) lab: &'a str,
    /// The pod.
    pub(super) pod_uid: &'a str,
    /// Number of attempts, over all pods.
    pub(super) attempts: u64,
    /// Number of pods that were removed completely.
    pub(super) pods_removed: u64,
    /// Counts of all calls.
    pub(super) calls: ByOutcome,
}

/// Writes one line and flushes it.
pub(super) fn send(out: &mut impl Write, message: &impl Serialize) -> Result<()> {
    send_line(out, &serde_json::to_string(message).context("cannot write JSON")?)
}

/// Like [`send`], for a line that is already JSON.
pub(super) fn send_line(out: &mut impl Write, line: &str) -> Result<()> {
    let sent = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
    sent.context("cannot write to stdout")
}
