//! Removals that are refused: attributes, swap files, permissions.

pub(crate) mod causes;
pub(crate) mod protected;
pub(crate) mod tracker;
pub(crate) mod verdict;

use crate::{
    family::Family,
    model::degraded::Feed,
    tracker::{Claim, Scope, TrackerId, TrackerSpec, yields},
};

/// The family's causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[
        &causes::SWAP_FILE,
        &causes::IMMUTABLE_ATTRIBUTE,
        &causes::APPEND_ONLY_ATTRIBUTE,
        &causes::PERMISSION_UNEXPLAINED,
    ],
    trackers: &[
        TrackerSpec {
            id: TrackerId::Refused,
            feeds: &[Feed::Calls, Feed::Objects],
            yields: &[],
            new: || Box::<tracker::Refusals>::default(),
        },
        TrackerSpec {
            id: TrackerId::Protected,
            feeds: &[Feed::Node, Feed::Objects],
            yields: &[yields(
                TrackerId::Refused,
                Claim::Finding,
                Scope::Target,
                "an attempt is made, and fails",
            )],
            new: || Box::<protected::Protections>::default(),
        },
    ],
};

#[cfg(test)]
mod tests;
