//! Block devices that do not complete requests, and what they are made of.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{mounts::Device, raw_path};

/// A block device with requests in flight, a suspended one, or one of those that they are made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Its name in `/sys/class/block`, as `sda` or `dm-3`. Safe to show.
    pub name: String,
    /// Its number.
    pub device: Device,
    /// Requests in flight.
    pub in_flight: u64,
    /// Requests completed since boot: reads, writes, discards and flushes.
    pub done: u64,
    /// Names of the block devices that it is made of.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub below: Vec<String>,
    /// What serves it, as far as sysfs shows that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub served_by: Option<ServedBy>,
}

impl Disk {
    /// Whether it is a device of the device mapper that was suspended: its requests wait until it is resumed.
    pub fn is_suspended(&self) -> bool {
        matches!(self.served_by, Some(ServedBy::Mapper { is_suspended: true, .. }))
    }
}

/// What serves the requests of a block device. All texts but paths are safe to show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServedBy {
    /// A file, by a loop device.
    File {
        /// Its path.
        #[serde(with = "raw_path")]
        path: PathBuf,
        /// The mount that it is on, in a few words; `None` if unknown.
        mount: Option<String>,
    },
    /// The device mapper.
    Mapper {
        /// Its name.
        name: String,
        /// Whose table it is, as in "multipath device"; empty if unknown.
        kind: String,
        /// Whether it is suspended (`dmsetup suspend`).
        is_suspended: bool,
    },
    /// An iSCSI target.
    Iscsi {
        /// Its name.
        target: String,
        /// The configured address and port.
        portal: String,
        /// The state of the session, as in `LOGGED_IN` and `FAILED`.
        state: String,
    },
    /// A Fibre Channel port.
    FibreChannel {
        /// The name of the remote port.
        port: String,
        /// Its state, as in `Online` and `Blocked`.
        state: String,
    },
    /// NVMe controllers.
    Nvme {
        /// Each of them.
        controllers: Vec<NvmeController>,
    },
    /// A process, by a network block device.
    Nbd {
        /// The process that connected it; `None` if it is not connected.
        pid: Option<u32>,
    },
    /// A Ceph cluster, by an RBD image.
    Rbd {
        /// Pool and image.
        image: String,
    },
    /// Another SCSI device.
    Scsi {
        /// Its state, as in `running`, `blocked` and `offline`.
        state: String,
    },
}

/// An NVMe controller. All texts are safe to show.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NvmeController {
    /// Its name, as `nvme0`.
    pub name: String,
    /// As in `pcie` and `tcp`.
    pub transport: String,
    /// Its address.
    pub address: String,
    /// As in `live` and `connecting`.
    pub state: String,
}
