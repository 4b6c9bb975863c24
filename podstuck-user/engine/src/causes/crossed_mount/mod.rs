//! A removal of kubelet's that goes through a mount, and deletes what is on the other side.

pub(crate) mod tracker;
pub(crate) mod verdict;

use crate::{
    family::Family,
    model::degraded::Feed,
    tracker::{TrackerId, TrackerSpec},
};

/// Its causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[&verdict::REMOVAL_CROSSES_MOUNT],
    trackers: &[TrackerSpec {
        id: TrackerId::CrossedMount,
        feeds: &[Feed::Calls],
        yields: &[],
        new: || Box::<tracker::CrossedMounts>::default(),
    }],
};
