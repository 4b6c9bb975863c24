//! File systems on a disk that is a file: frozen ones, and ones whose disk is slow or stops.

use std::{
    fs::{self, File},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use super::fuse;
use crate::lab::{
    build::{make, some_files},
    freeze,
    keeper::{IMAGE, Keeper, KeeperArgs, Task},
    layout::Pod,
};

/// Enough for ext4 with its journal, and for what is to be written.
const SIZE: u64 = 64 << 20;
/// What is in memory only when the unmount begins.
const UNWRITTEN: usize = 16 << 20;

fn run(program: &str, arguments: &[&Path]) -> Result<()> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot run {program}: is it installed?"))?;
    if !output.status.success() {
        bail!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

fn image(pod: &Pod) -> Result<PathBuf> {
    let image = pod.root.join("disk.img");
    File::create(&image)?.set_len(SIZE)?;
    run("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), &image])?;
    Ok(image)
}

/// The loop device goes with the mount.
fn mount_loop(image: &Path, point: &Path) -> Result<()> {
    make(point)?;
    run("mount", &["-o".as_ref(), "loop".as_ref(), image, point])
}

/// Puts a volume's parent on an ext4 of its own, and freezes that. The mount must not be the
/// volume's own: that one could be unmounted.
pub(super) fn frozen(pod: &Pod, volume: &Path) -> Result<Frozen> {
    let parent = volume.parent().context("a volume without a parent")?;
    mount_loop(&image(pod)?, parent)?;
    make(volume)?;
    some_files(volume)?;
    let on = OwnedFd::from(File::open(parent)?);
    let keeper = Keeper::start(&KeeperArgs::new(Task::Thaw), on.try_clone()?)?;
    freeze::freeze(&on)?;
    Ok(Frozen { on, _keeper: keeper })
}

/// A frozen file system. Thawed when dropped, or by the keeper, whoever is first.
pub(super) struct Frozen {
    on: OwnedFd,
    _keeper: Keeper,
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if let Err(error) = freeze::thaw(&self.on) {
            crate::lab::note(&format!("{error:#}"));
        }
    }
}

/// Mounts on a volume an ext4 whose disk is served by a keeper, and leaves much of it unwritten.
pub(super) fn served(pod: &Pod, volume: &Path, task: Task) -> Result<Keeper> {
    let (image, told) = (image(pod)?, pod.root.join("disk-told"));
    let served = pod.root.join("disk-server");
    let keeper =
        Keeper::start(&KeeperArgs::disk(task, image, told.clone()), fuse::connect(&served)?)?;
    mount_loop(&served.join(IMAGE), volume)?;
    fs::write(volume.join("unwritten"), vec![0x55; UNWRITTEN])
        .with_context(|| format!("cannot write to {}", volume.display()))?;
    fs::write(&told, "").with_context(|| format!("cannot write {}", told.display()))?;
    Ok(keeper)
}
