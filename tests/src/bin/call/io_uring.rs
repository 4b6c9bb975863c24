//! A deletion without a system call of its own.

use std::{ffi::CString, os::unix::ffi::OsStrExt, path::Path};

use anyhow::{Context, Result};
use io_uring::{IoUring, Probe, opcode, types};
use nix::errno::Errno;

/// Deletes a file; `false` where this kernel's io_uring cannot.
pub(crate) fn unlink(path: &Path) -> Result<bool> {
    let mut ring = match IoUring::new(2) {
        Ok(ring) => ring,
        // Not built in, or switched off.
        Err(error)
            if [Errno::ENOSYS, Errno::EPERM]
                .map(|e| Some(e as i32))
                .contains(&error.raw_os_error()) =>
        {
            return Ok(false);
        }
        Err(error) => return Err(error).context("setting io_uring up"),
    };
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).context("asking what io_uring can do")?;
    if !probe.is_supported(opcode::UnlinkAt::CODE) {
        return Ok(false);
    }
    let path = CString::new(path.as_os_str().as_bytes())?;
    let request = opcode::UnlinkAt::new(types::Fd(nix::libc::AT_FDCWD), path.as_ptr()).build();
    // SAFETY: the path lives until the request is completed below.
    unsafe { ring.submission().push(&request) }.context("the ring is full")?;
    ring.submit_and_wait(1)?;
    let completed = ring.completion().next().context("nothing was completed")?;
    match completed.result() {
        0 => Ok(true),
        result => Err(Errno::from_raw(-result)).context("unlinkat by io_uring"),
    }
}
