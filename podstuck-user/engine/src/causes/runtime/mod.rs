//! A container runtime, or a shim, that does not do what it is asked for.

pub(crate) mod causes;
pub(crate) mod docker;
pub(crate) mod docker_tracker;
pub(crate) mod image_volume;
pub(crate) mod sandbox;
pub(crate) mod sandbox_mounts;
pub(crate) mod says;
pub(crate) mod says_tracker;
pub(crate) mod shim;
pub(crate) mod shim_tracker;
pub(crate) mod silent;
pub(crate) mod silent_daemon;
pub(crate) mod state;
pub(crate) mod state_tracker;

use crate::{
    family::Family,
    model::degraded::Feed,
    tracker::{Claim, Scope, TrackerId, TrackerSpec, yields},
};

/// Its causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[
        &causes::CNI_TEARDOWN_FAILED,
        &sandbox::NETNS_BUSY,
        &sandbox::SHM_BUSY,
        &image_volume::IMAGE_VOLUME_BUSY,
        &causes::SIGNAL_DENIED,
        &causes::STATE_LOST,
        &causes::RUNTIME_DOWN,
        &causes::SHIM_HANGS,
        &causes::RUNTIME_HANGS,
        &docker::OUT_OF_STEP,
    ],
    trackers: &[
        TrackerSpec {
            id: TrackerId::RuntimeState,
            feeds: &[Feed::Node, Feed::Logs],
            yields: &[],
            new: || Box::<state_tracker::RuntimeStates>::default(),
        },
        TrackerSpec {
            id: TrackerId::DockerState,
            feeds: &[Feed::Node, Feed::Logs],
            yields: &[],
            new: || Box::<docker_tracker::DockerStates>::default(),
        },
        TrackerSpec {
            id: TrackerId::RuntimeSays,
            feeds: &[Feed::Calls, Feed::Node, Feed::Holders, Feed::Logs],
            yields: &[
                yields(
                    TrackerId::RuntimeState,
                    Claim::Finding,
                    Scope::Pod,
                    "it is known what the runtime waits for, and so why it does not answer",
                ),
                yields(
                    TrackerId::DockerState,
                    Claim::Finding,
                    Scope::Pod,
                    "it is known what the runtime waits for, and so why it does not answer",
                ),
                yields(
                    TrackerId::Unkillable,
                    Claim::Finding,
                    Scope::Pod,
                    "it is known what the runtime waits for, and so why it does not answer",
                ),
                yields(
                    TrackerId::LeftRootfs,
                    Claim::Suspicion,
                    Scope::Pod,
                    "it is known what the runtime waits for, and so why it does not answer",
                ),
            ],
            new: || Box::<says_tracker::RuntimeSays>::default(),
        },
        TrackerSpec {
            id: TrackerId::ShimState,
            feeds: &[Feed::Node],
            yields: &[yields(
                TrackerId::RuntimeSays,
                Claim::Finding,
                Scope::Pod,
                "the same shim is told with what the runtime says of it",
            )],
            new: || Box::<shim_tracker::ShimStates>::default(),
        },
    ],
};
