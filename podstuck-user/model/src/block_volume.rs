//! Raw block volumes (`volumeDevices`): kubelet does not mount them, it gives the pod a device.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{csi::VolumeData, identity::Target, mounted::Mounted, raw_path};

/// What is left of a pod's raw block volume. kubelet removes, in this order: the loop device that keeps the device
/// open, the pod's link, its own map (`UnmapBlockVolume` in pkg/volume/util).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockVolume {
    /// Hash that names the target; 0 until it was attributed.
    pub target_id: u64,
    /// The target.
    pub target: Arc<Target>,
    /// `<pod directory>/volumeDevices/<plugin>/<volume>`; `None` when it is gone.
    #[serde(with = "raw_path::option", skip_serializing_if = "Option::is_none", default)]
    pub link: Option<PathBuf>,
    /// Target of that link: the device, or the driver's map of it.
    #[serde(with = "raw_path::option", skip_serializing_if = "Option::is_none", default)]
    pub leads_to: Option<PathBuf>,
    /// kubelet's map of the device for this pod: `<plugin>/volumeDevices/<volume>/dev/<uid>`; `None` when it is gone
    /// or lies outside the directories that are searched.
    #[serde(with = "raw_path::option", skip_serializing_if = "Option::is_none", default)]
    pub map: Option<PathBuf>,
    /// Mounted maps of kubelet and of the driver: a file with the device bound over it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub mounts: Vec<Mounted>,
    /// kubelet's `vol_data.json` of a CSI volume; `None` for other plugins.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub data: Option<VolumeData>,
    /// Kernel devices built on it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub users: Vec<DeviceUser>,
}

impl BlockVolume {
    /// The path that names it: the link, else the map, else the first mount point.
    pub fn path(&self) -> &Path {
        let mounted = || self.mounts.first().map(|mount| mount.point.as_path());
        self.link.as_deref().or(self.map.as_deref()).or_else(mounted).unwrap_or(Path::new(""))
    }

    /// The CSI driver's name, if kubelet wrote it. Safe to show.
    pub fn driver(&self) -> Option<String> {
        self.data.as_ref()?.driver()
    }

    /// Whether kubelet's unique volume name is this volume's: `kubernetes.io/csi/DRIVER^HANDLE` for a CSI driver,
    /// else the plugin's name and a suffix that no path needs to contain.
    pub fn is_called(&self, unique: &str) -> bool {
        match &self.data {
            // A raw block volume is never inline: its pod does not name it.
            Some(data @ VolumeData::Known { .. }) => {
                data.unique_name("", "").is_some_and(|name| name == unique)
            }
            _ => {
                let name = self.path().file_name().and_then(|name| name.to_str());
                name.is_some_and(|name| unique.rsplit('/').next() == Some(name))
            }
        }
    }
}

/// A kernel device that is built on another one and keeps it open.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceUser {
    /// Its name in `/sys/class/block`: `dm-3`, `md0`, `loop4`. Safe to show.
    pub name: String,
    /// Its kind, where the kernel reports it: `LUKS data`, `multipath mpatha`. Safe to show.
    pub what: String,
    /// The device that it is built on.
    pub of: String,
    /// The file that says so.
    pub source: String,
}
