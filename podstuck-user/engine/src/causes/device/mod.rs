//! A block device that stays in use after its unmount.

pub(crate) mod block_volume;
pub(crate) mod causes;
pub(crate) mod pinned;
pub(crate) mod referenced;
use crate::{
    family::Family,
    model::degraded::Feed,
    tracker::{TrackerId, TrackerSpec},
};

/// Its causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[&causes::BLOCK_VOLUME_IN_USE, &causes::LEAKED_SUPERBLOCK, &causes::STILL_REFERENCED],
    trackers: &[
        TrackerSpec {
            id: TrackerId::PinnedDevice,
            feeds: &[Feed::Calls, Feed::Node, Feed::Holders],
            yields: &[],
            new: || Box::<pinned::PinnedDevices>::default(),
        },
        TrackerSpec {
            id: TrackerId::BlockVolume,
            feeds: &[Feed::Node, Feed::Holders, Feed::Logs],
            yields: &[],
            new: || Box::<block_volume::BlockVolumes>::default(),
        },
        TrackerSpec {
            id: TrackerId::DeviceReference,
            feeds: &[Feed::Node, Feed::Logs],
            yields: &[],
            new: || Box::<referenced::DeviceReferences>::default(),
        },
    ],
};

#[cfg(test)]
mod tests;
