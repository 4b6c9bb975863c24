//! What the API server says of the pod.

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
        &verdict::FINALIZER,
        &verdict::NOT_DELETED,
        &verdict::IN_GRACE,
        &verdict::NOT_ON_THIS_NODE,
    ],
    trackers: &[TrackerSpec {
        id: TrackerId::PodRecord,
        feeds: &[Feed::Node],
        yields: &[],
        new: || Box::<tracker::PodRecords>::default(),
    }],
};
