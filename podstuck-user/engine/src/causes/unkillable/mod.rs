//! Processes of a pod that do not end, and control groups that do not become empty.

pub(crate) mod causes;
pub(crate) mod tracker;
pub(crate) mod verdict;
pub(crate) mod wait;

use crate::{
    family::Family,
    model::degraded::Feed,
    tracker::{TrackerId, TrackerSpec},
};

/// Its causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[
        &causes::DSTATE,
        &causes::GPU_DSTATE,
        &causes::FROZEN_V1,
        &causes::ZOMBIE,
        &causes::TRACED,
        &causes::CGROUP_POPULATED,
    ],
    trackers: &[TrackerSpec {
        id: TrackerId::Unkillable,
        feeds: &[Feed::Calls, Feed::Node, Feed::Logs],
        yields: &[],
        new: || Box::<tracker::Unkillables>::default(),
    }],
};

#[cfg(test)]
mod tests;
