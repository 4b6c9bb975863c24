//! Storage on the network whose server is gone, or rejects this client.

pub(crate) mod causes;
pub(crate) mod tracker;
pub(crate) mod verdict;

use crate::{
    family::Family,
    model::degraded::Feed,
    tracker::{TrackerId, TrackerSpec},
};

/// Its causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[&causes::EFS_STUNNEL_DEAD, &causes::SMB_HOST_DOWN, &causes::CEPHFS_EVICTED],
    trackers: &[TrackerSpec {
        id: TrackerId::NetworkStorage,
        feeds: &[Feed::Node, Feed::Logs],
        yields: &[],
        new: || Box::<tracker::NetworkStorage>::default(),
    }],
};
