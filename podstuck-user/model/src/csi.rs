//! CSI volumes, and the drivers that serve them.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    halted::Halted,
    path::{safe, safe_path},
    raw_path,
    time::Monotonic,
};

/// What kubelet's unique names of CSI volumes begin with.
pub const PLUGIN: &str = "kubernetes.io/csi/";

/// kubelet's unique name of a CSI volume (pkg/volume/util, `GetUniqueVolumeNameFromSpec`).
pub fn unique_name(driver: &str, handle: &str) -> String {
    format!("{PLUGIN}{driver}^{handle}")
}

/// The driver in such a name. An inline volume's has none.
pub fn driver_of(unique_name: &str) -> Option<&str> {
    Some(unique_name.strip_prefix(PLUGIN)?.split_once('^')?.0)
}

/// A CSI volume and its driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsiState {
    /// `vol_data.json`
    pub data: VolumeData,
    /// The driver's registration socket.
    #[serde(with = "raw_path")]
    pub socket: PathBuf,
    /// The state of the registration.
    pub registration: Registration,
    /// When the registration directory was last modified; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub registry_changed: Option<Timestamp>,
    /// The process that serves kubelet's calls; `None` if it was not searched for or not found.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub driver: Option<DriverState>,
}

/// The socket on which kubelet calls a CSI driver, and its listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverState {
    /// Its path in kubelet's mount namespace.
    #[serde(with = "raw_path")]
    pub socket: PathBuf,
    /// The source of the listener.
    pub source: String,
    /// The listener; `None` if no process listens.
    pub process: Option<DriverProcess>,
    /// Process id of its registrar, usually another container of the same pod; `None` in older recordings.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub registrar: Option<u32>,
}

/// A CSI driver's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverProcess {
    /// Process id.
    pub pid: u32,
    /// Its name, safe to show.
    pub comm: String,
    /// When it was started.
    pub started: Monotonic,
    /// The same in ticks since boot: with the pid, it identifies the process.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ticks: Option<u64>,
    /// Whether its unmounts reach kubelet's mount namespace.
    pub reach: Reach,
    /// What keeps it from answering, if anything is known to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub halted: Option<Halted>,
}

impl DriverProcess {
    /// Whether the volume is not mounted in the driver's mount namespace, and events there do not propagate to
    /// kubelet's.
    pub fn is_cut_off(&self) -> bool {
        self.reach == Reach::Cut { mounted: false }
    }
}

/// Whether an unmount in the driver's mount namespace reaches kubelet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// The namespaces are the same, or the mount below the volume is shared with kubelet's.
    Whole,
    /// That mount is not shared: an unmount stays in the driver's namespace.
    Cut {
        /// Whether the volume is mounted in the driver's namespace.
        mounted: bool,
    },
    /// The mount tables do not show it.
    Unknown,
}

/// Whether a CSI driver is registered with kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Registration {
    /// Its socket exists and has a listener.
    Listening,
    /// Its socket exists and has no listener.
    Deaf,
    /// Its socket does not exist: kubelet unregisters a driver whose socket is removed.
    Absent,
    /// The driver is not known.
    Unknown,
}

/// kubelet's `vol_data.json` (pkg/volume/csi, `saveVolumeData`). Without it, kubelet can neither find the driver nor
/// name the volume to unpublish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeData {
    /// The file does not exist.
    Missing,
    /// The file exists and cannot be parsed.
    Corrupt {
        /// Its size in bytes.
        size: u64,
    },
    /// The content.
    Known {
        /// `driverName`
        driver: String,
        /// `volumeHandle`
        handle: String,
        /// `volumeLifecycleMode`: Persistent or Ephemeral; empty before Kubernetes 1.16.
        lifecycle: String,
    },
    /// The file could not be read.
    Unknown,
}

impl VolumeData {
    /// The driver's name. Safe to show.
    pub fn driver(&self) -> Option<String> {
        match self {
            Self::Known { driver, .. } => Some(safe(driver.as_bytes()).into_owned()),
            _ => None,
        }
    }

    /// kubelet's unique name of the volume, as in its log. `name` is that of its directory. An inline volume is
    /// neither attached nor staged, and is named by its pod (pkg/volume/util, `GetUniqueVolumeName` and
    /// `GetUniqueVolumeNameFromSpecWithPod`).
    pub fn unique_name(&self, uid: &str, name: &str) -> Option<String> {
        match self {
            Self::Known { lifecycle, .. } if lifecycle == "Ephemeral" => {
                Some(format!("{PLUGIN}{uid}-{name}"))
            }
            Self::Known { driver, handle, .. } => Some(unique_name(driver, handle)),
            _ => None,
        }
    }
}

impl DriverState {
    /// The socket and its listener, in a sentence.
    pub fn words(&self) -> String {
        let socket = safe_path(&self.socket);
        match &self.process {
            Some(DriverProcess { pid, comm, .. }) => {
                format!("{comm} (pid {pid}) listens on {socket}, on which kubelet calls the driver")
            }
            None => format!("no process listens on {socket}, on which kubelet calls the driver"),
        }
    }
}
