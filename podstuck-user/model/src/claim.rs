//! A pod's storage in the API: the PersistentVolumeClaim, its PersistentVolume, and whether the storage is attached
//! to the node.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A volume of a pod that is a PersistentVolumeClaim: the fields that matter for the pod's deletion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The name of the volume in the pod.
    pub volume_name: String,
    /// The name of the PersistentVolumeClaim, in the pod's namespace.
    pub claim: String,
    /// When it was read from the API server; `None` if it was not, or the request failed.
    pub read: Option<Timestamp>,
    /// The claim's own deletion, if requested.
    pub deletion: Option<Deletion>,
    /// The PersistentVolume that it is bound to, if known.
    pub bound: Option<PersistentVolume>,
    /// Whether the storage is attached; `None` if the driver needs no attachment, or unknown.
    pub attachment: Option<Attachment>,
}

/// The requested deletion of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deletion {
    /// When it was requested.
    pub at: Timestamp,
    /// The finalizers that must be removed first.
    pub finalizers: Vec<String>,
}

/// A PersistentVolume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersistentVolume {
    /// Its name, which is the name of the volume's directory on the node.
    pub name: String,
    /// Its deletion, if requested.
    pub deletion: Option<Deletion>,
    /// Its CSI source; `None` if it has another driver.
    pub csi: Option<CsiSource>,
}

/// The CSI source of a PersistentVolume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsiSource {
    /// The driver's name.
    pub driver: String,
    /// The driver's name for the volume.
    pub handle: String,
    /// The name of its VolumeAttachment for the pod's node (pkg/volume/csi, `getAttachmentName`).
    pub attachment: String,
}

/// A VolumeAttachment: the attach/detach controller creates it, the driver's attacher fulfils it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attachment {
    /// No VolumeAttachment has that name.
    Missing,
    /// The VolumeAttachment exists.
    There {
        /// Whether the driver reports the storage as attached.
        attached: bool,
        /// When the detachment was requested.
        deletion: Option<Timestamp>,
        /// The driver's error, if detaching failed.
        detach_error: Option<String>,
    },
}

impl Attachment {
    /// Whether the storage is detached.
    pub fn is_detached(&self) -> bool {
        matches!(self, Self::Missing | Self::There { attached: false, .. })
    }

    /// Whether the storage is detached, or its detachment was requested.
    pub fn is_ending(&self) -> bool {
        self.is_detached() || matches!(self, Self::There { deletion: Some(_), .. })
    }
}
