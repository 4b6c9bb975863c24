//! Where everything of a case lies: a kubelet's root, its logs and a driver's state, all below the
//! lab's own directory.

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

/// A new UID. The kernel's are of version 4, like those of the API server.
pub(super) fn random_uid() -> Result<String> {
    let source = "/proc/sys/kernel/random/uuid";
    let uid = fs::read_to_string(source).with_context(|| format!("cannot read {source}"))?;
    Ok(uid.trim_end().into())
}

/// Kubelet's root directory, below the lab's.
const KUBELET_ROOT: &str = "var/lib/kubelet";

/// Kubelet's root directory.
pub(super) fn kubelet_root(root: &Path) -> PathBuf {
    root.join(KUBELET_ROOT)
}

/// The lab's directory, by kubelet's root directory in it.
pub fn lab_directory(kubelet_root: &Path) -> Option<&Path> {
    let depth = Path::new(KUBELET_ROOT).components().count();
    kubelet_root.ancestors().nth(depth).filter(|_| kubelet_root.ends_with(KUBELET_ROOT))
}

/// The socket on which a CSI driver registers with kubelet.
pub(super) fn registration_socket(root: &Path) -> PathBuf {
    kubelet_root(root).join(format!("plugins_registry/{DRIVER}-reg.sock"))
}

/// The socket on which kubelet calls a CSI driver. The driver of the lab has a directory of another name,
/// as its original has.
pub(super) fn driver_socket(root: &Path) -> PathBuf {
    kubelet_root(root).join("plugins/csi-hostpath/csi.sock")
}

/// Where the CSI driver keeps its state and the data of its volumes.
pub(super) fn driver_state(root: &Path) -> PathBuf {
    root.join("var/lib/csi-hostpath-data")
}

/// A directory that does not belong to the pod.
pub(super) fn foreign_data(root: &Path) -> PathBuf {
    root.join("somebody-elses-data")
}

/// One pod's places.
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
    /// Its own directory.
    pub(super) fn directory(&self) -> PathBuf {
        kubelet_root(&self.root).join("pods").join(&self.uid)
    }

    /// Its logs, by whose name a node knows the pod's.
    pub(super) fn logs(&self) -> PathBuf {
        let name = format!("{NAMESPACE}_{}_{}", self.name, self.uid);
        self.root.join("var/log/pods").join(name)
    }

    /// The directory that says that kubelet had set up a volume; none for CSI.
    pub(super) fn ready(&self, volume: &Volume) -> Option<PathBuf> {
        let meta = self.directory().join("plugins/kubernetes.io~empty-dir");
        volume.ready_name().map(|name| meta.join(name))
    }

    /// The directory of a volume's own.
    pub(super) fn volume(&self, volume: &Volume) -> PathBuf {
        self.directory().join("volumes").join(volume.plugin).join(volume.name)
    }

    /// What the containers see of it: for CSI, a directory below.
    pub(super) fn content(&self, volume: &Volume) -> PathBuf {
        match volume.kind {
            Kind::Csi(_) => self.volume(volume).join("mount"),
            _ => self.volume(volume),
        }
    }

    /// Where the container's subpaths of a volume are mounted.
    pub(super) fn sub_path(&self, volume: &Volume) -> PathBuf {
        self.directory().join("volume-subpaths").join(volume.name).join(CONTAINER)
    }

    /// The file that is the disk of a volume.
    pub(super) fn image(&self, volume: &Volume) -> PathBuf {
        self.root.join("disks").join(volume.name)
    }

    /// The data behind a CSI volume.
    pub(super) fn backing(&self, volume: &Volume) -> PathBuf {
        driver_state(&self.root).join(volume.name)
    }
}
