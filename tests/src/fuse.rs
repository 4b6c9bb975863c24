//! A FUSE mount without a mount helper.

use std::{
    fs::File,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
    time::SystemTime,
};

use anyhow::{Context, Result};
use fuser::{FileAttr, FileType, INodeNo};
use nix::mount::{MsFlags, mount as mount_on};

/// Mounts it here, of the kind `fuse.NAME`; what a server answers on.
///
/// # Errors
///
/// Fails without `/dev/fuse`, and where this process may not mount.
pub fn mount(point: &Path, name: &str) -> Result<OwnedFd> {
    let device = File::options().read(true).write(true).open("/dev/fuse").context("/dev/fuse")?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let kind = format!("fuse.{name}");
    mount_on(Some(name), point, Some(kind.as_str()), MsFlags::empty(), Some(options.as_str()))
        .with_context(|| format!("mounting on {}", point.display()))?;
    Ok(device.into())
}

/// What a file or a directory of root is, as of no time.
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
