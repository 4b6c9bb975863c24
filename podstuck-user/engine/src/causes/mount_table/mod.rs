//! A mount table of very many mounts, which slows each unmount.

pub(crate) mod tracker;
pub(crate) mod verdict;

use crate::{
    family::Family,
    model::degraded::Feed,
    tracker::{TrackerId, TrackerSpec},
};

/// Its causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[&verdict::MOUNT_STORM],
    trackers: &[TrackerSpec {
        id: TrackerId::MountStorm,
        feeds: &[Feed::Calls, Feed::Node],
        yields: &[],
        new: || Box::<tracker::MountStorms>::default(),
    }],
};
