//! A kubelet that does not run, or is stopped.

pub(crate) mod tracker;
pub(crate) mod verdict;

use crate::{
    family::Family,
    model::degraded::Feed,
    tracker::{TrackerId, TrackerSpec},
};

/// Its causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[&verdict::KUBELET_STOPPED, &verdict::KUBELET_DOWN],
    trackers: &[TrackerSpec {
        id: TrackerId::KubeletState,
        feeds: &[Feed::Node, Feed::Logs],
        yields: &[],
        new: || Box::<tracker::KubeletStates>::default(),
    }],
};
