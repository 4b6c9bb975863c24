//! A container runtime, or a shim, that does not do what it is asked for.

pub(crate) mod causes;
pub(crate) mod device;
pub(crate) mod docker;
pub(crate) mod handler;
pub(crate) mod hook;
pub(crate) mod hung_command;
pub(crate) mod log_driver;
pub(crate) mod network;
mod network_files;
mod network_record;
pub(crate) mod not_killed;
pub(crate) mod own_kernel;
pub(crate) mod sandbox;
pub(crate) mod shim;
pub(crate) mod socket;
pub(crate) mod state;
pub(crate) mod suspect;
pub(crate) mod tracker;
pub(crate) mod unresponsive;
pub(crate) mod verdict;

use crate::{
    family::Family,
    model::degraded::Feed,
    tracker::{Claim, Scope, TrackerId, TrackerSpec, yields},
};

/// Its causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[
        &causes::CNI_TEARDOWN_FAILED,
        &causes::NETNS_BUSY,
        &causes::SHM_BUSY,
        &causes::IMAGE_VOLUME_BUSY,
        &device::DEVICE_BUSY,
        &causes::SIGNAL_DENIED,
        &causes::STATE_LOST,
        &causes::NOT_KILLED,
        &causes::SANDBOX_STAYS,
        &causes::RUNTIME_DOWN,
        &causes::SOCKET_GONE,
        &causes::SHIM_HANGS,
        &causes::RUNTIME_HANGS,
        &causes::OUT_OF_STEP,
        &causes::LOG_DRIVER,
        &hook::HOOK_FAILS,
        &handler::HANDLER_GONE,
        &hung_command::COMMAND_HANGS,
    ],
    trackers: &[
        TrackerSpec {
            id: TrackerId::RuntimeState,
            feeds: &[Feed::Node, Feed::Space, Feed::Logs],
            yields: &[],
            new: || Box::<state::RuntimeStates>::default(),
        },
        TrackerSpec {
            id: TrackerId::DockerState,
            feeds: &[Feed::Node, Feed::Space, Feed::Logs],
            yields: &[],
            new: || Box::<docker::DockerStates>::default(),
        },
        TrackerSpec {
            id: TrackerId::RuntimeSays,
            feeds: &[Feed::Calls, Feed::Node, Feed::Space, Feed::Holders, Feed::Logs],
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
            new: || Box::<tracker::RuntimeSays>::default(),
        },
        TrackerSpec {
            id: TrackerId::ShimState,
            feeds: &[Feed::Node],
            yields: &[yields(
                TrackerId::RuntimeSays,
                Claim::Finding,
                Scope::Pod,
                "the finding about what the runtime says names the same shim",
            )],
            new: || Box::<shim::ShimStates>::default(),
        },
    ],
};

#[cfg(test)]
mod tests;
