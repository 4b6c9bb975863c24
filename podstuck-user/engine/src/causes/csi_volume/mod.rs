//! A volume that no component unmounts.

pub(crate) mod causes;
pub(crate) mod driver;
pub(crate) mod fault;
pub(crate) mod kubelet_lost;
pub(crate) mod kubelets_log;
pub(crate) mod left_mounted;
pub(crate) mod linked_root;
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
        &causes::LOST_PUBLISH_STATE,
        &causes::NOT_REGISTERED,
        &causes::DRIVER_DOWN,
        &causes::DRIVER_HANGS,
        &causes::DRIVER_ERROR,
        &causes::NOT_IDEMPOTENT,
        &causes::WRONG_NAMESPACE,
        &causes::VOL_DATA_LOST,
        &causes::KUBELET_LOST,
        &causes::NOT_ATTEMPTED,
        &causes::STACKED_MOUNTS,
        &causes::ROOT_SYMLINK,
    ],
    trackers: &[TrackerSpec {
        id: TrackerId::NotAttempted,
        feeds: &[Feed::Calls, Feed::Node, Feed::Objects, Feed::Holders, Feed::Logs],
        yields: &[
            yields(
                TrackerId::Orphan,
                Claim::Suspicion,
                Scope::Pod,
                "kubelet removes only directories of a pod that is gone",
            ),
            yields(
                TrackerId::Busy,
                Claim::Suspicion,
                Scope::Target,
                "an attempt is made, and fails",
            ),
            yields(
                TrackerId::NotEmpty,
                Claim::Suspicion,
                Scope::Target,
                "an attempt is made, and fails",
            ),
            yields(
                TrackerId::HungCall,
                Claim::Suspicion,
                Scope::Target,
                "an attempt is made, and fails",
            ),
            yields(
                TrackerId::DeadMount,
                Claim::Finding,
                Scope::Target,
                "an attempt is made, and fails",
            ),
            yields(
                TrackerId::FileSystem,
                Claim::Finding,
                Scope::Target,
                "an attempt is made, and fails",
            ),
            yields(
                TrackerId::NetworkStorage,
                Claim::Finding,
                Scope::Target,
                "an attempt is made, and fails",
            ),
            yields(
                TrackerId::VolumeCommand,
                Claim::Finding,
                Scope::Pod,
                "an attempt is made, and does not return",
            ),
            yields(
                TrackerId::KubeletState,
                Claim::Finding,
                Scope::Pod,
                "kubelet, which would try, does not run",
            ),
            yields(
                TrackerId::RuntimeSays,
                Claim::Finding,
                Scope::Pod,
                "kubelet unmounts nothing before the pod's sandbox has been stopped",
            ),
            yields(
                TrackerId::RuntimeState,
                Claim::Finding,
                Scope::Pod,
                "kubelet unmounts nothing before the pod's sandbox has been stopped",
            ),
            yields(
                TrackerId::DockerState,
                Claim::Finding,
                Scope::Pod,
                "kubelet unmounts nothing before the pod's sandbox has been stopped",
            ),
        ],
        new: || Box::<tracker::NotAttempted>::default(),
    }],
};

#[cfg(test)]
mod tests;
