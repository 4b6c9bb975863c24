//! A mount that is in use.

pub(crate) mod causes;
pub(crate) mod held_volume;
pub(crate) mod in_use;
pub(crate) mod left_rootfs;
pub(crate) mod mount_point;
pub(crate) mod nested;
pub(crate) mod tracker;

use crate::{
    family::Family,
    model::degraded::Feed,
    tracker::{Claim, Scope, TrackerId, TrackerSpec, yields},
};

/// The family's causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[
        &causes::NESTED_MOUNT,
        &causes::HELD_BY_PROCESS,
        &causes::HELD_BY_AGENT,
        &causes::SUBMOUNT,
        &causes::TERMINATION_MESSAGE,
        &causes::SUBPATH_BUSY,
        &causes::MOUNT_OVER_VOLUME,
        &causes::SHIM_ROOTFS_BUSY,
        &causes::BUSY_UNEXPLAINED,
    ],
    trackers: &[
        TrackerSpec {
            id: TrackerId::Busy,
            feeds: &[Feed::Calls, Feed::Node, Feed::Holders],
            yields: &[
                yields(
                    TrackerId::CrossedMount,
                    Claim::Suspicion,
                    Scope::Target,
                    "the mount that a removal went through is busy afterwards",
                ),
                yields(TrackerId::Orphan, Claim::Finding, Scope::Pod, "no pod waits for an orphan"),
                yields(
                    TrackerId::DeadMount,
                    Claim::Finding,
                    Scope::Path,
                    "what is above a dead mount stays because of it",
                ),
            ],
            new: || Box::<tracker::Busy>::default(),
        },
        TrackerSpec {
            id: TrackerId::LeftRootfs,
            feeds: &[Feed::Node, Feed::Holders, Feed::Logs],
            yields: &[yields(
                TrackerId::Busy,
                Claim::Suspicion,
                Scope::Target,
                "an attempt is made, and fails",
            )],
            new: || Box::<left_rootfs::RootFileSystems>::default(),
        },
        TrackerSpec {
            id: TrackerId::HeldVolume,
            feeds: &[Feed::Node, Feed::Holders, Feed::Logs],
            yields: &[yields(
                TrackerId::Busy,
                Claim::Suspicion,
                Scope::Target,
                "an attempt is made, and fails",
            )],
            new: || Box::<held_volume::HeldVolumes>::default(),
        },
    ],
};

#[cfg(test)]
mod tests;
