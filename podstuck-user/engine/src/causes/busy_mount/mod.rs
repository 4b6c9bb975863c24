//! A mount that is in use.

pub(crate) mod causes;
pub(crate) mod held_volume;
pub(crate) mod held_volume_tracker;
pub(crate) mod in_use;
pub(crate) mod left_rootfs;
pub(crate) mod left_rootfs_tracker;
pub(crate) mod mount_point;
pub(crate) mod nested;
pub(crate) mod tracker;

use crate::{
    family::Family,
    model::degraded::Feed,
    tracker::{Claim, Scope, TrackerId, TrackerSpec, yields},
};

/// Its causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[
        &nested::NESTED_MOUNT,
        &causes::HELD_BY_PROCESS,
        &causes::HELD_BY_AGENT,
        &nested::SUBMOUNT,
        &nested::TERMINATION_MESSAGE,
        &nested::SUBPATH_BUSY,
        &nested::MOUNT_OVER_VOLUME,
        &causes::SHIM_ROOTFS_BUSY,
        &mount_point::BUSY_UNEXPLAINED,
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
                "somebody does try, and fails",
            )],
            new: || Box::<left_rootfs_tracker::RootFileSystems>::default(),
        },
        TrackerSpec {
            id: TrackerId::HeldVolume,
            feeds: &[Feed::Node, Feed::Holders, Feed::Logs],
            yields: &[yields(
                TrackerId::Busy,
                Claim::Suspicion,
                Scope::Target,
                "somebody does try, and fails",
            )],
            new: || Box::<held_volume_tracker::HeldVolumes>::default(),
        },
    ],
};
