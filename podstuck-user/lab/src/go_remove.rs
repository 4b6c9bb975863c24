//! Go's `os.Remove` and `os.RemoveAll`, call for call. kubelet and the container runtimes delete with them, and their
//! call patterns determine what a tracer sees.
//!
//! Two of the patterns look like errors but are none: every directory is first unlinked as a file (`EISDIR`), and
//! every non-empty tree is first removed as an empty directory (`ENOTEMPTY`). A third one is dangerous: `RemoveAll`
//! descends into mounts in the tree.

use std::{
    borrow::Cow,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{CWD, Dir, Mode, OFlags, open, openat},
    io::Errno,
};

use super::calls::Calls;
use podstuck_engine::model::path::safe_path;

/// Why an object still exists.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The first call that failed.
    #[error("{call} {}: {errno}", safe_path(.path))]
    Call {
        /// `unlinkat`, `openfdat`, ...: Go's name of the call
        call: &'static str,
        /// The object.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// A failure that is not a system call's, in the words of kubelet's log.
    #[error("{0}")]
    Refused(Cow<'static, str>),
    /// Like `Refused`, but before the operation begins: kubelet logs no retry.
    #[error("{0}")]
    NotBegun(String),
    /// A container was killed but has not ended.
    #[error("StopContainer: DeadlineExceeded: it was killed, and runs")]
    Alive,
    /// The volume is still mounted, and kubelet expects another component to unmount it.
    #[error("waiting for volumes that are still mounted")]
    Waiting,
    /// The run ended before the removal did.
    #[error("stopped")]
    Stopped,
}

impl Failure {
    pub(super) fn new(call: &'static str, path: impl Into<PathBuf>, errno: Errno) -> Self {
        Self::Call { call, path: path.into(), errno }
    }

    /// The same failure, with the path relative to the parent directory.
    fn below(self, directory: &Path) -> Self {
        match self {
            Self::Call { call, path, errno } => {
                Self::Call { call, path: directory.join(path), errno }
            }
            Self::Refused(_) | Self::NotBegun(_) | Self::Alive | Self::Waiting | Self::Stopped => {
                self
            }
        }
    }
}

/// Number of names per read. After a full batch the directory is reopened, because deletions may move entries that
/// were not read yet.
const BATCH: usize = 1024;

/// `os.Remove`: as a file, then as an empty directory.
pub(super) fn remove(calls: &mut Calls, path: &Path) -> Result<(), Errno> {
    let Err(as_file) = calls.unlink(CWD, path) else { return Ok(()) };
    match calls.rmdir(CWD, path) {
        Ok(()) => Ok(()),
        Err(Errno::NOTDIR) => Err(as_file),
        Err(as_directory) => Err(as_directory),
    }
}

/// `os.RemoveAll`: returns the first error, continues with the siblings, and treats a missing path as success.
pub(super) fn remove_all(calls: &mut Calls, path: &Path) -> Result<(), Failure> {
    if is_gone(remove(calls, path)) {
        return Ok(());
    }
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Failure::new("unlinkat", path, Errno::INVAL));
    };
    match open(directory, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(parent) => remove_from(calls, &parent, name).map_err(|error| error.below(directory)),
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(Failure::new("open", directory, errno)),
    }
}

fn remove_from(calls: &mut Calls, parent: &OwnedFd, name: &OsStr) -> Result<(), Failure> {
    if calls.stopped() {
        return Err(Failure::Stopped);
    }
    let as_file = match calls.unlink(parent, name) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // The last two may be returned before the kernel checks whether the object is a directory.
        Err(errno @ (Errno::ISDIR | Errno::PERM | Errno::ACCESS)) => errno,
        Err(errno) => return Err(Failure::new("unlinkat", name, errno)),
    };
    let mut first_error = None;
    loop {
        let directory = match open_directory(parent, name) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return Err(Failure::new("unlinkat", name, as_file));
            }
            Err(errno) => {
                first_error.get_or_insert(Failure::new("openfdat", name, errno));
                break;
            }
        };
        let entries =
            Dir::read_from(&directory).map_err(|errno| Failure::new("readdirent", name, errno))?;
        if remove_entries(calls, &directory, entries, name, &mut first_error)? < BATCH {
            break;
        }
    }
    match calls.rmdir(parent, name) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(first_error.unwrap_or_else(|| Failure::new("unlinkat", name, errno))),
    }
}

/// Removes batches of entries until a batch has at least one success; returns the number of names in the last batch.
fn remove_entries(
    calls: &mut Calls,
    directory: &OwnedFd,
    mut entries: Dir,
    name: &OsStr,
    first_error: &mut Option<Failure>,
) -> Result<usize, Failure> {
    loop {
        let batch =
            read_batch(&mut entries).map_err(|errno| Failure::new("readdirent", name, errno))?;
        let mut errors = 0;
        for entry in &batch {
            match remove_from(calls, directory, entry.as_ref()) {
                Ok(()) => {}
                Err(Failure::Stopped) => return Err(Failure::Stopped),
                Err(error) => {
                    errors += 1;
                    first_error.get_or_insert(error.below(name.as_ref()));
                }
            }
        }
        if errors < BATCH {
            return Ok(batch.len());
        }
    }
}

fn open_directory(parent: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

fn read_batch(entries: &mut Dir) -> Result<Vec<Box<OsStr>>, Errno> {
    let mut batch = Vec::new();
    while batch.len() < BATCH {
        let Some(entry) = entries.read() else { break };
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            batch.push(OsStr::from_bytes(name).into());
        }
    }
    Ok(batch)
}

/// Whether the object no longer exists: it was removed or was already missing.
pub(super) fn is_gone(result: Result<(), Errno>) -> bool {
    matches!(result, Ok(()) | Err(Errno::NOENT))
}

#[cfg(test)]
#[path = "go_remove_tests.rs"]
mod tests;
