//! Raw block volumes (`volumeDevices`): kubelet mounts nothing for them, but gives the pod a device.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{csi::VolumeData, identity::Target, mounted::Mounted, raw_path};

/// What is left of a raw block volume of a pod. kubelet takes it away in this order: the loop device that
/// keeps the device open, the pod's link, its own map (`UnmapBlockVolume` in pkg/volume/util).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockVolume {
    /// Hash that names the target; 0 until it was attributed.
    pub target_id: u64,
    /// The target.
    pub target: Arc<Target>,
    /// `<pod directory>/volumeDevices/<plugin>/<volume>`; `None` when it is gone.
    #[serde(with = "raw_path::option", skip_serializing_if = "Option::is_none", default)]
    pub link: Option<PathBuf>,
    /// Where that link leads: the device, or the driver's map of it.
    #[serde(with = "raw_path::option", skip_serializing_if = "Option::is_none", default)]
    pub leads_to: Option<PathBuf>,
    /// kubelet's map of the device for this pod: `<plugin>/volumeDevices/<volume>/dev/<uid>`; `None` when it is
    /// gone, or lies where it is not looked for.
    #[serde(with = "raw_path::option", skip_serializing_if = "Option::is_none", default)]
    pub map: Option<PathBuf>,
    /// kubelet's and the driver's maps that are mounted: a file with the device bound over it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub mounts: Vec<Mounted>,
    /// What kubelet wrote about it, for CSI; `None` for other plugins.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub data: Option<VolumeData>,
    /// The kernel's devices that are made of it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub users: Vec<DeviceUser>,
}

impl BlockVolume {
    /// What of it is left, by which it is named.
    pub fn path(&self) -> &Path {
        let mounted = || self.mounts.first().map(|mount| mount.point.as_path());
        self.link.as_deref().or(self.map.as_deref()).or_else(mounted).unwrap_or(Path::new(""))
    }

    /// The CSI driver's name, if kubelet wrote it. Safe to show.
    pub fn driver(&self) -> Option<String> {
        self.data.as_ref()?.driver()
    }

    /// Whether this is the volume that kubelet calls so: `kubernetes.io/csi/DRIVER^HANDLE` for one of a CSI
    /// driver, else the plugin's name and something that need not be in any path.
    pub fn is_called(&self, unique: &str) -> bool {
        match &self.data {
            Some(VolumeData::Known { driver, handle, .. }) => {
                unique == format!("kubernetes.io/csi/{driver}^{handle}")
            }
            _ => {
                let name = self.path().file_name().and_then(|name| name.to_str());
                name.is_some_and(|name| unique.rsplit('/').next() == Some(name))
            }
        }
    }
}

/// A device of the kernel's that is made of another, and keeps it open.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceUser {
    /// As in `/sys/class/block`: `dm-3`, `md0`, `loop4`. Safe to show.
    pub name: String,
    /// What it is, where that is told: `LUKS data`, `multipath mpatha`. Safe to show.
    pub what: String,
    /// What it is made of.
    pub of: String,
    /// Where that was read.
    pub source: String,
}
