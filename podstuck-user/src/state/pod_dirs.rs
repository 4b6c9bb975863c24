//! kubelet's directories of pods and drivers: the helper's side. They lie on the node's disk, which
//! may hang like any other. Nothing that a volume contains is touched, because it may be mounted.

use std::{ffi::OsString, fs, io::ErrorKind, os::linux::fs::MetadataExt, path::Path};

use anyhow::Result;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    helper::{Budget, Question, Teller},
    seen_by::{Place, path_of},
};
use crate::{identity::uid::is_pod_uid, model::node::VolumeData};

/// The plugin directory of CSI volumes.
pub(super) const CSI: &str = "kubernetes.io~csi";
/// kubelet's file is a few hundred bytes.
const DATA_SIZE: u64 = 64 << 10;

/// What kubelet keeps below one of its roots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RootOnDisk {
    /// Each pod's directory.
    pub(super) pods: Vec<PodOnDisk>,
    /// Sockets in `plugins_registry`, by name: drivers register there.
    pub(super) registered: Vec<OsString>,
    /// When one of them was made or removed last.
    pub(super) registry_changed: Option<Timestamp>,
    /// Directories in `plugins` with a socket of the name that nearly all CSI drivers give it.
    pub(super) drivers: Vec<OsString>,
}

/// As in the driver's own directory, which is named after it (kubernetes-csi documentation, Deploying a CSI
/// Driver on Kubernetes).
pub(super) const USUAL_SOCKET: &str = "csi.sock";

/// One pod's directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PodOnDisk {
    /// Name of the directory.
    pub(super) uid: String,
    /// What the times of files and directories tell.
    pub(super) times: Times,
    /// Its volumes.
    pub(super) volumes: Vec<VolumeOnDisk>,
    /// The process as which it was read.
    pub(super) seen_by: Option<u32>,
}

/// What the times of a pod's files and directories tell. Those of its control groups tell nothing: the
/// kernel keeps none for a group that nobody has changed the attributes of, and shows that of the first
/// look (`kernfs_init_inode` in fs/kernfs/inode.c).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Times {
    /// When a container was last started: kubelet makes a file for its termination message
    /// (`GenerateRunContainerOptions`). Seconds since 1970, `None` before the first.
    pub(super) started: Option<i64>,
    /// When an entry was made or removed last in one of its directories above those of its volumes; `None`
    /// if one of them could not be asked.
    pub(super) changed: Option<Timestamp>,
    /// The same of the directories of plugins that have no volume left: it was removed then.
    pub(super) volume_removed: Option<Timestamp>,
}

/// One volume's directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct VolumeOnDisk {
    /// Below the pod's directory: `volumes/<plugin>/<name>` or `volume-subpaths/<volume>/<container>`.
    pub(super) path: OsString,
    /// Of a CSI volume.
    pub(super) data: Option<VolumeData>,
}

/// What is below kubelet's roots: for each one answer, `None` where there are no pods.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReadPods {
    pub(super) roots: Vec<Place>,
}

impl Question for ReadPods {
    const BUDGET: Budget = Budget::Pods;
    type Step = OsString;
    type Part = ();
    type Answer = Vec<Option<RootOnDisk>>;

    fn answer(self, tell: &mut Teller<OsString, ()>) -> Result<Vec<Option<RootOnDisk>>> {
        let read = |root: &Place| {
            let root = path_of(root);
            tell.at(&root.clone().into())?;
            Ok(read_root(&root))
        };
        self.roots.iter().map(read).collect()
    }
}

/// Reads one root; `None` when there are no pods.
fn read_root(root: &Path) -> Option<RootOnDisk> {
    let pods = fs::read_dir(root.join("pods")).ok()?.flatten().filter_map(|entry| {
        let uid = entry.file_name().into_string().ok()?;
        is_pod_uid(uid.as_bytes()).then(|| read_pod(&entry.path(), uid))
    });
    let pods = pods.collect();
    let registry = root.join("plugins_registry");
    // First its time: what is removed meanwhile is missed by the next look only.
    let registry_changed = entries_changed(&registry);
    let registered = names(&registry).collect();
    let plugins = root.join("plugins");
    let has_socket =
        |name: &OsString| fs::symlink_metadata(plugins.join(name).join(USUAL_SOCKET)).is_ok();
    let drivers = names(&plugins).filter(has_socket).collect();
    Some(RootOnDisk { pods, registered, registry_changed, drivers })
}

fn read_pod(directory: &Path, uid: String) -> PodOnDisk {
    let containers = names(&directory.join("containers"));
    let changed = |name| fs::symlink_metadata(directory.join("containers").join(name)).ok();
    let started = containers.filter_map(changed).map(|metadata| metadata.st_mtime()).max();
    let mut volumes = Vec::new();
    // What is not there was never made, or its removal shows in the directory above it.
    let mut above = vec![Some(directory.to_owned())];
    above.extend(["containers", "plugins", "volumes", "volume-subpaths"].map(|kind| {
        let directory = directory.join(kind);
        directory.exists().then_some(directory)
    }));
    let mut emptied = Vec::new();
    for kind in ["volumes", "volume-subpaths"] {
        for upper in names(&directory.join(kind)) {
            let upper = Path::new(kind).join(upper);
            let mut inside = names(&directory.join(&upper)).peekable();
            above.push(Some(directory.join(&upper)));
            if kind == "volumes" && inside.peek().is_none() {
                emptied.push(directory.join(&upper));
            }
            for name in inside {
                let path = upper.join(name);
                let csi = kind == "volumes" && upper.ends_with(CSI);
                let data = csi.then(|| read_data(&directory.join(&path).join("vol_data.json")));
                volumes.push(VolumeOnDisk { path: path.into(), data });
            }
        }
    }
    let times: Option<Vec<Timestamp>> =
        above.iter().flatten().map(|directory| entries_changed(directory)).collect();
    let changed = times.and_then(|times| times.into_iter().max());
    let volume_removed = emptied.iter().filter_map(|directory| entries_changed(directory)).max();
    let times = Times { started, changed, volume_removed };
    PodOnDisk { uid, times, volumes, seen_by: None }
}

/// When an entry of a directory was made or removed last.
fn entries_changed(directory: &Path) -> Option<Timestamp> {
    let metadata = fs::symlink_metadata(directory).ok()?;
    let nanoseconds = i32::try_from(metadata.st_mtime_nsec()).ok()?;
    Timestamp::new(metadata.st_mtime(), nanoseconds).ok()
}

fn names(directory: &Path) -> impl Iterator<Item = OsString> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name())
}

fn read_data(file: &Path) -> VolumeData {
    let size = match fs::symlink_metadata(file) {
        // Whatever else has this name is none of kubelet's making, and may block who opens it.
        Ok(metadata) if metadata.is_file() && metadata.st_size() <= DATA_SIZE => metadata.st_size(),
        Ok(metadata) => return VolumeData::Corrupt { size: metadata.st_size() },
        Err(error) if error.kind() == ErrorKind::NotFound => return VolumeData::Missing,
        Err(_) => return VolumeData::Unknown,
    };
    fs::read(file).map_or(VolumeData::Unknown, |text| data(&text, size))
}

fn data(text: &[u8], size: u64) -> VolumeData {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct File {
        driver_name: String,
        volume_handle: String,
        #[serde(default)]
        volume_lifecycle_mode: String,
    }
    match serde_json::from_slice::<File>(text) {
        Ok(File { driver_name, volume_handle, volume_lifecycle_mode }) => VolumeData::Known {
            driver: driver_name,
            handle: volume_handle,
            lifecycle: volume_lifecycle_mode,
        },
        Err(_) => VolumeData::Corrupt { size },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::scratch::write;

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    #[test]
    fn fuzz_vol_data() {
        crate::fuzz::fuzz("vol_data", |input| {
            let _ = data(input, input.len() as u64);
        });
    }

    #[test]
    fn volumes_and_their_data_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let pod = dir.path().join("pods").join(UID);
        let data = r#"{"driverName":"d","volumeHandle":"h","volumeLifecycleMode":"Persistent"}"#;
        write(pod.join("volumes/kubernetes.io~csi/good/vol_data.json"), data);
        write(pod.join("volumes/kubernetes.io~csi/empty/vol_data.json"), "");
        fs::create_dir_all(pod.join("volumes/kubernetes.io~csi/none/mount")).unwrap();
        fs::create_dir_all(pod.join("volumes/kubernetes.io~empty-dir/data/deep")).unwrap();
        fs::create_dir_all(pod.join("volume-subpaths/data/app/0")).unwrap();
        write(dir.path().join("plugins_registry/d-reg.sock"), "");
        write(dir.path().join("plugins/d/csi.sock"), "");
        write(dir.path().join("plugins/e/other.sock"), "");
        fs::create_dir_all(dir.path().join("pods/lost+found")).unwrap();

        let root = read_root(dir.path()).unwrap();
        assert_eq!(root.registered, ["d-reg.sock"]);
        assert_eq!(root.drivers, ["d"]);
        let [one] = root.pods.as_slice() else { panic!("{root:?}") };
        assert_eq!((one.uid.as_str(), one.times.started), (UID, None));
        assert!(one.times.changed.is_some() && one.times.volume_removed.is_none());
        let data = |name: &str| {
            one.volumes.iter().find(|v| Path::new(&v.path).ends_with(name)).unwrap().data.clone()
        };
        let known = VolumeData::Known {
            driver: "d".into(),
            handle: "h".into(),
            lifecycle: "Persistent".into(),
        };
        assert_eq!(data("good"), Some(known));
        assert_eq!(data("empty"), Some(VolumeData::Corrupt { size: 0 }));
        assert_eq!(data("none"), Some(VolumeData::Missing));
        assert_eq!(data("kubernetes.io~empty-dir/data"), None);
        assert_eq!(data("volume-subpaths/data/app"), None);
        assert_eq!(one.volumes.len(), 5, "nothing in a volume is looked at: {one:#?}");
    }

    #[test]
    fn times_tell_what_was_removed_last() {
        let dir = tempfile::tempdir().unwrap();
        let pod = dir.path().join("pods").join(UID);
        let tokens = pod.join("volumes/kubernetes.io~projected");
        fs::create_dir_all(tokens.join("kube-api-access-x")).unwrap();
        fs::create_dir_all(pod.join("volumes/kubernetes.io~csi/pv")).unwrap();
        let at = |second: u64| std::time::UNIX_EPOCH + std::time::Duration::from_secs(second);
        let set = |directory: &Path, second| {
            fs::File::open(directory).unwrap().set_modified(at(second)).unwrap();
        };
        let above = [&pod, &pod.join("volumes"), &pod.join("volumes/kubernetes.io~csi")];
        above.iter().for_each(|directory| set(directory, 100));
        // What is in a volume is not asked: it may be mounted.
        set(&pod.join("volumes/kubernetes.io~csi/pv"), 900);
        set(&tokens, 300);
        let read = || read_root(dir.path()).unwrap().pods.remove(0).times;
        let second = |time: Option<Timestamp>| time.map(Timestamp::as_second);
        let times = read();
        assert_eq!((second(times.changed), times.volume_removed), (Some(300), None));
        fs::remove_dir(tokens.join("kube-api-access-x")).unwrap();
        set(&tokens, 400);
        let times = read();
        assert_eq!((second(times.changed), second(times.volume_removed)), (Some(400), Some(400)));
    }

    #[test]
    fn a_container_that_was_started_left_a_mark() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path().join("pods").join(UID).join("containers/app/1f0c3a7d"), "");
        let root = read_root(dir.path()).unwrap();
        assert!(root.pods[0].times.started.is_some());
        assert_eq!(read_root(Path::new("/nonexistent")), None);
    }
}
