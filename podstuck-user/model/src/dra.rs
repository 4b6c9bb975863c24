//! Dynamic resource allocation: the ResourceClaims that kubelet keeps for a pod until their drivers have unprepared them.

use serde::{Deserialize, Serialize};

use super::{csi::Registration, path::safe};

/// A ResourceClaim that kubelet keeps for one pod alone: it has its drivers unprepare it when that pod ends
/// (`unprepareResources` in pkg/kubelet/cm/dra/manager.go).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptClaim {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its drivers.
    pub drivers: Vec<DeviceDriver>,
    /// The file of kubelet that has it.
    pub source: String,
}

/// A driver of devices, on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceDriver {
    /// Its name.
    pub name: String,
    /// Its socket in `plugins_registry`, by the name that the drivers' library gives it.
    pub registration: Registration,
}

impl KeptClaim {
    /// Namespace and name. Safe to show.
    pub fn shown(&self) -> String {
        safe(format!("{}/{}", self.namespace, self.name).as_bytes()).into_owned()
    }
}
