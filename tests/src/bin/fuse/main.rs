//! A FUSE server: its files are in its memory, for as long as it lives. Stopped, it acts as a disk that does not
//! answer, and killed, as one that fails. `podstuck-fuse MOUNT-POINT` says `ready` when it is mounted. To
//! remove a file whose name is `slow-MILLISECONDS` takes so long, and the other requests do not wait for it.
//!
//! Of a server that is stopped, the kernel takes a request back when the waiting process is killed. After SIGUSR1, and
//! when it has said `held`, it takes the next request and does not answer it before SIGUSR2: a process that waits for
//! that cannot be killed.

mod tree;

use std::{
    ffi::OsStr,
    io::{self, Write},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result};
use fuser::{
    BsdFileFlags, Config, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, SessionACL, TimeOrNow,
    WriteFlags,
};
use nix::sys::signal::{SigSet, Signal};
use podstuck_lab::fuse;
use tree::Tree;

/// Nothing that it said is cached for longer: each read of a file asks it.
const TTL: Duration = Duration::ZERO;

fn main() -> Result<()> {
    let point = std::env::args_os().nth(1).context("no mount point")?;
    let [hold, go_on] = [Signal::SIGUSR1, Signal::SIGUSR2].map(|signal| {
        let mut set = SigSet::empty();
        set.add(signal);
        set
    });
    // Before there is another thread, which else were ended by them.
    hold.thread_block()?;
    go_on.thread_block()?;
    let device = fuse::mount(Path::new(&point), "podstuck")?;
    let server = Server(Arc::default());
    let files = server.0.clone();
    thread::spawn(move || -> Result<()> {
        loop {
            hold.wait()?;
            let held = files.lock();
            println!("held");
            go_on.wait()?;
            drop(held);
        }
    });
    let session = Session::from_fd(server, device, SessionACL::All, Config::default())?;
    println!("ready");
    io::stdout().flush()?;
    Ok(session.run()?)
}

struct Server(Arc<Mutex<Tree>>);

impl Server {
    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One answer, or an error.
macro_rules! answer {
    ($reply:ident, $result:expr, $with:expr) => {
        match $result {
            Ok(value) => $with($reply, value),
            Err(error) => $reply.error(error),
        }
    };
}

fn entry(reply: ReplyEntry, of: FileAttr) {
    reply.entry(&TTL, &of, Generation(0));
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer!(reply, self.tree().find(parent, name), entry);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.tree().attributes(inode), |reply: ReplyAttr, of| reply.attr(&TTL, &of));
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changed = self.tree().change(inode, mode, size);
        answer!(reply, changed, |reply: ReplyAttr, of| reply.attr(&TTL, &of));
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        answer!(reply, self.tree().add(parent, name, FileType::Directory, mode), entry);
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let file = self.tree().add(parent, name, FileType::RegularFile, mode);
        answer!(reply, file, |reply: ReplyCreate, of| {
            reply.created(&TTL, &of, Generation(0), FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
        });
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Else opening a program takes its pages from the processes that run it.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let tree = self.tree();
        answer!(reply, tree.read(inode, offset, size), |reply: ReplyData, part| reply.data(part));
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.tree().write(inode, offset, data);
        answer!(reply, written, |reply: ReplyWrite, size| reply.written(size));
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let taken = self.tree().take(parent, name);
        let takes = name.to_str().and_then(|name| name.strip_prefix("slow-")?.parse().ok());
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(takes.unwrap_or(0)));
            answer!(reply, taken, |reply: ReplyEmpty, _| reply.ok());
        });
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        as_name: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let renamed = self.tree().rename((parent, name), (to, as_name));
        answer!(reply, renamed, |reply: ReplyEmpty, ()| reply.ok());
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let tree = self.tree();
        let names = match tree.names(inode) {
            Ok(names) => names,
            Err(error) => return reply.error(error),
        };
        for (next, (name, of)) in (1..).zip(names).skip(usize::try_from(offset).unwrap_or(0)) {
            if reply.add(of.ino, next, of.kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
