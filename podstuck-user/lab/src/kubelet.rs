//! kubelet's deletion of a pod. The comments name kubelet's own functions.
//!
//! Kubelets up to 1.29 recognise a mount only by its device number. They do not recognise a bind mount from the same
//! file system and try to remove it. One thing differs from the original: kubelet and CSI drivers run `umount(8)`,
//! while the lab makes the call itself.

use std::{fs, os::unix::net::UnixStream, path::Path};

use rustix::{
    fs::{AtFlags, CWD, StatxAttributes, StatxFlags, stat, statx},
    io::Errno,
};

use super::{
    calls::Calls,
    case::{Case, Driver, Kind, Volume},
    cgroup,
    go_remove::{Failure, is_gone, remove, remove_all},
    klog::words,
    layout::{DRIVER, Pod, driver_socket, kubelet_root},
};

/// Deletes one pod.
#[derive(Debug)]
pub(super) struct Kubelet<'a, 'b> {
    calls: &'a mut Calls<'b>,
    pod: &'a Pod,
    /// Whether the CSI driver still knows its volumes as published.
    published: bool,
}

impl<'a, 'b> Kubelet<'a, 'b> {
    /// For this pod, whose volumes are set up.
    pub(super) fn new(calls: &'a mut Calls<'b>, pod: &'a Pod) -> Self {
        Self { calls, pod, published: true }
    }

    /// Why kubelet does not begin to tear down volumes; `None` if it does.
    pub(super) fn cannot_begin(&self, case: &Case) -> Option<Failure> {
        if case.has_container() && cgroup::has_container(self.pod) {
            return Some(Failure::Alive);
        }
        // Such as the pod's status, a checkpoint or a log line.
        let file = kubelet_root(&self.pod.root).join("state.tmp");
        let written = case.has_full_disk().then(|| fs::write(&file, "state")).transpose();
        let errno = written.err().and_then(|error| Errno::from_io_error(&error));
        errno.map(|errno| Failure::new("write", file, errno))
    }

    /// Removes the pod's cgroups, after the volumes and before kubelet reports to the API server.
    pub(super) fn remove_cgroups(&self) -> Result<(), Failure> {
        cgroup::remove(self.pod)
    }

    /// Tries once to tear down a volume.
    pub(super) fn tear_down(&mut self, volume: &Volume) -> Result<(), Failure> {
        match volume.kind {
            Kind::Csi(driver) => self.tear_down_csi(volume, driver),
            Kind::SubPath => {
                self.clean_sub_paths(volume)?;
                self.tear_down_empty_dir(volume)
            }
            _ => self.tear_down_empty_dir(volume),
        }
    }

    /// `subpath.doCleanSubPaths`, for a mount whose directory `stat` reports as missing: kubelet skips such a mount.
    fn clean_sub_paths(&mut self, volume: &Volume) -> Result<(), Failure> {
        let container = self.pod.sub_path(volume);
        let mount = container.join("0");
        if !is_mount_point(&mount) {
            self.os_remove(&mount)?;
        }
        self.os_remove(&container)?;
        match container.parent() {
            Some(volume) => self.os_remove(volume),
            None => Ok(()),
        }
    }

    /// `emptyDir.TearDownAt`, which projected volumes and their like share.
    fn tear_down_empty_dir(&mut self, volume: &Volume) -> Result<(), Failure> {
        if let Some(ready) = self.pod.ready(volume) {
            remove_all(self.calls, &ready)?;
        }
        let directory = self.pod.volume(volume);
        match on_other_device(&directory) {
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(Failure::new("stat", directory, errno)),
            Ok(true) => self.umount(&directory)?,
            Ok(false) => {}
        }
        remove_all(self.calls, &directory)
    }

    /// `csiMountMgr.TearDownAt`: the driver's part, then kubelet's.
    fn tear_down_csi(&mut self, volume: &Volume, driver: Driver) -> Result<(), Failure> {
        let target = self.pod.content(volume);
        match driver {
            Driver::Missing => {
                return Err(Failure::Refused(
                    format!(
                        "kubernetes.io/csi: Unmounter.TearDownAt failed to get CSI client: driver name \
                         {DRIVER} not found in the list of registered CSI drivers"
                    )
                    .into(),
                ));
            }
            Driver::Silent => return Err(Failure::Refused(self.call_driver().into())),
            Driver::Unknown => {
                let (point, directory) = (target.display(), self.pod.volume(volume));
                return Err(Failure::NotBegun(format!(
                    "kubernetes.io/csi: unmounter failed to load volume data file [{point}]: \
                     kubernetes.io/csi: failed to parse volume data file [{}]: EOF",
                    directory.join("vol_data.json").display()
                )));
            }
            // kubelet recognises mounts by `STATX_ATTR_MOUNT_ROOT` since 1.30.
            Driver::ForgotInSilence if is_mount_point(&target) => return Err(Failure::Waiting),
            Driver::Forgot | Driver::ForgotInSilence => {}
            Driver::UnmountedEarly | Driver::Orphaned => {}
            Driver::Works if self.published => {
                self.umount(&target)?;
                self.os_remove(&target)?;
            }
            Driver::PublishedTwice if self.published => self.umount(&target)?,
            Driver::Works | Driver::PublishedTwice => {}
        }
        // Later calls of the driver report success without an action.
        self.published = false;
        let directory = self.pod.volume(volume);
        self.os_remove(&target)?;
        self.os_remove(&directory.join("vol_data.json"))?;
        self.os_remove(&directory)
    }

    /// Removes the pod's directory, as housekeeping does after all volumes: `cleanupOrphanedPodDirs`.
    pub(super) fn remove_pod_directory(&mut self) -> Result<(), Failure> {
        let directory = self.pod.directory();
        let volumes = directory.join("volumes");
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        for part in entries.map(|entry| entry.path()).filter(|part| *part != volumes) {
            self.remove_on_one_device(&part, remove)?;
        }
        // Removes no file below `volumes`: it may be another owner's data.
        self.remove_on_one_device(&volumes, rmdir)?;
        rmdir(self.calls, &directory).map_err(|errno| Failure::new("unlinkat", directory, errno))
    }

    /// `removeall.RemoveAllOneFilesystem` and its variant for directories only: full paths at every level, and no
    /// descent into mounts.
    fn remove_on_one_device(&mut self, path: &Path, how: Remove) -> Result<(), Failure> {
        let failure = |errno| Failure::new("unlinkat", path, errno);
        let errno = match how(self.calls, path) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(errno) => errno,
        };
        if !path.is_dir() || on_other_device(path) != Ok(false) {
            return Err(failure(errno));
        }
        let Ok(entries) = fs::read_dir(path) else { return Err(failure(errno)) };
        for entry in entries.flatten() {
            self.remove_on_one_device(&entry.path(), how)?;
        }
        gone_or(how(self.calls, path), failure)
    }

    /// The error of a call of the driver, which never answers here. The call's timeout is not awaited.
    fn call_driver(&self) -> String {
        let socket = driver_socket(&self.pod.root);
        let why = match UnixStream::connect(&socket) {
            Ok(_) => "DeadlineExceeded desc = context deadline exceeded".into(),
            Err(error) => {
                let errno = Errno::from_io_error(&error).map(words).unwrap_or_default();
                format!(
                    "Unavailable desc = connection error: desc = \"transport: Error while dialing: dial \
                     unix {}: connect: {errno}\"",
                    socket.display()
                )
            }
        };
        format!("kubernetes.io/csi: Unmounter.TearDownAt failed: rpc error: code = {why}")
    }

    fn umount(&mut self, path: &Path) -> Result<(), Failure> {
        self.calls.umount(path).map_err(|errno| Failure::new("umount", path, errno))
    }

    fn os_remove(&mut self, path: &Path) -> Result<(), Failure> {
        gone_or(remove(self.calls, path), |errno| Failure::new("remove", path, errno))
    }
}

type Remove = fn(&mut Calls, &Path) -> Result<(), Errno>;

/// Go's `syscall.Rmdir`, which calls unlinkat(2), not rmdir(2).
fn rmdir(calls: &mut Calls, path: &Path) -> Result<(), Errno> {
    calls.rmdir(CWD, path)
}

fn gone_or(result: Result<(), Errno>, failure: impl Fn(Errno) -> Failure) -> Result<(), Failure> {
    if is_gone(result) { Ok(()) } else { result.map_err(failure) }
}

/// kubelet's check since 1.30, which asks the kernel (since Linux 5.8).
fn is_mount_point(path: &Path) -> bool {
    let wanted = StatxFlags::empty();
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, wanted);
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// The negation of kubelet's `IsLikelyNotMountPoint` up to 1.29.
fn on_other_device(path: &Path) -> Result<bool, Errno> {
    let parent = path.parent().unwrap_or(path);
    Ok(stat(path)?.st_dev != stat(parent)?.st_dev)
}
