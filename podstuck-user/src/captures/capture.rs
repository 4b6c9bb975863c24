//! A captured case: a text file in parts.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;

use crate::model::{
    call::Call,
    mounted::Mounted,
    mountinfo,
    mounts::{Mount, Mounts},
    node::{PodState, VolumeState},
    operation::Operation,
    pod_record::PodRecord,
};
use podstuck_node::identity::pod_record;
use podstuck_testing::samples;

/// kubelet's process id and mount namespace: the captures lack them.
pub(super) const KUBELET: (u32, u32) = (7632, 4026531841);
/// The parent mounts of the captured ones, which give only their numbers.
const BELOW: &str = "27 1 0:25 / /run rw shared:6 - tmpfs tmpfs rw\n44 1 254:0 / / rw shared:7 - ext4 /dev/vda rw\n";

/// The directory of the captures.
pub(super) fn folder() -> PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/src/captures").into()
}

/// One case.
pub(super) struct Capture {
    pub(super) case: String,
    /// Time of the capture.
    pub(super) now: Timestamp,
    pub(super) uid: String,
    pub(super) record: PodRecord,
    /// Id of the pod's container.
    pub(super) container: String,
    /// The pod's mounts, and those of its container.
    pub(super) mounts: Mounts,
    /// The content of the pod's directory: whether each is a directory, and its modification time.
    pub(super) files: BTreeMap<PathBuf, (bool, Timestamp)>,
    /// The pod's control groups.
    pub(super) groups: Vec<PathBuf>,
    /// Processes in them.
    pub(super) pids: Vec<u32>,
}

impl Capture {
    pub(super) fn read(case: &str) -> Self {
        let text = fs::read_to_string(folder().join(format!("{case}.txt"))).unwrap();
        let mut parts: BTreeMap<&str, &str> = BTreeMap::new();
        for part in text.split("\n== ").skip(1) {
            let (name, body) = part.split_once('\n').unwrap_or((part, ""));
            parts.insert(name, body);
        }
        let now: Timestamp = parts["now"].trim().parse().unwrap();
        let record = pod_record::parse(parts["pod"]).unwrap();
        let (_, container) = parts["pod"].split_once("containerd://").unwrap();
        let table = format!("{BELOW}{}\n", parts["mountinfo"]);
        let files = parts["directories"].lines().map(|line| {
            let words: Vec<&str> = line.splitn(3, ' ').collect();
            (words[2].into(), (words[0] == "d", words[1].parse().unwrap()))
        });
        let (groups, pids): (Vec<&str>, Vec<&str>) =
            parts["cgroups"].lines().partition(|line| line.starts_with('/'));
        let mut pids: Vec<u32> = pids.iter().map(|pid| pid.parse().unwrap()).collect();
        pids.sort_unstable();
        pids.dedup();
        Self {
            case: case.into(),
            now,
            uid: record.pod.uid.clone(),
            record: PodRecord { read: Some(now), ..record },
            container: container.split('"').next().unwrap().into(),
            mounts: Mounts {
                all: mountinfo::parse(table.as_bytes()),
                source: format!("/proc/{}/mountinfo", KUBELET.0),
                pid: KUBELET.0,
            },
            files: files.collect(),
            groups: groups.into_iter().map(PathBuf::from).collect(),
            pids,
        }
    }

    /// When the pod was deleted.
    pub(super) fn deleted(&self) -> Timestamp {
        self.record.deletion.unwrap() - Duration::from_secs(self.record.grace_s)
    }

    /// The pod's directory.
    pub(super) fn directory(&self) -> PathBuf {
        Path::new("/var/lib/kubelet/pods").join(&self.uid)
    }

    /// A mount as in a sample of the node.
    pub(super) fn mounted(&self, mount: &Mount) -> Mounted {
        Mounted::of(mount, KUBELET, self.mounts.source.clone())
    }

    /// The latest modification time of these, if all exist.
    fn changed(&self, paths: &[PathBuf]) -> Option<Timestamp> {
        paths.iter().filter_map(|path| self.files.get(path)).map(|(_, changed)| *changed).max()
    }

    fn inside(&self, directory: &Path) -> Vec<PathBuf> {
        let is_in = |path: &&PathBuf| path.parent() == Some(directory);
        self.files.keys().filter(is_in).cloned().collect()
    }

    /// A call as the probes see it, whose result is in a log: Go names both of its calls `unlinkat`, and the second
    /// one is for directories.
    pub(super) fn seen(&self, mut op: Operation) -> Operation {
        let is_directory = self.files.get(&op.path).is_some_and(|(is_directory, _)| *is_directory);
        if op.call == Call::Unlinkat && is_directory {
            op.call = Call::UnlinkatDir;
        }
        op
    }

    /// The pod as a sample of its directory shows it (`state/pod_dirs.rs`).
    pub(super) fn pod(&self) -> PodState {
        let directory = self.directory();
        let plugins = self.inside(&directory.join("volumes"));
        let mut paths: Vec<PathBuf> = plugins.iter().flat_map(|it| self.inside(it)).collect();
        // Where the listing hung, from the mounts.
        let volumes = directory.join("volumes");
        let points = self.mounts.all.iter().filter_map(|it| it.point.strip_prefix(&volumes).ok());
        paths.extend(points.map(|it| volumes.join(it.components().take(2).collect::<PathBuf>())));
        paths.sort();
        paths.dedup();
        let emptied: Vec<PathBuf> =
            plugins.iter().filter(|it| self.inside(it).is_empty()).cloned().collect();
        let mut above = plugins;
        above.extend(["", "containers", "plugins", "volumes"].map(|name| directory.join(name)));
        above.iter_mut().for_each(|path| *path = path.components().collect());
        PodState {
            populated: Some(!self.pids.is_empty()),
            changed: self.changed(&above),
            volume_removed: self.changed(&emptied),
            seen_by: Some(KUBELET),
            devices: self.devices(),
            volumes: paths.into_iter().map(|path| self.volume(path)).collect(),
            directory,
            ..samples::pod_state(&self.uid)
        }
    }

    fn volume(&self, path: PathBuf) -> VolumeState {
        let mounts = self.mounts.all.iter().filter(|mount| mount.point.starts_with(&path));
        let mounts = mounts.map(|mount| self.mounted(mount)).collect();
        VolumeState { target_id: 0, ..samples::volume_state(path, mounts) }
    }
}
