//! Directories that do not become empty.

pub(crate) mod causes;
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
        &causes::DATA_UNDER_MOUNT,
        &causes::SUBPATH_SOURCE_DELETED,
        &causes::WRITER_ALIVE,
        &causes::PHANTOM_ENTRIES,
        &causes::LEFTOVER_UNEXPLAINED,
    ],
    trackers: &[TrackerSpec {
        id: TrackerId::NotEmpty,
        feeds: &[Feed::Calls, Feed::Objects],
        yields: &[
            yields(
                TrackerId::DeadMount,
                Claim::Finding,
                Scope::Path,
                "what is above a dead mount stays because of it",
            ),
            yields(
                TrackerId::Orphan,
                Claim::Suspicion,
                Scope::Pod,
                "kubelet removes only directories of a pod that is gone",
            ),
        ],
        new: || Box::<tracker::NotEmpty>::default(),
    }],
};

#[cfg(test)]
mod tests;
