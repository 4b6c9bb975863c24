//! The names of trackers: recordings contain them, and answers are routed by them.

use serde::{Deserialize, Serialize};

/// The name of a tracker. Together with the object, it is the key of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrackerId {
    /// Removals that cross a mount.
    CrossedMount,
    /// EBUSY.
    Busy,
    /// FUSE mounts without a server.
    DeadMount,
    /// EPERM.
    Refused,
    /// File system errors.
    FileSystem,
    /// Processes that do not end, and control groups that do not become empty.
    Unkillable,
    /// Mass deletions.
    BulkDelete,
    /// Mounts that no process unmounts.
    NotAttempted,
    /// Directories of pods that no longer exist.
    Orphan,
    /// Directories that do not become empty.
    NotEmpty,
    /// Devices that stay busy after their unmount.
    PinnedDevice,
    /// Hung calls.
    HungCall,
    /// Full file systems.
    DiskFull,
    /// The pod's record.
    PodRecord,
    /// FlexVolumes that stay mounted.
    FlexVolume,
    /// Commands of kubelet and of volumes' drivers that do not return.
    VolumeCommand,
    /// Refused requests about the pod's record.
    StatusRefused,
    /// Mounted root file systems of containers that have ended.
    LeftRootfs,
    /// Attributes that forbid a removal, before it is attempted.
    Protected,
    /// Faults that only the runtimes' logs show.
    RuntimeSays,
    /// Runtimes that do not run.
    RuntimeState,
    /// Shims that cannot run.
    ShimState,
    /// Docker containers whose state in dockerd's records is wrong.
    DockerState,
    /// Failing checks of network storage, by logs.
    NetworkStorage,
    /// Mount namespaces with a very large number of mounts.
    MountStorm,
    /// Raw block volumes that stay mapped.
    BlockVolume,
    /// Devices that kubelet does not release.
    DeviceReference,
    /// Volumes in use that kubelet has not reached yet.
    HeldVolume,
    /// A kubelet that cannot act.
    KubeletState,
    /// A kubelet that waits for systemd to remove a pod's slice.
    SliceWait,
    /// Waits inside kubelet, or between kubelet and the pod's record.
    KubeletsPart,
    /// Users of the mounts that a finding advises to unmount. Not a tracker: the engine asks.
    WaysOut,
    /// Waits of the processes that must act. Not a tracker: the engine asks.
    Waits,
}
