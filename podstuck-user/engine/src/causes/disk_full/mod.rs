//! A file system without room, which kubelet or the runtime needs for a deletion.

pub(crate) mod tracker;
pub(crate) mod verdict;

use crate::{
    family::Family,
    model::degraded::Feed,
    tracker::{TrackerId, TrackerSpec},
};

/// Its causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[&verdict::DISK_FULL],
    trackers: &[TrackerSpec {
        id: TrackerId::DiskFull,
        feeds: &[Feed::Node, Feed::Space],
        yields: &[],
        new: || Box::<tracker::FullDisks>::default(),
    }],
};
