//! Any number of threads whose removals hang: the FUSE file system that they are on is the tenant's own,
//! and does not answer.

use std::{
    convert::Infallible,
    ffi::OsStr,
    fs,
    io::{self, Write},
    path::Path,
    process::Command,
    sync::Mutex,
    thread::{self, Builder},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use fuser::{
    Config, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, ReplyAttr, ReplyEmpty,
    ReplyEntry, Request, Session, SessionACL,
};
use podstuck_lab::fuse;

/// What waits for an answer. One that is dropped is an answer.
static WAITING: Mutex<Vec<ReplyEmpty>> = Mutex::new(Vec::new());
/// A thread of these does next to nothing.
const STACK: usize = 64 << 10;

/// Starts `count` of them. It takes a mount namespace of its own.
pub(crate) fn hang(point: &Path, count: u64) -> Result<()> {
    let device = fuse::mount(point, "tenant")?;
    thread::spawn(move || -> Result<Infallible> {
        let session = Session::from_fd(Server, device, SessionACL::All, Config::default())?;
        session.run()?;
        bail!("the connection is over")
    });
    // Not by threads of this process: the file system ends with its server, and they keep what it has open.
    let mut command = Command::new("/proc/self/exe");
    command.arg("crowd-of-threads").arg(point).arg(count.to_string());
    command.spawn().context("starting them")?;
    while WAITING.lock().map_or(true, |waiting| (waiting.len() as u64) < count) {
        thread::sleep(Duration::from_millis(10));
    }
    println!("ready");
    io::stdout().flush()?;
    loop {
        thread::sleep(Duration::from_secs(600));
    }
}

/// The threads, each with a file of its own in a directory of its own.
pub(crate) fn threads(point: &Path, count: u64) -> Result<()> {
    for number in 0..count {
        let file = point.join(format!("d{number}")).join("f");
        let remove = move || fs::remove_file(file);
        Builder::new().stack_size(STACK).spawn(remove).context("starting one")?;
    }
    loop {
        thread::sleep(Duration::from_secs(600));
    }
}

struct Server;

impl Server {
    /// The root, directories with even numbers, and in each the file with the next one.
    fn attributes(inode: INodeNo) -> FileAttr {
        let is_directory = inode == INodeNo::ROOT || inode.0.is_multiple_of(2);
        let (kind, perm) = if is_directory {
            (FileType::Directory, 0o755)
        } else {
            (FileType::RegularFile, 0o644)
        };
        fuse::attributes(inode, kind, perm, 0)
    }
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_string_lossy();
        let number = name.strip_prefix('d').and_then(|number| number.parse::<u64>().ok());
        let inode = number.map_or(parent.0 + 1, |number| 2 * number + 2);
        let of = Self::attributes(INodeNo(inode));
        reply.entry(&Duration::from_secs(600), &of, Generation(0));
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::from_secs(600), &Self::attributes(inode));
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        if let Ok(mut waiting) = WAITING.lock() {
            waiting.push(reply);
        }
    }
}
