//! Where the node's files are: one directory, a disk of its own, and kubelet's standard directories.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use podstuck_process as process;
use procfs::process::Process;
use serde::{Deserialize, Serialize};

/// There is one node on a machine: kubelet's root directory is the standard one.
const TOP: &str = "/run/podstuck-node";
/// `/run` is memory on many machines: the disk lies elsewhere.
const IMAGE: &str = "/var/tmp/podstuck-node.img";
const DISK_SIZE: u64 = 16 << 30;
/// kubelet's root directory, which other programs take for granted.
pub(crate) const KUBELET_ROOT: &str = "/var/lib/kubelet";
/// What kubelet 1.20 and the runtimes write to with no option to change it; removed only if it was not
/// there before, the deepest first.
const OUTSIDE: [&str; 12] = [
    "/var/log/pods",
    "/var/log/containers",
    KUBELET_ROOT,
    "/run/containerd/runc/k8s.io",
    "/run/containerd/runc",
    "/run/containerd/s",
    "/run/containerd/fifo",
    "/run/containerd",
    "/run/docker/plugins",
    "/run/docker",
    "/usr/libexec/kubernetes/kubelet-plugins/volume/exec",
    "/var/run/dockershim.sock",
];

/// The node's directory.
pub(crate) struct Place {
    top: PathBuf,
}

/// What is noted about it.
#[derive(Serialize, Deserialize)]
struct Noted {
    /// Those of [`OUTSIDE`] that were not there.
    ours: Vec<PathBuf>,
}

impl Place {
    /// Makes it.
    pub(crate) fn make() -> Result<Self> {
        let place = Self { top: TOP.into() };
        if place.top.exists() {
            bail!("{TOP} exists: a node is up, or was not ended; `cargo xtask node down` ends it");
        }
        // An empty directory may be left of a node that was not ended.
        let pods = fs::read_dir(Path::new(KUBELET_ROOT).join("pods"));
        if pods.is_ok_and(|mut pods| pods.next().is_some()) {
            bail!("{KUBELET_ROOT} has pods: this machine is a node already");
        }
        for name in ["", "log", "keys"] {
            let folder = place.top.join(name);
            fs::create_dir_all(&folder)
                .with_context(|| format!("creating {}", folder.display()))?;
        }
        let ours = OUTSIDE.iter().map(PathBuf::from).filter(|path| !path.exists()).collect();
        place.note("outside", &Noted { ours })?;
        Ok(place)
    }

    /// One for a control plane alone: everything is below this directory.
    pub(crate) fn below(top: &Path) -> Result<Self> {
        for name in ["log", "keys", "disk"] {
            let folder = top.join(name);
            fs::create_dir_all(&folder)
                .with_context(|| format!("creating {}", folder.display()))?;
        }
        Ok(Self { top: top.into() })
    }

    /// The one that is there.
    pub(crate) fn there() -> Option<Self> {
        let top = PathBuf::from(TOP);
        top.exists().then_some(Self { top })
    }

    /// The directory.
    pub(crate) fn top(&self) -> &Path {
        &self.top
    }

    /// Something in it.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.top.join(name)
    }

    /// Something on the disk.
    pub(crate) fn on_disk(&self, name: &str) -> PathBuf {
        self.top.join("disk").join(name)
    }

    /// Where the logs are.
    pub(crate) fn logs(&self) -> PathBuf {
        self.top.join("log")
    }

    /// The log of a daemon.
    pub(crate) fn log(&self, daemon: &str) -> PathBuf {
        self.logs().join(format!("{daemon}.log"))
    }

    /// The kubeconfig of a user.
    pub(crate) fn kubeconfig(&self, who: &str) -> PathBuf {
        self.top.join("keys").join(format!("{who}.kubeconfig"))
    }

    /// Notes something for the process that ends the node.
    pub(crate) fn note(&self, name: &str, what: &impl Serialize) -> Result<()> {
        let path = self.top.join(format!("{name}.json"));
        let text = serde_json::to_string(what).context("describing the node")?;
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// Reads what was noted; `None` if nothing was.
    pub(crate) fn noted<T: for<'a> Deserialize<'a>>(&self, name: &str) -> Result<Option<T>> {
        let path = self.top.join(format!("{name}.json"));
        let Ok(text) = fs::read(&path) else { return Ok(None) };
        serde_json::from_slice(&text).with_context(|| format!("reading {}", path.display()))
    }

    /// Makes the disk and shows kubelet's part of it where kubelet's root directory is. That mount is
    /// shared, as mounts that containers make in it must reach the host.
    pub(crate) fn mount_disk(&self) -> Result<()> {
        let image = fs::File::create(IMAGE).with_context(|| format!("creating {IMAGE}"))?;
        image.set_len(DISK_SIZE).with_context(|| format!("sizing {IMAGE}"))?;
        let mut make = Command::new("/sbin/mkfs.ext4");
        process::output(make.args(["-q", "-F", "-N", "4000000", IMAGE]))?;
        let disk = self.top.join("disk");
        fs::create_dir_all(&disk).with_context(|| format!("creating {}", disk.display()))?;
        process::output(Command::new("/bin/mount").args(["-o", "loop", IMAGE]).arg(&disk))?;
        let part = self.on_disk("kubelet");
        for folder in [&part, Path::new(KUBELET_ROOT)] {
            fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        }
        let none = None::<&str>;
        mount(Some(&part), KUBELET_ROOT, none, MsFlags::MS_BIND, none)
            .with_context(|| format!("mounting {KUBELET_ROOT}"))?;
        mount(none, KUBELET_ROOT, none, MsFlags::MS_SHARED | MsFlags::MS_REC, none)
            .with_context(|| format!("sharing {KUBELET_ROOT}"))
    }

    /// Unmounts all that is left in it. Detaches, since what made a test is not to outlive it.
    pub(crate) fn unmount(&self) -> Result<()> {
        let own = Process::myself().context("reading /proc/self")?;
        let mut points: Vec<PathBuf> = own
            .mountinfo()
            .context("reading mounts")?
            .0
            .into_iter()
            .map(|mount| mount.mount_point)
            .filter(|point| point.starts_with(&self.top) || point.starts_with(KUBELET_ROOT))
            .collect();
        points.sort();
        for point in points.iter().rev() {
            umount2(point, MntFlags::MNT_DETACH)
                .with_context(|| format!("unmounting {}", point.display()))?;
        }
        Ok(())
    }

    /// Removes all files.
    pub(crate) fn remove(&self) -> Result<()> {
        let ours = self.noted::<Noted>("outside")?.map(|noted| noted.ours).unwrap_or_default();
        for path in OUTSIDE.iter().map(PathBuf::from).filter(|path| ours.contains(path)) {
            match fs::symlink_metadata(&path) {
                Ok(there) if there.is_dir() => fs::remove_dir_all(&path),
                Ok(_) => fs::remove_file(&path),
                Err(_) => continue,
            }
            .with_context(|| format!("removing {}", path.display()))?;
        }
        if Path::new(IMAGE).exists() {
            fs::remove_file(IMAGE).with_context(|| format!("removing {IMAGE}"))?;
        }
        fs::remove_dir_all(&self.top).with_context(|| format!("removing {}", self.top.display()))
    }
}
