//! A call that does not return.

pub(crate) mod causes;
pub(crate) mod fanotify;
pub(crate) mod judge;
mod kubelet;
pub(crate) mod tracker;
pub(crate) mod verdict;

use crate::{
    family::Family,
    model::degraded::Feed,
    tracker::{TrackerId, TrackerSpec},
};

/// Its causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[
        &causes::FUSE_DAEMON_HUNG,
        &causes::FANOTIFY_LISTENER_HUNG,
        &causes::FILESYSTEM_FROZEN,
        &causes::NFS_UNREACHABLE,
        &causes::FLUSH_SLOW,
        &causes::KERNEL_HANG,
        &causes::DEVICE_SILENT,
        &causes::LOCK_HELD,
        &causes::CALL_HUNG_UNEXPLAINED,
    ],
    trackers: &[TrackerSpec {
        id: TrackerId::HungCall,
        feeds: &[Feed::Calls, Feed::HungCalls, Feed::Node, Feed::Logs],
        yields: &[],
        new: || Box::<tracker::HungCalls>::default(),
    }],
};

#[cfg(test)]
mod tests;
