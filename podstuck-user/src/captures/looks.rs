//! Samples of the node, which the captures lack, built from what was done to the pods.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use podstuck_testing::samples;

use super::capture::{Capture, KUBELET};
use crate::{
    event::What,
    model::{
        block_volume::BlockVolume,
        cluster::NotRead,
        csi::{CsiState, DriverProcess, DriverState, Reach, Registration, VolumeData},
        file_system::FileSystem,
        halted::Halted,
        holder::{HeldMount, Holder, How, Snapshot, Subject, Through},
        hung::MountPoint,
        identity::{Component, Target},
        mounts::Mount,
        node::{LeftRootfs, PodState},
        node_record::NodeRecord,
        object::{Attributes, Entries, Entry, FileId, Protected},
        path::JsonPath,
        pod_group::{PodGroup, Task},
        runtime::Runtime,
        time::Monotonic,
    },
    query::{
        Answer, Contents, FindProtected, NoAnswer, ObjectAttributes, Query, ReadAttributes,
        ReadDirectory, ReadFileSystem, Wants,
    },
};

const DRIVER: &str = "hostpath.csi.k8s.io";
/// Process id of the driver, when it runs.
const DRIVER_PID: u32 = 8911;
const CONTAINERD: u32 = 612;

impl Capture {
    /// The processes that were started to hold something: process id, name, kind of use, and object.
    fn held(&self) -> Vec<(u32, &'static str, How, PathBuf)> {
        let volumes = self.directory().join("volumes");
        let data = || volumes.join("kubernetes.io~empty-dir/data");
        let below = |part: &str| {
            let mut points = self.mounts.all.iter().map(|mount| mount.point.clone());
            points.find(|point| point.iter().any(|name| name == part)).unwrap()
        };
        match self.case.as_str() {
            "bind-mount-with-holder" => vec![(11998, "tail", How::Fd, data().join("sub/a"))],
            "busy" => vec![(7784, "tail", How::Fd, data().join("sub/a"))],
            "csi-mount-held" => {
                let mount = volumes.join("kubernetes.io~csi/pv-web-1tuzzwk9/mount");
                vec![(17657, "sleep", How::Cwd, mount)]
            }
            "force-deleted-held" => vec![(16785, "sleep", How::Cwd, data())],
            "image-volume-held-containerd-2" => {
                vec![(31296, "sleep", How::Cwd, below("image-volumes"))]
            }
            "mem" => vec![(8001, "sleep", How::Cwd, data())],
            // The file over which the driver has bound its device.
            "raw-block-held" => vec![(17469, "tail", How::Fd, below("volumeDevices"))],
            "rb2" => vec![(8594, "sleep", How::Cwd, below("rootfs"))],
            "rootfs-and-tmpfs-held" => vec![
                (15219, "sleep", How::Cwd, below("rootfs")),
                (15185, "sleep", How::Cwd, data()),
            ],
            "static-pod" => vec![(16948, "sleep", How::Cwd, data())],
            "subpath-held" => {
                let subpath = self.directory().join("volume-subpaths/data/main/0");
                vec![(17140, "sleep", How::Cwd, subpath)]
            }
            _ => Vec::new(),
        }
    }

    /// The API server's record of the pod. It no longer has a pod deleted by force, or the mirror of a removed static
    /// pod.
    pub(super) fn api(&self) -> What {
        let node = "kc-node".to_owned();
        if !["force-deleted-held", "static-pod"].contains(&self.case.as_str()) {
            return What::Record { record: Box::new(self.record.clone()), node };
        }
        let (drivers, missing) = (None, vec![self.record.pod.clone()]);
        let (read, kubelet) = (self.now, Some("v1.36.2".to_owned()));
        What::Node(Box::new(NodeRecord { node, read, ready: None, kubelet, drivers, missing }))
    }

    /// Whether the pod's deletion waits for it: not during the grace period, and not once the API server has dropped
    /// the pod.
    pub(super) fn blocks(&self) -> bool {
        !["force-deleted-held", "prestop-hangs", "static-pod"].contains(&self.case.as_str())
    }

    /// Whether only the pod's record shows it.
    pub(super) fn shows_in_record(&self) -> bool {
        let cases = ["prestop-hangs", "deleted-while-kubelet-stopped"];
        !self.record.finalizers.is_empty() || cases.contains(&self.case.as_str())
    }

    /// Running kubelets.
    pub(super) fn kubelets(&self) -> Vec<u32> {
        if self.case == "deleted-while-kubelet-stopped" { Vec::new() } else { vec![KUBELET.0] }
    }

    /// containerd, when it must be asked.
    pub(super) fn runtimes(&self) -> Vec<Runtime> {
        if self.case != "image-volume-held-containerd-2" {
            return Vec::new();
        }
        let mnt_ns = Some(KUBELET.1);
        vec![Runtime { pid: CONTAINERD, mnt_ns, ..samples::runtime(Component::Containerd) }]
    }

    /// The driver of a CSI volume, and its registration.
    pub(super) fn add_driver(&self, pod: &mut PodState, created: Monotonic) {
        // A killed registrar leaves its socket, and then no process reports the driver's socket.
        let is_deaf = self.case == "csi-driver-and-registrar-gone";
        let is_registered = self.case != "csidead-unreg" && !is_deaf;
        let runs = !self.case.starts_with("csidead");
        let process = DriverProcess {
            pid: DRIVER_PID,
            comm: "hostpathplugin".into(),
            started: created,
            ticks: Some(1),
            reach: Reach::Whole,
            halted: (self.case == "csi-driver-stopped").then_some(Halted::Stopped),
        };
        let driver = DriverState {
            socket: "/var/lib/kubelet/plugins/csi-hostpath/csi.sock".into(),
            source: "its registrar's arguments".into(),
            process: runs.then_some(process),
            registrar: Some(DRIVER_PID + 1),
        };
        for volume in pod
            .volumes
            .iter_mut()
            .filter(|it| it.path.parent().is_some_and(|it| it.ends_with("kubernetes.io~csi")))
        {
            let handle = volume.mounts.last().and_then(|mount| mount.root.file_name()).unwrap();
            volume.csi = Some(CsiState {
                data: VolumeData::Known {
                    driver: DRIVER.into(),
                    handle: handle.to_str().unwrap().into(),
                    lifecycle: "Persistent".into(),
                },
                socket: format!("/var/lib/kubelet/plugins_registry/{DRIVER}-reg.sock").into(),
                registration: if is_registered {
                    Registration::Listening
                } else if is_deaf {
                    Registration::Deaf
                } else {
                    Registration::Absent
                },
                registry_changed: None,
                driver: is_registered.then(|| driver.clone()),
            });
        }
    }

    /// The driver's map of a raw block volume: kubelet has already removed the pod's link and its own map.
    fn block_map(&self) -> impl Iterator<Item = &Mount> {
        self.mounts.all.iter().filter(|it| it.point.iter().any(|part| part == "volumeDevices"))
    }

    /// A raw block volume as a sample of kubelet's directories shows it (`state/sample/block_volumes.rs`).
    pub(super) fn devices(&self) -> Vec<BlockVolume> {
        // As in the driver's log.
        let data = VolumeData::Known {
            driver: DRIVER.into(),
            handle: "13e22637-e9e7-11f1-9d27-1641c8a884fe".into(),
            lifecycle: String::new(),
        };
        let of = |mount: &Mount| BlockVolume {
            target_id: 0,
            target: Target::unknown().into(),
            link: None,
            leads_to: None,
            map: None,
            mounts: vec![self.mounted(mount)],
            data: Some(data.clone()),
            users: Vec::new(),
        };
        self.block_map().map(of).collect()
    }

    /// Its container's root file system, when the container has ended and it is still mounted.
    pub(super) fn rootfs(&self) -> Vec<LeftRootfs> {
        let mount = self
            .mounts
            .all
            .iter()
            .find(|mount| mount.point.ends_with(format!("{}/rootfs", self.container)));
        let of = |mount: &Mount| LeftRootfs {
            target_id: 0,
            target: Target::unknown().into(),
            container: self.container.clone(),
            pod: self.uid.clone(),
            mount: self.mounted(mount),
        };
        mount
            .filter(|_| self.pids.is_empty() || self.case.starts_with("rb"))
            .map(of)
            .into_iter()
            .collect()
    }

    /// The remaining processes of its control groups. A frozen process has not received the signal that ends it.
    pub(super) fn cgroups(&self) -> Vec<PodGroup> {
        let Some(path) = self.groups.iter().find(|group| group.starts_with("/sys/fs/cgroup/pids"))
        else {
            return Vec::new();
        };
        let is_frozen = self.case == "frozen";
        let frozen = self
            .groups
            .iter()
            .find(|group| is_frozen && group.starts_with("/sys/fs/cgroup/freezer"));
        let task = |pid: &u32| Task {
            state: if is_frozen { 'D' } else { 'S' },
            killed: is_frozen,
            started: 7,
            wait_channel: is_frozen.then(|| "__refrigerator".into()),
            group: path.clone(),
            ..samples::task("sh", *pid)
        };
        vec![PodGroup {
            target_id: 0,
            path: path.clone(),
            has_containers: false,
            frozen: frozen.cloned(),
            tasks: self.pids.iter().map(task).collect(),
            ..samples::pod_group(&self.uid)
        }]
    }

    /// The FUSE mount whose server was stopped.
    pub(super) fn fuse(&self) -> Option<MountPoint> {
        let mount = self.mounts.all.iter().find(|mount| mount.fs_type == "fuse.fusehang")?;
        Some(MountPoint {
            id: Some(mount.id),
            point: mount.point.clone(),
            fs_type: mount.fs_type.clone(),
            source: mount.source.clone(),
            minor: mount.device.minor,
            unanswered: Some(1),
            server: None,
            fuse: None,
        })
    }

    /// The answer to a question.
    pub(super) fn look(&self, query: &Query, at: Monotonic) -> Answer {
        match &query.wants {
            Wants::Mounts(_) | Wants::MountsOn(_) => Answer::Mounts(Some(self.mounts.clone())),
            Wants::FileSystem(ReadFileSystem { path, .. }) => {
                Answer::FileSystem(self.file_system(path))
            }
            Wants::Subvolume(_) => Answer::Subvolume(Ok(None)),
            Wants::FuseMounts(_) => {
                Answer::FuseMounts(self.fuse().map(|mount| (mount, 110)).into_iter().collect())
            }
            Wants::Attributes(ReadAttributes { directory, name, .. }) => {
                let object = self.attributes(&directory.join(name));
                let directory = self.attributes(directory);
                let files = Some((FileId { device: 1, inode: 2 }, FileId { device: 1, inode: 3 }));
                let attributes = samples::attributes(object, directory);
                Answer::Attributes(Ok(ObjectAttributes { files, ..attributes }))
            }
            Wants::Protected(FindProtected { directory, .. }) => {
                let below = self.files.keys().filter(|path| path.starts_with(directory));
                let objects = below.map(|path| (JsonPath(path.clone()), self.attributes(path)));
                let objects: Vec<_> =
                    objects.filter(|(_, attributes)| attributes.immutable).collect();
                let files = objects.iter().map(|_| FileId { device: 1, inode: 2 }).collect();
                Answer::Protected(Ok(Protected { objects, files, looked: 1, complete: true }))
            }
            Wants::Directory(ReadDirectory { directory, .. }) => Answer::Directory(Contents {
                mounts: Some(self.mounts.clone()),
                entries: Ok(self.entries(directory)),
                users: Vec::new(),
            }),
            Wants::Remaining(_) => {
                Answer::Remaining(Err(NoAnswer::NotEntered("the capture does not have it".into())))
            }
            Wants::Listener(_) => {
                Answer::Listener(Err(NoAnswer::NotEntered("the capture does not have it".into())))
            }
            Wants::SocketPath(_) => {
                Answer::SocketPath(Err(NoAnswer::NotEntered("the capture does not have it".into())))
            }
            Wants::Fanotify(_) => {
                Answer::Fanotify(Err(NoAnswer::NotEntered("the capture does not have it".into())))
            }
            Wants::Clients(_) => Answer::Clients(Ok(Vec::new())),
            Wants::Waits(_) => Answer::Waits(Ok(Vec::new())),
            Wants::KubeletsPods(_) => {
                Answer::KubeletsPods(Err(NotRead::Other("it was not captured".into())))
            }
            Wants::Holders(_) => Answer::Holders(Ok(self.holders(&query.path, at))),
        }
    }

    fn attributes(&self, path: &Path) -> Attributes {
        let immutable = self.case == "imm" && path.ends_with("data/immutable");
        Attributes { immutable, append_only: false, known: true }
    }

    fn entries(&self, directory: &Path) -> Entries {
        let inside = self.files.iter().filter(|(path, _)| path.parent() == Some(directory));
        let entry = |(path, (is_directory, _)): (&PathBuf, &(bool, _))| Entry {
            name: path.file_name().unwrap().into(),
            is_directory: *is_directory,
            age: Duration::from_secs(60),
        };
        let listed: Vec<Entry> = inside.map(entry).collect();
        Entries {
            count: listed.len() as u64,
            listed,
            directory: Some(FileId { device: 1, inode: 3 }),
        }
    }

    fn file_system(&self, path: &Path) -> Option<FileSystem> {
        let mount = self.mounts.covering(path)?;
        Some(FileSystem {
            id: Some(mount.id),
            point: mount.point.clone(),
            is_whole: mount.root == Path::new("/"),
            fs_type: mount.fs_type.clone(),
            source: mount.source.clone(),
            device: mount.device.to_string(),
            mount_read_only: mount.is_read_only(),
            read_only: mount.is_super_read_only(),
            options: Vec::new(),
            device_exists: (mount.device.major != 0).then_some(true),
            errors: Vec::new(),
            table: self.mounts.source.clone(),
        })
    }

    fn holders(&self, path: &Path, at: Monotonic) -> Snapshot {
        let (looked_at, unseen) = ((100, 3, 200), Vec::new());
        let mount = self.mounts.top(path);
        let subject = |mount: &Mount| Subject {
            path: JsonPath(path.into()),
            what: mount.describe(),
            device: mount.device.to_string(),
            mount_id: Some(mount.id),
            namespace: Some(KUBELET.1),
        };
        let subject = mount.map(subject).ok_or_else(|| "no such mount".to_owned());
        let mut holders = Vec::new();
        if let Some(mount) = mount {
            holders.extend(self.mounts.children(mount.id).map(|child| self.nested(mount, child)));
            let held = self.held().into_iter().filter(|(.., object)| {
                self.mounts.covering(object).is_some_and(|it| it.id == mount.id)
            });
            holders.extend(held.map(|(pid, comm, how, object)| Holder {
                how,
                object: JsonPath(object),
                pid: Some(pid),
                started: Some(99),
                comm: Some(comm.into()),
                component: Some(Component::Other),
                source: format!("/proc/{pid}/{}", if how == How::Cwd { "cwd" } else { "fdinfo/3" }),
                ..self.nested(mount, mount)
            }));
        }
        Snapshot { at, subject, holders, unseen, looked_at }
    }

    fn nested(&self, mount: &Mount, child: &Mount) -> Holder {
        Holder {
            object: JsonPath(child.point.clone()),
            file: None,
            nested: (mount.id != child.id).then_some(child.id),
            mount: HeldMount {
                id: mount.id,
                namespace: Some(KUBELET.1),
                point: JsonPath(mount.point.clone()),
                detached: None,
            },
            pid: None,
            started: None,
            comm: None,
            component: None,
            source: self.mounts.source.clone(),
            ..samples::holder(How::NestedMount, Through::Itself, Some(true))
        }
    }
}
