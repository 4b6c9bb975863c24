//! The mounts of a case, in a mount namespace that ends with the process that made it.

use std::path::Path;

use anyhow::{Context, Result};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

use super::{
    build,
    case::{Case, Driver, Kind, Volume},
    layout::{self, Pod},
    program,
};

/// Enters a new mount namespace. Later mounts do not propagate in either direction.
pub(super) fn enter() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context(
        "cannot make a mount namespace; the lab needs CAP_SYS_ADMIN and a seccomp profile that \
         allows unshare",
    )?;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>)
        .context("cannot make the mounts of the new namespace private")
}

/// Mounts the pod's volumes.
pub(super) fn mount_volumes(pod: &Pod, case: &Case) -> Result<()> {
    case.volumes.iter().try_for_each(|volume| mount_volume(pod, volume))
}

fn mount_volume(pod: &Pod, volume: &Volume) -> Result<()> {
    let target = pod.content(volume);
    match volume.kind {
        Kind::Files | Kind::Protected(_) | Kind::MassFiles | Kind::Mounted => Ok(()),
        Kind::ForeignMount => bind(&layout::foreign_data(&pod.root), &target.join("m")),
        Kind::Covered => {
            bind(&layout::foreign_data(&pod.root), &target)?;
            let read_only = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
            mount(None::<&str>, &target, None::<&str>, read_only, None::<&str>)
                .with_context(|| format!("cannot make {} read-only", target.display()))
        }
        Kind::Memory => {
            memory(&target)?;
            build::some_files(&target)
        }
        Kind::MemoryWithChild => {
            memory(&target)?;
            let child = target.join("scratch");
            build::make(&child)?;
            memory(&child)
        }
        Kind::SubPath => bind(&target.join("conf"), &pod.sub_path(volume).join("0")),
        Kind::Csi(driver) if !driver.has_mounted() => Ok(()),
        Kind::Disk => {
            let arguments = ["-o".as_ref(), "loop".as_ref()];
            let paths = [pod.image(volume), target.clone()];
            let paths = paths.iter().map(|path| path.as_os_str());
            program::run("mount", arguments.into_iter().chain(paths))?;
            build::some_files(&target)
        }
        Kind::Csi(driver) => {
            let backing = pod.backing(volume);
            bind(&backing, &target)?;
            if driver == Driver::PublishedTwice {
                bind(&backing, &target)?;
            }
            Ok(())
        }
    }
}

fn bind(source: &Path, target: &Path) -> Result<()> {
    mount(Some(source), target, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .with_context(|| format!("cannot bind {} to {}", source.display(), target.display()))
}

fn memory(target: &Path) -> Result<()> {
    mount(Some("tmpfs"), target, Some("tmpfs"), MsFlags::empty(), Some("size=1m"))
        .with_context(|| format!("cannot mount a tmpfs on {}", target.display()))
}
