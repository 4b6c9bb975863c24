//! All causes that podstuck can name, and those that it only knows to be confused with them.

use crate::{
    cause::{Cause, CauseId},
    rules::{
        block_volume, bulk_delete, crossed_mount,
        csi_driver::causes as csi_driver,
        dead_mount, device_referenced, disk_full,
        file_system::causes as file_system,
        hung_call_cause::causes as hung_call,
        kubelet_lost, kubelet_state, left_mounted, linked_root,
        mount_in_use::causes as mount_in_use,
        mount_point, mount_storm, nested_mount,
        network_storage::causes as network_storage,
        not_attempted,
        not_empty::causes as not_empty,
        orphan, pinned_device, pod_record, refused,
        runtime::{causes as runtime, docker, image_volume, sandbox},
        swap_file,
        unkillable::causes as unkillable,
    },
};

/// Every cause that a finding can have, in the order in which documents list them.
pub static ALL: [&Cause; 74] = [
    &left_mounted::LOST_PUBLISH_STATE,
    &csi_driver::NOT_REGISTERED,
    &csi_driver::DRIVER_DOWN,
    &csi_driver::DRIVER_HANGS,
    &csi_driver::DRIVER_ERROR,
    &csi_driver::NOT_IDEMPOTENT,
    &left_mounted::WRONG_NAMESPACE,
    &not_attempted::VOL_DATA_LOST,
    &kubelet_lost::KUBELET_LOST,
    &not_attempted::NOT_ATTEMPTED,
    &not_empty::DATA_UNDER_MOUNT,
    &not_empty::SUBPATH_SOURCE_DELETED,
    &not_empty::WRITER_ALIVE,
    &not_empty::PHANTOM_ENTRIES,
    &orphan::ORPHANED_POD_DIR,
    &left_mounted::STACKED_MOUNTS,
    &linked_root::ROOT_SYMLINK,
    &nested_mount::NESTED_MOUNT,
    &mount_in_use::HELD_BY_PROCESS,
    &mount_in_use::HELD_BY_AGENT,
    &swap_file::SWAP_FILE,
    &block_volume::BLOCK_VOLUME_IN_USE,
    &pinned_device::LEAKED_SUPERBLOCK,
    &device_referenced::STILL_REFERENCED,
    &nested_mount::SUBMOUNT,
    &nested_mount::TERMINATION_MESSAGE,
    &nested_mount::SUBPATH_BUSY,
    &nested_mount::MOUNT_OVER_VOLUME,
    &mount_in_use::SHIM_ROOTFS_BUSY,
    &crossed_mount::REMOVAL_CROSSES_MOUNT,
    &refused::IMMUTABLE_ATTRIBUTE,
    &refused::APPEND_ONLY_ATTRIBUTE,
    &bulk_delete::EMPTYDIR_FILES,
    &bulk_delete::DOCKER_VOLUME_STORM,
    &bulk_delete::MASS_DELETION,
    &hung_call::FUSE_DAEMON_HUNG,
    &dead_mount::FUSE_DAEMON_DEAD,
    &hung_call::FILESYSTEM_FROZEN,
    &hung_call::NFS_UNREACHABLE,
    &network_storage::EFS_STUNNEL_DEAD,
    &network_storage::SMB_HOST_DOWN,
    &network_storage::CEPHFS_EVICTED,
    &hung_call::FLUSH_SLOW,
    &hung_call::KERNEL_HANG,
    &unkillable::DSTATE,
    &unkillable::GPU_DSTATE,
    &unkillable::FROZEN_V1,
    &unkillable::CGROUP_POPULATED,
    &runtime::CNI_TEARDOWN_FAILED,
    &sandbox::NETNS_BUSY,
    &sandbox::SHM_BUSY,
    &image_volume::IMAGE_VOLUME_BUSY,
    &runtime::SIGNAL_DENIED,
    &runtime::STATE_LOST,
    &kubelet_state::KUBELET_STOPPED,
    &kubelet_state::KUBELET_DOWN,
    &runtime::RUNTIME_DOWN,
    &runtime::SHIM_HANGS,
    &runtime::RUNTIME_HANGS,
    &docker::OUT_OF_STEP,
    &disk_full::DISK_FULL,
    &mount_storm::MOUNT_STORM,
    &file_system::READ_ONLY,
    &file_system::DEVICE_ERROR,
    &file_system::STALE_HANDLE,
    &pod_record::FINALIZER,
    &pod_record::NOT_DELETED,
    &pod_record::IN_GRACE,
    &pod_record::NOT_ON_THIS_NODE,
    &hung_call::CALL_HUNG_UNEXPLAINED,
    &mount_point::BUSY_UNEXPLAINED,
    &refused::PERMISSION_UNEXPLAINED,
    &not_empty::LEFTOVER_UNEXPLAINED,
    &file_system::REMOVAL_FAILED_UNEXPLAINED,
];

/// A cause that is known in the field, and that podstuck does not recognise.
#[derive(Debug)]
pub struct Elsewhere {
    /// Its name.
    pub id: CauseId,
    /// What it means, in one line.
    pub title: &'static str,
}

const fn elsewhere(id: &'static str, title: &'static str) -> Elsewhere {
    Elsewhere { id: CauseId::new(id), title }
}

/// Causes that some of ours are confused with, and that podstuck does not recognise.
pub static ELSEWHERE: [Elsewhere; 3] = [
    elsewhere(
        "container-clears-own-volume",
        "a container tidies up its own volume, which is its right",
    ),
    elsewhere(
        "mount-leaked-foreign-ns-el7",
        "on RHEL 7 (kernel 3.10, fs.may_detach_mounts=0) a mount that only another namespace has keeps its mount \
         point from being removed; podstuck needs 5.10, where that cannot be",
    ),
    elsewhere(
        "nfs-silly-rename",
        "NFS keeps a file that was removed while it was open, as .nfsXXXX",
    ),
];

/// The cause of this name.
pub fn find(id: &str) -> Option<&'static Cause> {
    ALL.into_iter().find(|cause| cause.id.as_str() == id)
}

/// The name itself, also of a cause that podstuck does not recognise.
pub fn id(name: &str) -> Option<CauseId> {
    let known = ELSEWHERE.iter().map(|known| known.id).find(|id| id.as_str() == name);
    find(name).map(|cause| cause.id).or(known)
}

/// What a name means in one line, also of a cause that podstuck does not recognise.
pub fn title(id: CauseId) -> Option<&'static str> {
    let known = ELSEWHERE.iter().find(|known| known.id == id).map(|known| known.title);
    find(id.as_str()).map(|cause| cause.title).or(known)
}

#[cfg(test)]
#[path = "catalogue_tests.rs"]
mod tests;
