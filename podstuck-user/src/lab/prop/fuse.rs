//! File systems whose server does not answer, or is gone.

use std::{fs::File, os::fd::OwnedFd, path::Path};

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};

use crate::lab::{
    build::make,
    keeper::{Keeper, KeeperArgs, Task},
};

/// Mounts a FUSE file system and gives the server's end of its connection.
pub(super) fn connect(point: &Path) -> Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    make(point)?;
    let device = File::options().read(true).write(true).open("/dev/fuse");
    let device = device.context("cannot open /dev/fuse: is the kernel's module loaded?")?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    mount(
        Some("podstuck-lab"),
        point,
        Some("fuse.podstuck-lab"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        Some(options.as_str()),
    )
    .with_context(|| format!("cannot mount FUSE on {}", point.display()))?;
    Ok(device.into())
}

/// A server that answers nothing.
pub(super) fn silent(point: &Path) -> Result<Keeper> {
    Keeper::start(&KeeperArgs::new(Task::Silent), connect(point)?)
}

/// A server that has ended: the kernel closes the connection with its last descriptor.
pub(super) fn dead(point: &Path) -> Result<()> {
    connect(point).map(drop)
}
