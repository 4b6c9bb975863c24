//! Raw block volumes in kubelet's directories: the helper's side. A pod has a link to its device, and kubelet
//! keeps a map of each device, a file over which the device is bound. No device is opened or looked at.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{directory::Directory, vol_data};
use crate::identity::uid::is_pod_uid;
use podstuck_model::csi::VolumeData;

/// Beside the volumes' directories, the driver's: of what it has staged and published (`csiBlockMapper` in
/// pkg/volume/csi).
const OF_DRIVERS: [&str; 2] = ["staging", "publish"];

/// A pod's link to its device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LinkOnDisk {
    /// Below the pod's directory: `volumeDevices/<plugin>/<volume>`.
    pub(super) path: OsString,
    /// `None` for something else than a link.
    pub(super) leads_to: Option<OsString>,
}

/// kubelet's maps of one CSI volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MapsOnDisk {
    /// The name of the PersistentVolume.
    pub(super) volume: OsString,
    /// UIDs of the pods that it has a map for.
    pub(super) pods: Vec<String>,
    /// What kubelet wrote about it.
    pub(super) data: VolumeData,
}

/// Where kubelet keeps the maps of CSI volumes, below its root.
pub(super) fn maps_of(root: &Path) -> PathBuf {
    root.join("plugins/kubernetes.io/csi/volumeDevices")
}

/// The links in one plugin's directory of a pod.
pub(super) fn links(pod: &Directory<'_>, plugin: &Path) -> Vec<LinkOnDisk> {
    let read = |name: OsString| {
        let path = plugin.join(name);
        let leads_to = pod.join(&path).leads_to();
        LinkOnDisk { path: path.into(), leads_to }
    };
    pod.join(plugin).names().into_iter().flatten().map(read).collect()
}

/// The maps below one of kubelet's roots.
pub(super) fn maps(root: &Directory<'_>) -> Vec<MapsOnDisk> {
    let all = Directory { path: maps_of(&root.path), ..*root };
    let names = all.names().into_iter().flatten();
    let volumes = names.filter(|name| !OF_DRIVERS.iter().any(|other| *name == **other));
    let read = |volume: OsString| {
        let directory = all.join(&volume);
        let names = directory.join("dev").names().into_iter().flatten();
        let pods = names.filter_map(|name| name.into_string().ok());
        let pods = pods.filter(|uid| is_pod_uid(uid.as_bytes())).collect();
        let data = vol_data::read(&directory.join("data/vol_data.json"));
        MapsOnDisk { volume, pods, data }
    };
    volumes.map(read).collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::state::{scratch::write, seen_by::Root};

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    #[test]
    fn links_and_maps_are_listed_and_no_device_is_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let plugin = Path::new("volumeDevices/kubernetes.io~csi");
        let pod = dir.path().join("pods").join(UID);
        fs::create_dir_all(pod.join(plugin)).unwrap();
        symlink("/dev/no-such-device", pod.join(plugin).join("pv")).unwrap();
        write(pod.join(plugin).join("odd"), "");
        let maps_dir = maps_of(dir.path());
        write(maps_dir.join("pv/dev").join(UID), "");
        write(maps_dir.join("pv/dev/other"), "");
        let data = r#"{"driverName":"d","volumeHandle":"h"}"#;
        write(maps_dir.join("pv/data/vol_data.json"), data);
        write(maps_dir.join("publish/pv").join(UID), "");
        let root = Root::of(std::process::id()).unwrap();
        let of = |path: &Path| Directory { root: &root, path: path.into() };

        let mut found = links(&of(&pod), plugin);
        found.sort_by(|a, b| a.path.cmp(&b.path));
        let links: Vec<_> =
            found.iter().map(|link| (&*link.path, link.leads_to.as_deref())).collect();
        let [odd, pv] = ["odd", "pv"].map(|name| plugin.join(name));
        let device = Path::new("/dev/no-such-device").as_os_str();
        assert_eq!(links, [(odd.as_os_str(), None), (pv.as_os_str(), Some(device))]);

        let [one] = &maps(&of(dir.path()))[..] else { panic!("{:?}", maps(&of(dir.path()))) };
        assert_eq!((&*one.volume, &one.pods[..]), (Path::new("pv").as_os_str(), &[UID.into()][..]));
        assert!(matches!(&one.data, VolumeData::Known { driver, .. } if driver == "d"));
        assert!(maps(&of(Path::new("/nonexistent"))).is_empty());
    }
}
