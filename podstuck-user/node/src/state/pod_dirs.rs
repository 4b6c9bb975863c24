//! kubelet's directories of pods and drivers: the helper's side. They lie on the node's disk, which
//! may hang like any other. Nothing that a volume contains is touched, because it may be mounted.

use std::{
    collections::HashSet,
    ffi::OsString,
    io::{self, ErrorKind},
    os::linux::fs::MetadataExt,
    path::Path,
};

use anyhow::Result;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    block_volumes::{self, LinkOnDisk, MapsOnDisk},
    directory::Directory,
    dra::{self, ClaimOnDisk},
    seen_by::{Place, Root, shown},
    vol_data,
};
use crate::identity::uid::is_pod_uid;
use podstuck_confine::helper::{Budget, Question, Teller};
use podstuck_confine::role::Role;
use podstuck_model::{csi::VolumeData, degraded::Feed, object::FileId};

/// The plugin directory of CSI volumes.
pub(super) const CSI: &str = "kubernetes.io~csi";

/// Pods in one root: many times what a kubelet may have. Reading their directories takes less than a second.
const PODS: usize = 8192;

/// What kubelet keeps below one of its roots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RootOnDisk {
    /// Each pod's directory.
    pub(super) pods: Vec<PodOnDisk>,
    /// Directories of pods that are there, and were not read again.
    pub(super) unchanged: Vec<String>,
    /// Sockets in `plugins_registry`, by name: drivers register there.
    pub(super) registered: Vec<OsString>,
    /// When one of them was made or removed last.
    pub(super) registry_changed: Option<Timestamp>,
    /// Directories in `plugins` with a socket of the name that nearly all CSI drivers give it.
    pub(super) drivers: Vec<OsString>,
    /// The first symbolic link on the way to it, and where the way leads, as a process sees them.
    pub(super) link: Option<(OsString, OsString)>,
    /// Maps of raw block volumes of CSI drivers.
    pub(super) maps: Vec<MapsOnDisk>,
    /// ResourceClaims that kubelet keeps.
    pub(super) claims: Vec<ClaimOnDisk>,
}

/// As in the driver's own directory, which is named after it (kubernetes-csi documentation, Deploying a CSI
/// Driver on Kubernetes).
pub(super) const USUAL_SOCKET: &str = "csi.sock";

/// What is below one of them.
pub(super) type Reading = Result<Option<RootOnDisk>, String>;

/// One pod's directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PodOnDisk {
    /// Name of the directory.
    pub(super) uid: String,
    /// Which directory that is.
    pub(super) file: Option<FileId>,
    /// What the times of files and directories tell.
    pub(super) times: Times,
    /// Its volumes.
    pub(super) volumes: Vec<VolumeOnDisk>,
    /// Its raw block volumes.
    pub(super) devices: Vec<LinkOnDisk>,
    /// The process as which it was read.
    pub(super) seen_by: Option<u32>,
}

/// The times of a pod's files and directories. Those of its control groups are not used: the kernel keeps none for a
/// group whose attributes were never changed, and shows that of the first access
/// (`kernfs_init_inode` in fs/kernfs/inode.c).
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
    /// Which directory that is, of a CSI volume.
    pub(super) file: Option<FileId>,
    /// Of a CSI volume.
    pub(super) data: Option<VolumeData>,
}

/// What is below kubelet's roots: for each a part, with nothing where there are no pods, or why it cannot be read.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReadPods {
    /// Each with the pods whose directories need not be read again.
    pub(super) roots: Vec<(Place, HashSet<String>)>,
}

impl Question for ReadPods {
    const BUDGET: Budget = Budget::Pods;
    const FEEDS: Option<Feed> = Some(Feed::Node);
    const ROLE: Role = Role::HelperBeneath;
    type Step = OsString;
    type Part = Reading;
    type Answer = ();

    fn answer(self, tell: &mut Teller<OsString, Reading>) -> Result<()> {
        for (place, known) in &self.roots {
            tell.at(&shown(place))?;
            // Of a process that has ended nothing is there.
            let read = match Root::of_place(place) {
                Ok(root) => read_root(&Directory { root: &root, path: (&place.1).into() }, known),
                Err(_) => Ok(None),
            };
            tell.part(&read.map_err(|why| why.to_string()))?;
        }
        Ok(())
    }
}

fn names(directory: &Directory<'_>) -> impl Iterator<Item = OsString> + use<> {
    directory.names().into_iter().flatten()
}

/// Reads one root; `None` when there are no pods.
fn read_root(root: &Directory<'_>, known: &HashSet<String>) -> io::Result<Option<RootOnDisk>> {
    let directory = root.join("pods");
    let names_of_pods = match directory.names() {
        Ok(names) => names,
        Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(why) => return Err(why),
    };
    let uids = names_of_pods.filter_map(|name| name.into_string().ok());
    let uids: Vec<String> = uids.filter(|uid| is_pod_uid(uid.as_bytes())).take(PODS + 1).collect();
    if uids.len() > PODS {
        return Err(io::Error::other(format!("it has more than {PODS} directories of pods")));
    }
    let (unchanged, read): (Vec<String>, Vec<String>) =
        uids.into_iter().partition(|uid| known.contains(uid));
    let pods = read.into_iter().map(|uid| read_pod(&directory.join(&uid), uid)).collect();
    let registry = root.join("plugins_registry");
    // Its time first: a removal meanwhile is then seen by the next read.
    let registry_changed = registry.changed();
    let registered = names(&registry).collect();
    let plugins = root.join("plugins");
    let has_socket = |name: &OsString| plugins.join(name).join(USUAL_SOCKET).itself().is_ok();
    let drivers = names(&plugins).filter(has_socket).collect();
    let maps = block_volumes::maps(root);
    let claims = dra::claims(root);
    let link = root.link().map(|(link, leads_to)| (link.into(), leads_to.into()));
    Ok(Some(RootOnDisk {
        pods,
        unchanged,
        registered,
        registry_changed,
        drivers,
        link,
        maps,
        claims,
    }))
}

fn read_pod(directory: &Directory<'_>, uid: String) -> PodOnDisk {
    let containers = names(&directory.join("containers"));
    let changed = |name| directory.join("containers").join(name).itself().ok();
    let started = containers.filter_map(changed).map(|metadata| metadata.st_mtime()).max();
    let mut volumes = Vec::new();
    // What is not there was never made, or its removal shows in the directory above it.
    let mut above = vec![Some(directory.clone())];
    let kinds = ["containers", "plugins", "volumes", "volume-subpaths", "volumeDevices"];
    above.extend(kinds.map(|kind| {
        let directory = directory.join(kind);
        directory.itself().is_ok().then_some(directory)
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
                let own = csi.then(|| directory.join(&path));
                // What another plugin has mounted there may be dead.
                let file = own.as_ref().and_then(Directory::id);
                let data = own.map(|own| vol_data::read(&own.join("vol_data.json")));
                volumes.push(VolumeOnDisk { path: path.into(), file, data });
            }
        }
    }
    let mut devices = Vec::new();
    for plugin in names(&directory.join("volumeDevices")) {
        let plugin = Path::new("volumeDevices").join(plugin);
        let links = block_volumes::links(directory, &plugin);
        above.push(Some(directory.join(&plugin)));
        if links.is_empty() {
            emptied.push(directory.join(&plugin));
        }
        devices.extend(links);
    }
    let times: Option<Vec<Timestamp>> = above.iter().flatten().map(Directory::changed).collect();
    let changed = times.and_then(|times| times.into_iter().max());
    let volume_removed = emptied.iter().filter_map(Directory::changed).max();
    let times = Times { started, changed, volume_removed };
    PodOnDisk { uid, file: directory.id(), times, volumes, devices, seen_by: None }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(path: &Path) -> Option<RootOnDisk> {
        let root = Root::of(std::process::id()).unwrap();
        read_root(&Directory { root: &root, path: path.into() }, &HashSet::new()).unwrap()
    }
    use crate::state::scratch::write;

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

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

        let root = read(dir.path()).unwrap();
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
        let times = || read(dir.path()).unwrap().pods.remove(0).times;
        let second = |time: Option<Timestamp>| time.map(Timestamp::as_second);
        let found = times();
        assert_eq!((second(found.changed), found.volume_removed), (Some(300), None));
        fs::remove_dir(tokens.join("kube-api-access-x")).unwrap();
        set(&tokens, 400);
        let found = times();
        assert_eq!((second(found.changed), second(found.volume_removed)), (Some(400), Some(400)));
    }

    #[test]
    fn a_known_pod_is_listed_as_long_as_it_is_there_and_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let other = UID.replace('0', "1");
        for uid in [UID, &other] {
            fs::create_dir_all(dir.path().join("pods").join(uid).join("volumes")).unwrap();
        }
        let known = HashSet::from([UID.to_owned(), "gone".to_owned()]);
        let root = Root::of(std::process::id()).unwrap();
        let root = Directory { root: &root, path: dir.path().into() };
        let found = read_root(&root, &known).unwrap().unwrap();
        assert_eq!(found.unchanged, [UID]);
        let read: Vec<&str> = found.pods.iter().map(|pod| pod.uid.as_str()).collect();
        assert_eq!(read, [other]);
    }

    #[test]
    fn a_container_that_was_started_left_a_mark() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path().join("pods").join(UID).join("containers/app/1f0c3a7d"), "");
        let root = read(dir.path()).unwrap();
        assert!(root.pods[0].times.started.is_some());
        assert_eq!(read(Path::new("/nonexistent")), None);
    }
}
