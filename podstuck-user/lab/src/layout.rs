//! The paths of a case: kubelet's root, its logs and a driver's state, all below the lab's directory.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::case::{Kind, Volume};

/// The pods' namespace.
pub(super) const NAMESPACE: &str = "podstuck-lab";
/// The container's name.
pub(super) const CONTAINER: &str = "app";
/// The CSI driver's name.
pub(super) const DRIVER: &str = "hostpath.csi.k8s.io";

/// A new UID. The kernel's UUIDs are version 4, like those of the API server.
pub(super) fn random_uid() -> Result<String> {
    let source = "/proc/sys/kernel/random/uuid";
    let uid = fs::read_to_string(source).with_context(|| format!("cannot read {source}"))?;
    Ok(uid.trim_end().into())
}

/// kubelet's root directory, relative to the lab's.
const KUBELET_ROOT: &str = "var/lib/kubelet";

/// kubelet's root directory.
pub(super) fn kubelet_root(root: &Path) -> PathBuf {
    root.join(KUBELET_ROOT)
}

/// The lab's directory, derived from kubelet's root directory in it.
pub fn lab_directory(kubelet_root: &Path) -> Option<&Path> {
    let depth = Path::new(KUBELET_ROOT).components().count();
    kubelet_root.ancestors().nth(depth).filter(|_| kubelet_root.ends_with(KUBELET_ROOT))
}

/// The socket on which a CSI driver registers with kubelet.
pub(super) fn registration_socket(root: &Path) -> PathBuf {
    kubelet_root(root).join(format!("plugins_registry/{DRIVER}-reg.sock"))
}

/// The socket on which kubelet calls a CSI driver. Its directory is not named after the driver, as with the original
/// driver.
pub(super) fn driver_socket(root: &Path) -> PathBuf {
    kubelet_root(root).join("plugins/csi-hostpath/csi.sock")
}

/// The directory of the CSI driver's state and its volumes' data.
pub(super) fn driver_state(root: &Path) -> PathBuf {
    root.join("var/lib/csi-hostpath-data")
}

/// A directory that does not belong to the pod.
pub(super) fn foreign_data(root: &Path) -> PathBuf {
    root.join("somebody-elses-data")
}

/// The paths of one pod.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    /// The lab's directory.
    pub(super) root: PathBuf,
    /// The pod's UID.
    pub(super) uid: String,
    /// The pod's name.
    pub(super) name: String,
}

impl Pod {
    /// Its directory.
    pub(super) fn directory(&self) -> PathBuf {
        kubelet_root(&self.root).join("pods").join(&self.uid)
    }

    /// Its log directory, from whose name the node learns the pod's name.
    pub(super) fn logs(&self) -> PathBuf {
        let name = format!("{NAMESPACE}_{}_{}", self.name, self.uid);
        self.root.join("var/log/pods").join(name)
    }

    /// The directory that marks a volume as set up by kubelet; `None` for CSI.
    pub(super) fn ready(&self, volume: &Volume) -> Option<PathBuf> {
        let meta = self.directory().join("plugins/kubernetes.io~empty-dir");
        volume.ready_name().map(|name| meta.join(name))
    }

    /// The directory of a volume.
    pub(super) fn volume(&self, volume: &Volume) -> PathBuf {
        self.directory().join("volumes").join(volume.plugin).join(volume.name)
    }

    /// The directory that the containers see; for CSI, a subdirectory.
    pub(super) fn content(&self, volume: &Volume) -> PathBuf {
        match volume.kind {
            Kind::Csi(_) => self.volume(volume).join("mount"),
            _ => self.volume(volume),
        }
    }

    /// The directory of the container's subPath mounts of a volume.
    pub(super) fn sub_path(&self, volume: &Volume) -> PathBuf {
        self.directory().join("volume-subpaths").join(volume.name).join(CONTAINER)
    }

    /// The disk image of a volume.
    pub(super) fn image(&self, volume: &Volume) -> PathBuf {
        self.root.join("disks").join(volume.name)
    }

    /// The directory with the data of a CSI volume.
    pub(super) fn backing(&self, volume: &Volume) -> PathBuf {
        driver_state(&self.root).join(volume.name)
    }
}
