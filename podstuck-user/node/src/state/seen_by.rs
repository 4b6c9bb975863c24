//! Paths as another process sees them: the helper's side, since to follow one may wait for ever.
//!
//! Below `/proc/PID/root` an absolute link of a container would lead to the node's own files. So every path is
//! resolved with that directory as its root (`openat2(2)`, `RESOLVE_IN_ROOT`), and what was found is held.

use std::{
    ffi::OsString,
    fs, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Statx, StatxFlags, open, openat2, statx},
    io::Errno,
};

use podstuck_model::object::FileId;

/// A path as a process sees it, or as we do.
pub(super) type Place = (Option<u32>, OsString);

/// How often a path is resolved again after a rename on it (openat2(2), EAGAIN).
const ATTEMPTS: usize = 16;

/// The root directory of a process, held; our own if it has ended.
pub(super) struct Root(Option<OwnedFd>);

impl Root {
    /// That of a process.
    ///
    /// # Errors
    /// Fails when it may not be looked at.
    pub(super) fn of(pid: u32) -> io::Result<Self> {
        match Self::at(&root_of(pid)) {
            // One that was not waited for has a link to nothing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self(None)),
            root => root,
        }
    }

    /// That of a process as long as it lives, or any other directory.
    ///
    /// # Errors
    /// Fails when it is not there, or may not be looked at.
    pub(super) fn at(directory: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(Some(open(directory, flags, Mode::empty())?)))
    }

    /// That of a place.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub(super) fn of_place((pid, _): &Place) -> io::Result<Self> {
        pid.map_or(Ok(Self(None)), Self::of)
    }

    /// Holds what is at a path; nothing is read of it, nor waited for but on the way to it.
    ///
    /// # Errors
    /// Fails when it is not there, or the kernel is older than 5.6.
    pub(super) fn open(&self, path: &Path, flags: OFlags) -> io::Result<Seen> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | flags;
        let Some(root) = &self.0 else {
            return Ok(Seen(rustix::fs::openat(CWD, path, flags, Mode::empty())?));
        };
        let resolved = || within(root, path, flags, ResolveFlags::empty());
        let mut attempts = (1..ATTEMPTS).map(|_| resolved());
        let held = attempts.find(|result| !matches!(result, Err(Errno::AGAIN)));
        Ok(Seen(held.unwrap_or_else(resolved)?))
    }

    /// Holds a directory that the kernel finds without asking its disk or its server, so without waiting;
    /// `None` where it does not, and before Linux 5.12 (openat2(2), `RESOLVE_CACHED`).
    ///
    /// # Errors
    /// Fails when the kernel knows that it is not there.
    pub(super) fn directory_in_memory(&self, path: &Path) -> io::Result<Option<Seen>> {
        let Some(root) = &self.0 else { return Ok(None) };
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY;
        match within(root, path, flags, ResolveFlags::CACHED) {
            Ok(held) => Ok(Some(Seen(held))),
            Err(Errno::AGAIN | Errno::INVAL) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Holds a directory, and not what a link of that name leads to.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) fn directory(&self, path: &Path) -> io::Result<Seen> {
        self.open(path, OFlags::DIRECTORY | OFlags::NOFOLLOW)
    }
}

fn within(
    root: &OwnedFd,
    path: &Path,
    flags: OFlags,
    more: ResolveFlags,
) -> rustix::io::Result<OwnedFd> {
    let below = path.strip_prefix("/").unwrap_or(path);
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | more;
    openat2(root, below, flags, Mode::empty(), resolve)
}

/// What was found, whatever happens to its name.
pub(super) struct Seen(OwnedFd);

impl Seen {
    /// A path that leads to it, for this process.
    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }

    /// Its attributes by its file system, or by the server of that.
    ///
    /// # Errors
    /// Fails as the file system does.
    pub(super) fn ask(&self, wanted: StatxFlags) -> io::Result<Statx> {
        Ok(statx(&self.0, c"", AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT, wanted)?)
    }

    /// Its attributes that the kernel has in memory.
    ///
    /// # Errors
    /// Fails as its file system does.
    pub(super) fn statx(&self, wanted: StatxFlags) -> io::Result<Statx> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
        Ok(statx(&self.0, c"", flags, wanted)?)
    }
}

impl AsFd for Seen {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The path and its process, for the report that it hangs.
pub(super) fn shown((pid, path): &Place) -> OsString {
    let below = Path::new(path).strip_prefix("/").unwrap_or(Path::new(path));
    pid.map_or_else(|| path.clone(), |pid| root_of(pid).join(below).into())
}

/// By which `stat` knows it again.
pub(super) fn file_id(stat: &Statx) -> FileId {
    let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    FileId { device, inode: stat.stx_ino }
}

/// Looks, and looks again if the process ended meanwhile: a directory may just have seemed empty.
pub(super) fn while_it_lives<T>(pid: u32, look: impl Fn() -> T) -> T {
    let had_root = has_root(pid);
    let found = look();
    if had_root && !has_root(pid) { look() } else { found }
}

/// Followed, since that of a process which has ended and was not waited for is a link to nothing. One
/// that must not be followed is there.
fn has_root(pid: u32) -> bool {
    !fs::metadata(root_of(pid)).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn root_of(pid: u32) -> PathBuf {
    format!("/proc/{pid}/root").into()
}

#[cfg(test)]
#[path = "seen_by_tests.rs"]
mod tests;
