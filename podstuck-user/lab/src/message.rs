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
    /// The volume that the case is about.
    #[serde(flatten)]
    pub(super) path: JsonPath,
    /// The lab's directory.
    pub(super) root: String,
    /// Kubelet's root in it.
    pub(super) kubelet_root: String,
    /// The process that plays kubelet; its mount namespace has the mounts.
    pub(super) pid: u32,
}

/// From the removal process: its mounts are made. Not for the outside.
#[derive(Debug, Serialize)]
pub(super) struct Mounted {
    /// Always `mounted`.
    pub(super) state: &'static str,
}

/// What the removal process did.
#[derive(Debug, Serialize)]
pub(super) struct Done<'a> {
    /// The case.
    pub(super) lab: &'a str,
    /// The pod.
    pub(super) pod_uid: &'a str,
    /// How often the pod's remaining volumes were tried, over all pods.
    pub(super) attempts: u64,
    /// How many pods went away entirely.
    pub(super) pods_removed: u64,
    /// Every call that it made.
    pub(super) calls: ByOutcome,
}

/// Writes one line at once, for a reader that waits for it.
pub(super) fn send(out: &mut impl Write, message: &impl Serialize) -> Result<()> {
    send_line(out, &serde_json::to_string(message).context("cannot write JSON")?)
}

/// The same for a line that is JSON already.
pub(super) fn send_line(out: &mut impl Write, line: &str) -> Result<()> {
    let sent = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
    sent.context("cannot write to stdout")
}
