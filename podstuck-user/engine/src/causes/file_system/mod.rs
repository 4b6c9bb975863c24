//! A file system that refuses a removal: read-only, failing, stale.

pub(crate) mod causes;
pub(crate) mod looked;
pub(crate) mod tracker;
pub(crate) mod verdict;

use crate::{
    family::Family,
    model::degraded::Feed,
    tracker::{Claim, Scope, TrackerId, TrackerSpec, yields},
};

/// Its causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[
        &causes::READ_ONLY,
        &causes::READ_ONLY_SUBVOLUME,
        &causes::DEVICE_ERROR,
        &causes::STALE_HANDLE,
        &causes::REMOVAL_FAILED_UNEXPLAINED,
    ],
    trackers: &[TrackerSpec {
        id: TrackerId::FileSystem,
        feeds: &[Feed::Calls, Feed::Node, Feed::Objects, Feed::Logs],
        yields: &[yields(
            TrackerId::Orphan,
            Claim::Finding,
            Scope::Pod,
            "no pod waits for an orphan",
        )],
        new: || Box::<tracker::FileSystemErrors>::default(),
    }],
};

#[cfg(test)]
mod tests;
