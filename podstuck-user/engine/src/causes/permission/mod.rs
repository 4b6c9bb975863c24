//! A removal that is refused: attributes, swap files, rights.

pub(crate) mod protected;
pub(crate) mod protected_tracker;
pub(crate) mod refused;
pub(crate) mod refused_tracker;
pub(crate) mod swap_file;

use crate::{
    family::Family,
    model::degraded::Feed,
    tracker::{Claim, Scope, TrackerId, TrackerSpec, yields},
};

/// Its causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[
        &swap_file::SWAP_FILE,
        &refused::IMMUTABLE_ATTRIBUTE,
        &refused::APPEND_ONLY_ATTRIBUTE,
        &refused::PERMISSION_UNEXPLAINED,
    ],
    trackers: &[
        TrackerSpec {
            id: TrackerId::Refused,
            feeds: &[Feed::Calls, Feed::Objects],
            yields: &[],
            new: || Box::<refused_tracker::Refusals>::default(),
        },
        TrackerSpec {
            id: TrackerId::Protected,
            feeds: &[Feed::Node, Feed::Objects],
            yields: &[yields(
                TrackerId::Refused,
                Claim::Finding,
                Scope::Target,
                "somebody does try, and fails",
            )],
            new: || Box::<protected_tracker::Protections>::default(),
        },
    ],
};
