//! One file for each kind of object that is followed from event to event; see [`crate::tracker`].

pub(crate) mod block_volume;
pub(crate) mod bulk_delete;
pub(crate) mod bulk_delete_run;
pub(crate) mod busy;
pub(crate) mod crossed_mount;
pub(crate) mod dead_mount;
pub(crate) mod device_reference;
pub(crate) mod disk_full;
pub(crate) mod docker_state;
pub(crate) mod file_system;
pub(crate) mod held_volume;
pub(crate) mod hung_call;
pub(crate) mod kubelet_state;
pub(crate) mod left_rootfs;
pub(crate) mod mount_storm;
pub(crate) mod network_storage;
pub(crate) mod not_attempted;
pub(crate) mod not_empty;
pub(crate) mod orphan;
pub(crate) mod pinned_device;
pub(crate) mod pod_record;
pub(crate) mod protected;
pub(crate) mod refused;
pub(crate) mod runtime_says;
pub(crate) mod runtime_state;
pub(crate) mod sandbox_mounts;
pub(crate) mod shim_state;
pub(crate) mod silent_daemon;
pub(crate) mod to_go;
mod told_looks;
pub(crate) mod unkillable;
pub(crate) mod unmounts;

use crate::{
    model::{
        identity::{Component, TargetKind},
        operation::Operation,
    },
    tracker::Tracker,
};

/// All of them. Each event is shown to them in this order, so that who explains comes before who is
/// explained, where that shows at the same event.
pub(crate) fn all() -> Vec<Box<dyn Tracker>> {
    vec![
        Box::<crossed_mount::CrossedMounts>::default(),
        Box::<busy::Busy>::default(),
        Box::<dead_mount::DeadMounts>::default(),
        Box::<refused::Refusals>::default(),
        Box::<file_system::FileSystemErrors>::default(),
        Box::<kubelet_state::KubeletStates>::default(),
        Box::<unkillable::Unkillables>::default(),
        Box::<bulk_delete::BulkDeletes>::default(),
        Box::<runtime_state::RuntimeStates>::default(),
        Box::<docker_state::DockerStates>::default(),
        Box::<runtime_says::RuntimeSays>::default(),
        Box::<shim_state::ShimStates>::default(),
        Box::<network_storage::NetworkStorage>::default(),
        Box::<not_attempted::NotAttempted>::default(),
        Box::<orphan::Orphans>::default(),
        Box::<not_empty::NotEmpty>::default(),
        Box::<pinned_device::PinnedDevices>::default(),
        Box::<hung_call::HungCalls>::default(),
        Box::<disk_full::FullDisks>::default(),
        Box::<pod_record::PodRecords>::default(),
        Box::<left_rootfs::RootFileSystems>::default(),
        Box::<held_volume::HeldVolumes>::default(),
        Box::<protected::Protections>::default(),
        Box::<mount_storm::MountStorms>::default(),
        Box::<block_volume::BlockVolumes>::default(),
        Box::<device_reference::DeviceReferences>::default(),
    ]
}

/// Whether this is a part of the node's own clean-up: of something that has an owner, and not by a
/// container that tidies up its own volume.
pub(crate) fn is_clean_up(op: &Operation) -> bool {
    let owned = !matches!(op.target.kind, TargetKind::Other);
    owned && op.actor.component != Component::Workload
}
