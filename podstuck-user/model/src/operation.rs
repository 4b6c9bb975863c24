//! A call that was reported individually, with caller, target and full path.

use std::{path::PathBuf, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    call::{Call, Outcome},
    evidence::Source,
    identity::{Actor, Target},
    raw_path,
    time::Monotonic,
};

/// A call that was reported individually: a failure, a slow call, or the first of its kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Operation {
    /// When it returned.
    pub end: Monotonic,
    /// Its duration.
    pub duration: Duration,
    /// The call.
    pub call: Call,
    /// The outcome.
    pub outcome: Outcome,
    /// Bits of [`podstuck_common::record::reason`].
    pub reason: u32,
    /// Bits of [`podstuck_common::record::flaw`].
    pub flaws: u16,
    /// Flags argument.
    pub flags: u32,
    /// The object in the caller's mount namespace.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
    /// Hash of the target, as in the counts.
    pub target_id: u64,
    /// The target.
    pub target: Arc<Target>,
    /// The caller.
    pub actor: Arc<Actor>,
    /// Thread that called.
    pub tid: u32,
    /// Inode number of the caller's mount namespace.
    pub mnt_ns: u32,
    /// Device and inode number of the directory that holds the object.
    pub directory: (u32, u64),
    /// Mount through which that directory was reached.
    pub mount_id: u32,
    /// Depth below the target's root; 0 for the root itself.
    pub depth: u8,
    /// Depth below the target's root of the deepest mount on the path to the directory; 0 for none.
    pub mount_depth: u8,
    /// Number of similar calls suppressed since the last report.
    pub suppressed: u32,
    /// The log that reports it, if no probe saw it. Then only caller, call, object, outcome and time are set.
    #[serde(rename = "told_by", skip_serializing_if = "Option::is_none", default)]
    pub logged_in: Option<Arc<str>>,
}

impl Operation {
    /// The source of evidence.
    pub fn source(&self) -> Source {
        self.logged_in.as_ref().map_or(Source::Probe, |log| Source::Log(log.to_string()))
    }

    /// Whether it was reported for this reason.
    pub fn has(&self, reason: u32) -> bool {
        self.reason & reason != 0
    }
}
