//! One call that the probes reported, with its people and its full path.

use std::{path::PathBuf, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    call::{Call, Outcome},
    evidence::Source,
    identity::{Actor, Target},
    raw_path,
    time::Monotonic,
};

/// A call that was reported one by one: a failure, a slow call, a first sight.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Operation {
    /// When it returned.
    pub end: Monotonic,
    /// How long it took.
    pub duration: Duration,
    /// What was called.
    pub call: Call,
    /// How it ended.
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
    /// Hash that names the target in the counts.
    pub target_id: u64,
    /// What it was about.
    pub target: Arc<Target>,
    /// Who called.
    pub actor: Arc<Actor>,
    /// Thread that called.
    pub tid: u32,
    /// Inode number of the caller's mount namespace.
    pub mnt_ns: u32,
    /// Device and inode number of the directory that holds the object.
    pub directory: (u32, u64),
    /// Mount through which that directory was reached.
    pub mount_id: u32,
    /// Levels below the target's root; 0 for the root itself.
    pub depth: u8,
    /// Level below the target's root of the deepest mount on the way to the directory; 0 for none.
    pub mount_depth: u8,
    /// Similar calls that were not reported since the last one that was.
    pub suppressed: u32,
    /// The log that tells of it, where no probe saw it. Then only what a log can say is set: caller,
    /// call, object, outcome and time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub told_by: Option<Arc<str>>,
}

impl Operation {
    /// Where it was read.
    pub fn source(&self) -> Source {
        self.told_by.as_ref().map_or(Source::Probe, |log| Source::Log(log.to_string()))
    }

    /// Whether it was reported for this reason.
    pub fn has(&self, reason: u32) -> bool {
        self.reason & reason != 0
    }
}
