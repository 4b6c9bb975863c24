//! Deletions without a system call of their own.

use std::{
    ffi::CString,
    fs,
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use anyhow::{Context, Result, ensure};
use io_uring::{IoUring, Probe, opcode, types};
use nix::{
    errno::Errno,
    libc::{AT_FDCWD, AT_REMOVEDIR},
    unistd::{UnlinkatFlags, unlinkat},
};

use crate::{Tally, directory, note};

/// What to delete: directory, path and flags, as `unlinkat(2)` has them.
pub(crate) type Request<'a> = (RawFd, &'a Path, i32);

/// A ring that can delete.
pub(crate) struct Ring(IoUring);

impl Ring {
    /// `None` where this kernel's io_uring cannot delete.
    pub(crate) fn new() -> Result<Option<Self>> {
        let ring = match IoUring::new(16) {
            Ok(ring) => ring,
            // Not built in, or switched off.
            Err(error)
                if [Errno::ENOSYS, Errno::EPERM]
                    .map(|e| Some(e as i32))
                    .contains(&error.raw_os_error()) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error).context("setting io_uring up"),
        };
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).context("asking what io_uring can do")?;
        Ok(probe.is_supported(opcode::UnlinkAt::CODE).then_some(Self(ring)))
    }

    /// Hands the requests over at once, waits for all, and notes how they ended.
    pub(crate) fn delete(&mut self, tally: &mut Tally, requests: &[Request<'_>]) -> Result<()> {
        let paths = requests.iter().map(|(_, path, _)| CString::new(path.as_os_str().as_bytes()));
        let paths: Vec<CString> = paths.collect::<Result<_, _>>()?;
        for (number, ((dir, _, flags), path)) in requests.iter().zip(&paths).enumerate() {
            let request = opcode::UnlinkAt::new(types::Fd(*dir), path.as_ptr()).flags(*flags);
            let request = request.build().user_data(number as u64);
            // SAFETY: the paths live until all requests are completed below.
            unsafe { self.0.submission().push(&request) }.context("the ring is full")?;
        }
        self.0.submit_and_wait(requests.len())?;
        let mut completed = 0;
        for entry in self.0.completion() {
            completed += 1;
            let (_, _, flags) = requests
                .get(usize::try_from(entry.user_data())?)
                .context("an answer to no request")?;
            let call = if flags & AT_REMOVEDIR == 0 { "unlinkat" } else { "unlinkat+AT_REMOVEDIR" };
            let result = entry.result();
            note(tally, call, if result < 0 { Err(Errno::from_raw(-result)) } else { Ok(()) });
        }
        ensure!(completed == requests.len(), "not all requests were completed");
        Ok(())
    }
}

/// Deletes by io_uring in every way and with several outcomes, and by a call of its own between; what
/// is deleted is made before.
pub(crate) fn storm(tally: &mut Tally, ring: &mut Ring, dir: &Path) -> Result<()> {
    const FILES: [&str; 8] = ["f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7"];
    let at: OwnedFd = directory(dir)?;
    let fd = at.as_raw_fd();
    for file in FILES {
        fs::write(dir.join(file), "")?;
    }
    fs::write(dir.join("own"), "")?;
    fs::create_dir(dir.join("empty"))?;
    fs::create_dir(dir.join("full"))?;
    fs::write(dir.join("full/file"), "")?;
    let absolute = FILES.map(|file| dir.join(file));
    let each = FILES.iter().zip(&absolute).enumerate();
    // At once, so that several workers are busy with them.
    let files: Vec<Request<'_>> = each
        .map(
            |(i, (name, path))| {
                if i % 2 == 0 { (fd, Path::new(name), 0) } else { (AT_FDCWD, path.as_path(), 0) }
            },
        )
        .collect();
    ring.delete(tally, &files)?;
    note(tally, "unlinkat", unlinkat(&at, "own", UnlinkatFlags::NoRemoveDir));
    ring.delete(tally, &[(fd, Path::new("f0"), 0)])?;
    ring.delete(tally, &[(fd, Path::new("full"), AT_REMOVEDIR)])?;
    ring.delete(tally, &[(AT_FDCWD, &dir.join("full"), 0)])?;
    ring.delete(tally, &[(AT_FDCWD, &dir.join("empty"), AT_REMOVEDIR)])?;
    note(tally, "unlinkat", unlinkat(&at, "own", UnlinkatFlags::NoRemoveDir));
    Ok(())
}
