//! Deletions of very many files.

pub(crate) mod causes;
pub(crate) mod estimate;
pub(crate) mod run;
pub(crate) mod tracker;
pub(crate) mod verdict;

use crate::{
    family::Family,
    model::degraded::Feed,
    tracker::{TrackerId, TrackerSpec},
};

/// The family's causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[&causes::EMPTYDIR_FILES, &causes::DOCKER_VOLUME_STORM, &causes::MASS_DELETION],
    trackers: &[TrackerSpec {
        id: TrackerId::BulkDelete,
        feeds: &[Feed::Calls, Feed::Objects],
        yields: &[],
        new: || Box::<tracker::BulkDeletes>::default(),
    }],
};

#[cfg(test)]
mod tests;
