//! A pod's claim of storage as the API server has it: the PersistentVolumeClaim, its PersistentVolume, and
//! whether the storage is attached to the node.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A volume of a pod that is a PersistentVolumeClaim, and what of it matters for the pod's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The pod's name for the volume.
    pub volume_name: String,
    /// The PersistentVolumeClaim's, in the pod's namespace.
    pub claim: String,
    /// When the API server was asked for it; `None` where it was not, or did not say.
    pub read: Option<Timestamp>,
    /// Whether the claim itself is to go.
    pub deletion: Option<Deletion>,
    /// What it is bound to, as far as that was said.
    pub bound: Option<PersistentVolume>,
    /// Whether the storage is attached; `None` where it need not be, or that was not said.
    pub attachment: Option<Attachment>,
}

/// An object that is being deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deletion {
    /// Since when.
    pub at: Timestamp,
    /// Who must agree before it goes.
    pub finalizers: Vec<String>,
}

/// A PersistentVolume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersistentVolume {
    /// Its name, which is the name of the volume's directory on the node.
    pub name: String,
    /// Whether it is to go.
    pub deletion: Option<Deletion>,
    /// Who drives it; `None` where it is no CSI driver.
    pub csi: Option<CsiSource>,
}

/// A volume of a CSI driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsiSource {
    /// The driver's name.
    pub driver: String,
    /// What the driver calls the volume.
    pub handle: String,
    /// The name that an attachment of it to the pod's node has (pkg/volume/csi, `getAttachmentName`).
    pub attachment: String,
}

/// A VolumeAttachment, which the attach/detach controller makes and the driver's attacher fulfils.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attachment {
    /// There is none of that name.
    Missing,
    /// There is one.
    There {
        /// Whether the driver says that it is attached.
        attached: bool,
        /// Since when it is to be detached.
        deletion: Option<Timestamp>,
        /// What the driver said when it could not detach it.
        detach_error: Option<String>,
    },
}

impl Attachment {
    /// Whether the storage is detached.
    pub fn is_detached(&self) -> bool {
        matches!(self, Self::Missing | Self::There { attached: false, .. })
    }

    /// Whether it is, or is to be.
    pub fn is_ending(&self) -> bool {
        self.is_detached() || matches!(self, Self::There { deletion: Some(_), .. })
    }
}
