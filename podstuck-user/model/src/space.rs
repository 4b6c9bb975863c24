//! How full the file systems are that kubelet and the runtimes live on.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{raw_path, time::Monotonic};

/// A file system that kubelet or a runtime lives on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// The first of their directories on it.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
    /// Whether that is one of kubelet's roots.
    pub is_kubelets: bool,
    /// A process that sees it there, and its mount namespace; `None` for the host.
    pub seen_by: Option<(u32, u32)>,
    /// How full it is.
    pub capacity: Capacity,
    /// When it was looked at.
    pub at: Monotonic,
}

impl Space {
    /// Whether nothing can be written any more, and of what there is none left.
    pub fn exhausted(&self) -> Option<&'static str> {
        let Capacity { bytes, available, inodes, inodes_available, read_only, .. } = self.capacity;
        if read_only {
            // An image is full by nature, and nobody writes there.
            return None;
        }
        // A thousandth, and on a large disk what a few log lines need.
        if bytes > 0 && available <= (bytes / 1000).min(ROOM_FOR_A_LOG) {
            Some("blocks")
        } else if inodes > 0 && inodes_available <= (inodes / 1000).min(FEW_FILES) {
            Some("inodes")
        } else {
            None
        }
    }
}

/// Far below where kubelet begins to evict pods (10 % of its file system).
const ROOM_FOR_A_LOG: u64 = 4 << 20;

/// The same for inodes.
const FEW_FILES: u64 = 64;

/// A file system's capacity, by `statvfs(3)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// `st_dev`: names the file system.
    pub device: u64,
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes that nobody uses, those kept for root included.
    pub free: u64,
    /// Bytes that anybody may use.
    pub available: u64,
    /// Inodes in all; 0 where they are made as they are needed.
    pub inodes: u64,
    /// Inodes that anybody may use.
    pub inodes_available: u64,
    /// It, or its mount, is read-only.
    pub read_only: bool,
}
