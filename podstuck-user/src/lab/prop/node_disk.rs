//! The file system that kubelet's root is on: one of the lab's own, so that it can be spoilt.

use std::{
    fs::{self, File},
    io::{ErrorKind, Write},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use nix::mount::{MsFlags, mount};

use super::{Pod, Staged};
use crate::lab::{build, layout::kubelet_root};

const SIZE: &str = "size=4m";

/// Moves kubelet's root to a file system of its own. The volumes are not mounted yet.
pub(super) fn move_root(pod: &Pod) -> Result<()> {
    let (root, disk) = (kubelet_root(&pod.root), pod.root.join("disk"));
    build::make(&disk)?;
    mount(Some("podstuck-lab-disk"), &disk, Some("tmpfs"), MsFlags::empty(), Some(SIZE))
        .context("cannot mount a file system for kubelet's root")?;
    let copied = Command::new("cp").arg("-a").arg(root.join(".")).arg(&disk).status();
    ensure!(copied.context("cannot start `cp`")?.success(), "cannot copy kubelet's root");
    mount(Some(&disk), &root, None::<&str>, MsFlags::MS_MOVE, None::<&str>)
        .context("cannot move the file system to kubelet's root")
}

/// Writes until there is no room left.
pub(super) fn fill(pod: &Pod) -> Result<Staged> {
    let path = kubelet_root(&pod.root).join("core.1234");
    let mut file = File::create(&path).context("cannot create a large file")?;
    let part = vec![0; 64 << 10];
    loop {
        match file.write_all(&part) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => break,
            Err(error) => return Err(error).context("cannot fill the file system"),
        }
    }
    Ok(Box::new(()))
}

/// As the kernel does with `errors=remount-ro`.
pub(super) fn make_read_only(pod: &Pod) -> Result<Staged> {
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(None::<&str>, &kubelet_root(&pod.root), None::<&str>, flags, None::<&str>)
        .context("cannot make kubelet's file system read-only")?;
    ensure!(fs::create_dir(kubelet_root(&pod.root).join("x")).is_err(), "it is not read-only");
    Ok(Box::new(()))
}
