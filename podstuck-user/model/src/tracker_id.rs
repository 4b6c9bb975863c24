//! The names of trackers: recordings hold them, and answers find the one who asked.

use serde::{Deserialize, Serialize};

/// Names a tracker: with the object, the key of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrackerId {
    /// Removals that went through a mount.
    CrossedMount,
    /// EBUSY.
    Busy,
    /// FUSE mounts without a server.
    DeadMount,
    /// EPERM.
    Refused,
    /// Errors of the file system.
    FileSystem,
    /// Tasks that do not end, and groups that do not become empty.
    Unkillable,
    /// Very many deletions.
    BulkDelete,
    /// Mounts that nobody unmounts.
    NotAttempted,
    /// Directories of pods that are gone.
    Orphan,
    /// Directories that do not become empty.
    NotEmpty,
    /// Devices that are kept busy after their unmount.
    PinnedDevice,
    /// Calls that do not return.
    HungCall,
    /// File systems without room.
    DiskFull,
    /// The pod's record.
    PodRecord,
    /// FlexVolumes that stay mounted.
    FlexVolume,
    /// Requests about the pod's record that are refused.
    StatusRefused,
    /// Root file systems of containers that have ended.
    LeftRootfs,
    /// Attributes that forbid a removal, before it is tried.
    Protected,
    /// What only the runtimes' logs show.
    RuntimeSays,
    /// Runtimes that do not run.
    RuntimeState,
    /// Shims that cannot run.
    ShimState,
    /// Containers of which dockerd says something else than is so.
    DockerState,
    /// Looks at storage on the network that fail, as logs say.
    NetworkStorage,
    /// Mount namespaces with very many mounts.
    MountStorm,
    /// Raw block volumes that stay mapped.
    BlockVolume,
    /// Devices that kubelet does not let go.
    DeviceReference,
    /// Volumes that somebody uses, before kubelet has come to them.
    HeldVolume,
    /// A kubelet that cannot act.
    KubeletState,
    /// A kubelet that waits for systemd to remove a pod's slice.
    SliceWait,
    /// What waits inside kubelet, or between kubelet and the record.
    KubeletsPart,
    /// Who uses what a finding advises to unmount. No tracker, but the engine asks.
    WaysOut,
    /// What the processes wait for that must act. No tracker, but the engine asks.
    Waits,
}
