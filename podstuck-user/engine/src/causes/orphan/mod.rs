//! Directories of pods that the node no longer has.

pub(crate) mod tracker;
pub(crate) mod verdict;

use crate::{
    family::Family,
    model::degraded::Feed,
    tracker::{TrackerId, TrackerSpec},
};

/// Its causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[&verdict::ORPHANED_POD_DIR],
    trackers: &[TrackerSpec {
        id: TrackerId::Orphan,
        feeds: &[Feed::Calls, Feed::Node],
        yields: &[],
        new: || Box::<tracker::Orphans>::default(),
    }],
};
