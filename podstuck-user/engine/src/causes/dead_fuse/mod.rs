//! A FUSE mount whose server is gone.

pub(crate) mod from_log;
pub(crate) mod tracker;
pub(crate) mod verdict;

use crate::{
    family::Family,
    model::degraded::Feed,
    tracker::{Claim, Scope, TrackerId, TrackerSpec, yields},
};

/// Its causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[&verdict::FUSE_DAEMON_DEAD],
    trackers: &[TrackerSpec {
        id: TrackerId::DeadMount,
        feeds: &[Feed::Calls, Feed::Node, Feed::Objects, Feed::Logs],
        yields: &[
            yields(
                TrackerId::CrossedMount,
                Claim::Suspicion,
                Scope::Target,
                "the mount that a removal went through is busy afterwards",
            ),
            yields(TrackerId::Orphan, Claim::Finding, Scope::Pod, "no pod waits for an orphan"),
        ],
        new: || Box::<tracker::DeadMounts>::default(),
    }],
};
