//! The benchmark's mount namespace: whatever happens to the process, no mount and no loop device outlives it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::geteuid;
use tempfile::TempDir;

use super::tool::Tool;
use podstuck_process as process;

/// The pod of the workloads.
pub(crate) const POD: &str = "7b0c6a52-95b0-4a57-9f43-0d6f1f9a2c11";
/// A pod without any activity.
pub(crate) const OTHER_POD: &str = "c5a1d4de-3c0e-4f0b-8f0f-6d1d1c3f6f21";
/// Size of a disk image; only written parts take memory.
const IMAGE_BYTES: u64 = 1 << 30;

const MKFS_EXT4: Tool = Tool { program: "mkfs.ext4", package: "e2fsprogs" };
const MKFS_XFS: Tool = Tool { program: "mkfs.xfs", package: "xfsprogs" };

/// The file system of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    Tmpfs,
    Ext4,
    Xfs,
}

/// A volume of a pod.
pub(crate) struct Volume {
    pub(crate) kubelet_root: PathBuf,
    pub(crate) dir: PathBuf,
}

/// The folder of the benchmark, and the mounts in it.
pub(crate) struct Place {
    folder: TempDir,
    mounted: Vec<PathBuf>,
}

impl Place {
    /// Leaves the machine's mount namespace and mounts the file systems that tracers need.
    pub(crate) fn enter() -> Result<Self> {
        if !geteuid().is_root() {
            bail!("the benchmark mounts file systems and loads probes, which takes root");
        }
        let none = None::<&str>;
        unshare(CloneFlags::CLONE_NEWNS).context("cannot make a mount namespace")?;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
            .context("cannot make the mounts private")?;
        let folder = tempfile::Builder::new()
            .prefix("podstuck-bench-")
            .tempdir()
            .context("cannot make a temporary folder")?;
        let mut place = Self { folder, mounted: Vec::new() };
        for (kind, dir) in [("debugfs", "/sys/kernel/debug"), ("tracefs", "/sys/kernel/tracing")] {
            if fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none()) {
                mount(Some(kind), dir, Some(kind), MsFlags::empty(), none)
                    .with_context(|| format!("cannot mount {kind} on {dir}"))?;
            }
        }
        place.mount_tmpfs(place.folder.path().to_path_buf())?;
        Ok(place)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The volume on a file system, which is created on first use; or the tool that is missing for it.
    pub(crate) fn volume(&mut self, on: FileSystem) -> Result<Result<Volume, Tool>> {
        let (name, mkfs) = match on {
            FileSystem::Tmpfs => ("tmpfs", None),
            FileSystem::Ext4 => ("ext4", Some((MKFS_EXT4, ["-q", "-F"].as_slice()))),
            FileSystem::Xfs => ("xfs", Some((MKFS_XFS, ["-q"].as_slice()))),
        };
        let top = self.folder().join(name);
        if let Some((tool, options)) = mkfs
            && !self.mounted.contains(&top)
        {
            let Some(program) = tool.find() else { return Ok(Err(tool)) };
            self.mount_disk(&top, Command::new(program).args(options))?;
        }
        let kubelet_root = top.join("kubelet");
        let dir_of = |pod: &str| {
            kubelet_root.join("pods").join(pod).join("volumes/kubernetes.io~empty-dir/data")
        };
        for pod in [POD, OTHER_POD] {
            let dir = dir_of(pod);
            fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        }
        Ok(Ok(Volume { dir: dir_of(POD), kubelet_root }))
    }

    /// Mounts a tmpfs on `mounted` in the volume, for calls that fail with EBUSY.
    pub(crate) fn make_busy(&mut self, volume: &Volume) -> Result<()> {
        let dir = volume.dir.join("mounted");
        if self.mounted.contains(&dir) {
            return Ok(());
        }
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        self.mount_tmpfs(dir)
    }

    fn mount_tmpfs(&mut self, dir: PathBuf) -> Result<()> {
        mount(Some("podstuck-bench"), &dir, Some("tmpfs"), MsFlags::empty(), None::<&str>)
            .with_context(|| format!("cannot mount a tmpfs on {}", dir.display()))?;
        self.mounted.push(dir);
        Ok(())
    }

    fn mount_disk(&mut self, top: &Path, mkfs: &mut Command) -> Result<()> {
        let image = top.with_extension("img");
        File::create(&image)
            .and_then(|file| file.set_len(IMAGE_BYTES))
            .with_context(|| format!("cannot create {}", image.display()))?;
        process::output(mkfs.arg(&image))?;
        fs::create_dir_all(top).with_context(|| format!("cannot create {}", top.display()))?;
        // With `mount`, the kernel frees the loop device together with the mount.
        process::output(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(top))?;
        self.mounted.push(top.to_path_buf());
        fs::remove_file(&image).with_context(|| format!("cannot remove {}", image.display()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        while let Some(dir) = self.mounted.pop() {
            if let Err(error) = umount2(&dir, MntFlags::MNT_DETACH) {
                eprintln!("cannot unmount {} before the namespace ends: {error}", dir.display());
            }
        }
    }
}
