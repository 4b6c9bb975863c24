//! Processes that hang where they execute a program: the kernel closes what they had open, and the file system
//! that this lies on does not answer. Until it does, a process that reads their `/proc` entries waits.

use std::{
    convert::Infallible,
    ffi::OsStr,
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Write},
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Mutex,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, LockOwner,
    ReplyAttr, ReplyEmpty, ReplyEntry, Request, Session, SessionACL,
};
use podstuck_lab::fuse;

/// The only file.
const FILE: &str = "file";
/// What waits for an answer. One that is dropped is an answer.
static WAITING: Mutex<Vec<ReplyEmpty>> = Mutex::new(Vec::new());

/// Starts `count` of them, as `program`, each of which has deleted a file in its own pod's volume before. It takes a
/// mount namespace of its own.
pub(crate) fn all(point: &Path, volume: &Path, program: &Path, count: u64) -> Result<()> {
    serve(fuse::mount(point, "tenant")?);
    let start = |_| {
        let mut command = Command::new(program);
        command.arg("hang-one").args([&point.join(FILE), volume]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("starting one")
    };
    let mut all = (0..count).map(start).collect::<Result<Vec<Child>>>()?;
    for one in &mut all {
        let out = one.stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        if line != "ready\n" {
            bail!("it says {line:?}");
        }
    }
    for one in &mut all {
        one.stdin.take().context("no input")?.write_all(b"go\n")?;
    }
    while WAITING.lock().map_or(true, |waiting| (waiting.len() as u64) < count) {
        thread::sleep(Duration::from_millis(10));
    }
    println!("ready");
    io::stdout().flush()?;
    loop {
        thread::sleep(Duration::from_secs(600));
    }
}

/// One of them.
pub(crate) fn one(file: &Path, volume: &Path) -> Result<()> {
    // It is closed by the kernel, as every file that the standard library opens.
    let _open = File::open(file).context("opening the file that does not close")?;
    let own = volume.join(format!("of-{}", std::process::id()));
    fs::write(&own, "").and_then(|()| fs::remove_file(&own)).context("in the volume")?;
    println!("ready");
    io::stdout().flush()?;
    io::stdin().read_exact(&mut [0; 3])?;
    let error = Command::new("/proc/self/exe").arg("never").exec();
    Err(error).context("executing")
}

fn serve(device: OwnedFd) {
    thread::spawn(move || -> Result<Infallible> {
        let session = Session::from_fd(Server, device, SessionACL::All, Config::default())?;
        session.run()?;
        bail!("the connection is over")
    });
}

struct Server;

impl Server {
    fn attributes(inode: INodeNo) -> FileAttr {
        let (kind, perm) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0o755),
            _ => (FileType::RegularFile, 0o644),
        };
        fuse::attributes(inode, kind, perm, 0)
    }
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == FILE {
            reply.entry(&Duration::ZERO, &Self::attributes(INodeNo(2)), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::ZERO, &Self::attributes(inode));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        if let Ok(mut waiting) = WAITING.lock() {
            waiting.push(reply);
        }
    }
}
