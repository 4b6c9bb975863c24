//! Families of causes, one module each: trackers, causes and remedies.

pub(crate) mod busy_mount;
pub mod cluster;
pub(crate) mod crossed_mount;
pub(crate) mod csi_volume;
pub(crate) mod dead_fuse;
pub(crate) mod device;
pub(crate) mod disk_full;
pub(crate) mod file_system;
pub(crate) mod flex_volume;
pub(crate) mod hung_call;
pub(crate) mod kubelet_state;
pub(crate) mod mass_deletion;
pub(crate) mod mount_table;
pub(crate) mod network_storage;
pub(crate) mod not_empty;
pub(crate) mod orphan;
pub(crate) mod permission;
pub(crate) mod pod_record;
pub(crate) mod runtime;
pub(crate) mod shared;
pub(crate) mod unkillable;
pub(crate) mod volume_command;

use crate::{
    family::Family,
    tracker::{TrackerId, TrackerSpec, Yields},
};

/// All families, in the order in which the documentation lists their causes. They register all causes and trackers.
pub(crate) static FAMILIES: [&Family; 21] = [
    &csi_volume::FAMILY,
    &not_empty::FAMILY,
    &orphan::FAMILY,
    &busy_mount::FAMILY,
    &device::FAMILY,
    &crossed_mount::FAMILY,
    &permission::FAMILY,
    &mass_deletion::FAMILY,
    &dead_fuse::FAMILY,
    &hung_call::FAMILY,
    &network_storage::FAMILY,
    &unkillable::FAMILY,
    &runtime::FAMILY,
    &kubelet_state::FAMILY,
    &disk_full::FAMILY,
    &mount_table::FAMILY,
    &file_system::FAMILY,
    &flex_volume::FAMILY,
    &volume_command::FAMILY,
    &pod_record::FAMILY,
    &cluster::FAMILY,
];

/// The order in which the trackers take an event: a tracker that explains comes before the one that it explains, if both
/// depend on the same event.
const ORDER: [TrackerId; 31] = [
    TrackerId::CrossedMount,
    TrackerId::Busy,
    TrackerId::DeadMount,
    TrackerId::Refused,
    TrackerId::FileSystem,
    TrackerId::KubeletState,
    TrackerId::SliceWait,
    TrackerId::KubeletsPart,
    TrackerId::Unkillable,
    TrackerId::BulkDelete,
    TrackerId::RuntimeState,
    TrackerId::DockerState,
    TrackerId::RuntimeSays,
    TrackerId::ShimState,
    TrackerId::NetworkStorage,
    TrackerId::VolumeCommand,
    TrackerId::NotAttempted,
    TrackerId::Orphan,
    TrackerId::NotEmpty,
    TrackerId::PinnedDevice,
    TrackerId::HungCall,
    TrackerId::DiskFull,
    TrackerId::PodRecord,
    TrackerId::StatusRefused,
    TrackerId::FlexVolume,
    TrackerId::LeftRootfs,
    TrackerId::HeldVolume,
    TrackerId::Protected,
    TrackerId::MountStorm,
    TrackerId::BlockVolume,
    TrackerId::DeviceReference,
];

/// The specifications of all trackers, in the order in which they take an event.
pub(crate) fn trackers() -> impl Iterator<Item = &'static TrackerSpec> {
    ORDER.into_iter().filter_map(tracker)
}

/// The trackers that suppress this one.
pub(crate) fn yields_of(id: TrackerId) -> &'static [Yields] {
    tracker(id).map_or(&[], |spec| spec.yields)
}

/// The specification of a tracker; `None` if no family has it.
pub(crate) fn tracker(id: TrackerId) -> Option<&'static TrackerSpec> {
    FAMILIES.iter().flat_map(|family| family.trackers).find(|spec| spec.id == id)
}

#[cfg(test)]
mod skeleton;
#[cfg(test)]
mod tests;
