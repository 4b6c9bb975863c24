//! The system calls: mounting, unmounting, and unmounting in a mount namespace of its own.

use std::{
    env, fs,
    io::{self, BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    thread,
};

use nix::{
    errno::Errno,
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
};
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

const NONE: Option<&str> = None;

/// Whether something is mounted there; not, if nothing is there.
///
/// # Errors
///
/// When it cannot be asked, or the kernel does not say (before 5.8).
pub fn is_mounted(path: &Path) -> io::Result<bool> {
    let seen = match statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO) {
        Err(rustix::io::Errno::NOENT) => return Ok(false),
        seen => seen?,
    };
    if seen.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        Ok(seen.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
    } else {
        Err(io::Error::new(io::ErrorKind::Unsupported, "statx does not tell mount points"))
    }
}

/// Mounts a directory at another place, which is made if need be.
///
/// # Errors
///
/// What the system calls answer.
pub fn bind(source: &Path, target: &Path, read_only: bool) -> io::Result<()> {
    fs::create_dir_all(target)?;
    mount(Some(source), target, NONE, MsFlags::MS_BIND, NONE)?;
    if read_only {
        let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(NONE, target, NONE, flags, NONE)?;
    }
    Ok(())
}

/// Mounts a file system in memory, on a device number of its own.
///
/// # Errors
///
/// What the system calls answer.
pub fn memory(target: &Path, read_only: bool) -> io::Result<()> {
    fs::create_dir_all(target)?;
    let flags = if read_only { MsFlags::MS_RDONLY } else { MsFlags::empty() };
    mount(Some("tmpfs"), target, Some("tmpfs"), flags, Some("size=16m"))?;
    Ok(())
}

/// Starts a process that serves a file system there as long as it lives: `podstuck-fuse`, which lies beside this
/// program.
///
/// # Errors
///
/// When there is no such program, or it does not say that it is ready.
pub fn fuse(target: &Path) -> io::Result<()> {
    fs::create_dir_all(target)?;
    let program = env::current_exe()?.with_file_name("podstuck-fuse");
    let mut server =
        Command::new(program).arg(target).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut said = String::new();
    let output = server.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    BufReader::new(output).read_line(&mut said)?;
    if said == "ready\n" {
        Ok(())
    } else {
        let status = server.wait()?;
        Err(io::Error::other(format!("podstuck-fuse did not begin to serve: {status}")))
    }
}

/// Unmounts, as `umount` without options does.
///
/// # Errors
///
/// What the system call answers: `EINVAL` if nothing is mounted, `ENOENT` if nothing is there.
pub fn unmount(target: &Path) -> io::Result<()> {
    Ok(umount2(target, MntFlags::empty())?)
}

/// Unmounts in a mount namespace of its own, whose changes are not visible elsewhere and which is gone when
/// this returns.
///
/// The directory is not removed there: `rmdir` refuses only what is mounted in the caller's own
/// namespace, and takes the mounts of all others away with the directory (Linux `fs/namei.c`
/// `vfs_rmdir`: `is_local_mountpoint`, `detach_mounts`). That would cure what is to be shown.
///
/// # Errors
///
/// What the system calls answer, except that nothing is mounted.
pub fn unmount_elsewhere(target: &Path) -> io::Result<()> {
    // A thread that ends with the namespace: those of the runtime must not enter it.
    thread::scope(|scope| {
        scope.spawn(|| private_unmount(target)).join().unwrap_or(Err(Errno::ECHILD))
    })?;
    Ok(())
}

fn private_unmount(target: &Path) -> Result<(), Errno> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)?;
    match umount2(target, MntFlags::empty()) {
        Err(Errno::EINVAL | Errno::ENOENT) => Ok(()),
        result => result,
    }
}

/// Removes the directory that a volume was mounted on, if it is there.
///
/// # Errors
///
/// What the system call answers otherwise: `EBUSY` while something is mounted.
pub fn remove_directory(target: &Path) -> io::Result<()> {
    match fs::remove_dir(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
