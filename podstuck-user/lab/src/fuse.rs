//! FUSE without a mount helper.

use std::{
    fs::File,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
    time::SystemTime,
};

use anyhow::{Context, Result};
use fuser::{FileAttr, FileType, INodeNo};
use nix::mount::{MsFlags, mount as mount_on};

/// Mounts a file system of type `fuse.NAME` and returns the server's end of its connection.
///
/// # Errors
///
/// Fails without `/dev/fuse`, and if this process may not mount.
pub fn mount(point: &Path, name: &str) -> Result<OwnedFd> {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    let device = device.context("cannot open /dev/fuse: is the kernel's module loaded?")?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let kind = format!("fuse.{name}");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount_on(Some(name), point, Some(kind.as_str()), flags, Some(options.as_str()))
        .with_context(|| format!("cannot mount FUSE on {}", point.display()))?;
    Ok(device.into())
}

/// The attributes of a file or directory of root, without times.
pub fn attributes(inode: INodeNo, kind: FileType, perm: u16, size: u64) -> FileAttr {
    let time = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: inode,
        size,
        blocks: size.div_ceil(512),
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind,
        perm,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}
