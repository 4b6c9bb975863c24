//! A block device that stays in use after its unmount.

pub(crate) mod block_volume;
pub(crate) mod block_volume_tracker;
pub(crate) mod pinned;
pub(crate) mod pinned_tracker;
pub(crate) mod referenced;
pub(crate) mod referenced_tracker;

use crate::{
    family::Family,
    model::degraded::Feed,
    tracker::{TrackerId, TrackerSpec},
};

/// Its causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[
        &block_volume::BLOCK_VOLUME_IN_USE,
        &pinned::LEAKED_SUPERBLOCK,
        &referenced::STILL_REFERENCED,
    ],
    trackers: &[
        TrackerSpec {
            id: TrackerId::PinnedDevice,
            feeds: &[Feed::Calls, Feed::Node, Feed::Holders],
            yields: &[],
            new: || Box::<pinned_tracker::PinnedDevices>::default(),
        },
        TrackerSpec {
            id: TrackerId::BlockVolume,
            feeds: &[Feed::Node, Feed::Holders, Feed::Logs],
            yields: &[],
            new: || Box::<block_volume_tracker::BlockVolumes>::default(),
        },
        TrackerSpec {
            id: TrackerId::DeviceReference,
            feeds: &[Feed::Node, Feed::Logs],
            yields: &[],
            new: || Box::<referenced_tracker::DeviceReferences>::default(),
        },
    ],
};
