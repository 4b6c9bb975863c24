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

/// A CSI volume's driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsiState {
    /// `vol_data.json`
    pub data: VolumeData,
    /// Where the driver registers.
    #[serde(with = "raw_path")]
    pub socket: PathBuf,
    /// Whether it has.
    pub registration: Registration,
    /// When something was put into that directory or taken out of it last; `None` when unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub registry_changed: Option<Timestamp>,
    /// Who answers kubelet's calls; `None` where that was not looked for or could not be told.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub driver: Option<DriverState>,
}

/// The socket on which kubelet calls a CSI driver, and who listens on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverState {
    /// As kubelet sees it.
    #[serde(with = "raw_path")]
    pub socket: PathBuf,
    /// Where that was read.
    pub source: String,
    /// Who listens; `None` when nobody does.
    pub process: Option<DriverProcess>,
    /// Process id of its registrar, mostly another container of the same pod; `None` in recordings from
    /// before this was noted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub registrar: Option<u32>,
}

/// A CSI driver's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverProcess {
    /// Process id.
    pub pid: u32,
    /// Its name, safe to be shown.
    pub comm: String,
    /// When it was started.
    pub started: Monotonic,
    /// The same in ticks since boot: with its id, this names it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ticks: Option<u64>,
    /// Whether what it unmounts is unmounted for kubelet, too.
    pub reach: Reach,
    /// Why it cannot answer, if something shows that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub halted: Option<Halted>,
}

impl DriverProcess {
    /// Whether the volume is not mounted where the driver runs, and what happens there stays there.
    pub fn is_cut_off(&self) -> bool {
        self.reach == Reach::Cut { mounted: false }
    }
}

/// Whether an unmount of a volume in the driver's mount namespace reaches kubelet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// It is the same namespace, or the mount that the volume is mounted on is shared with kubelet's.
    Whole,
    /// That mount is not shared: an unmount stays in the driver's namespace.
    Cut {
        /// Whether the volume is mounted in there.
        mounted: bool,
    },
    /// The tables do not tell.
    Unknown,
}

/// Whether a CSI driver is registered with kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Registration {
    /// Its socket is there, and somebody listens.
    Listening,
    /// Its socket is there, and nobody listens.
    Deaf,
    /// Its socket is not there: kubelet forgets a driver whose socket is removed.
    Absent,
    /// The driver is not known.
    Unknown,
}

/// kubelet's `vol_data.json` (pkg/volume/csi, `saveVolumeData`), without which it can neither find
/// the driver nor tell it which volume to unpublish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeData {
    /// There is none.
    Missing,
    /// There is one, and it says nothing.
    Corrupt {
        /// Its size in bytes.
        size: u64,
    },
    /// As written.
    Known {
        /// `driverName`
        driver: String,
        /// `volumeHandle`
        handle: String,
        /// `volumeLifecycleMode`: Persistent or Ephemeral; empty before Kubernetes 1.16.
        lifecycle: String,
    },
    /// It could not be read: nothing is known.
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
}

impl DriverState {
    /// Who listens where, in a sentence.
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
