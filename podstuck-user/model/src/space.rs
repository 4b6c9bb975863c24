//! Usage of the file systems of kubelet and the runtimes.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{raw_path, time::Monotonic};

/// A file system of kubelet or a runtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// The first of their directories on it.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
    /// Whether that directory is a kubelet root.
    pub is_kubelets: bool,
    /// A process that sees it at this path, and its mount namespace; `None` for the host.
    pub seen_by: Option<(u32, u32)>,
    /// Its usage.
    pub capacity: Capacity,
    /// When it was read.
    pub at: Monotonic,
}

impl Space {
    /// `blocks` or `inodes` if none is available for writing.
    pub fn exhausted(&self) -> Option<&'static str> {
        let Capacity { bytes, available, inodes, inodes_available, read_only, .. } = self.capacity;
        if read_only {
            // A read-only image is full by nature.
            return None;
        }
        // A thousandth, or on a large disk the space of a few log lines.
        if bytes > 0 && available <= (bytes / 1000).min(ROOM_FOR_A_LOG) {
            Some("blocks")
        } else if inodes > 0 && inodes_available <= (inodes / 1000).min(FEW_FILES) {
            Some("inodes")
        } else {
            None
        }
    }
}

/// Far below kubelet's eviction threshold (10 % of its file system).
const ROOM_FOR_A_LOG: u64 = 4 << 20;

/// The same for inodes.
const FEW_FILES: u64 = 64;

/// The capacity of a file system, by `statvfs(3)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// `st_dev`: identifies the file system.
    pub device: u64,
    /// Total bytes.
    pub bytes: u64,
    /// Free bytes, including those reserved for root.
    pub free: u64,
    /// Bytes available to unprivileged processes.
    pub available: u64,
    /// Total inodes; 0 for a file system without a fixed number.
    pub inodes: u64,
    /// Inodes available to unprivileged processes.
    pub inodes_available: u64,
    /// Whether the file system or its mount is read-only.
    pub read_only: bool,
}
