//! The lab's FUSE servers: one that never answers, and one with a file that is a disk image.

use std::{
    ffi::OsStr,
    fs::File,
    os::{fd::OwnedFd, unix::fs::FileExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite,
    ReplyXattr, Request, Session, SessionACL, WriteFlags,
};

use super::Task;
use crate::fuse::attributes;

/// Name of the disk's file.
pub(crate) const IMAGE: &str = "disk";
const IMAGE_INODE: u64 = 2;
/// Duration of each write on a slow disk.
const PER_WRITE: Duration = Duration::from_millis(800);
/// Time for which the kernel may cache the answers.
const TTL: Duration = Duration::from_secs(3600);

/// Serves requests until the connection ends.
pub(super) fn serve(task: Task, image: &Path, trigger: PathBuf, device: OwnedFd) -> Result<()> {
    let image =
        File::options().read(true).write(true).open(image).context("cannot open the disk image")?;
    let size = image.metadata()?.len();
    let server = Server { task, image, size, trigger };
    let session = Session::from_fd(server, device, SessionACL::All, Config::default())
        .context("the kernel does not speak to this FUSE server")?;
    session.run().context("serving FUSE")
}

struct Server {
    task: Task,
    image: File,
    size: u64,
    trigger: PathBuf,
}

/// Blocks forever: the process is killed from outside.
fn never() -> ! {
    loop {
        thread::park();
    }
}

impl Server {
    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let (kind, perm, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0o755, 0),
            _ => (FileType::RegularFile, 0o600, self.size),
        };
        attributes(inode, kind, perm, size)
    }
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if self.task == Task::Silent {
            never();
        }
        if name == IMAGE {
            reply.entry(&TTL, &self.attributes(INodeNo(IMAGE_INODE)), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if self.task == Task::Silent {
            never();
        }
        reply.attr(&TTL, &self.attributes(inode));
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.task == Task::Silent {
            never();
        }
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut data = vec![0; size as usize];
        match self.image.read_at(&mut data, offset) {
            Ok(length) => reply.data(&data[..length]),
            Err(error) => reply.error(error.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if self.trigger.exists() {
            match self.task {
                Task::Slow => thread::sleep(PER_WRITE),
                Task::Stops => never(),
                Task::Silent | Task::Thaw | Task::Listen | Task::Write | Task::Glance => {}
            }
        }
        match self.image.write_all_at(data, offset) {
            // A request is smaller than 4 GiB.
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error.into()),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }
}
