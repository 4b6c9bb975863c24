//! Freezes and thaws a file system.

use std::os::fd::AsFd;

use anyhow::{Context, Result};
use rustix::{
    io::Errno,
    ioctl::{IntegerSetter, ioctl, opcode},
};

/// `FIFREEZE` and `FITHAW` of include/uapi/linux/fs.h.
const FREEZE: rustix::ioctl::Opcode = opcode::read_write::<i32>(b'X', 119);
const THAW: rustix::ioctl::Opcode = opcode::read_write::<i32>(b'X', 120);

/// Freezes the file system of a file: all changes to it block.
pub(super) fn freeze(file: impl AsFd) -> Result<()> {
    // SAFETY: the call takes no argument, and the kernel ignores the one that is passed.
    let frozen = unsafe { ioctl(file, IntegerSetter::<FREEZE>::new_usize(0)) };
    frozen.context("cannot freeze the file system")
}

/// Thaws it. A file system that is not frozen is not an error.
pub(super) fn thaw(file: impl AsFd) -> Result<()> {
    // SAFETY: as in `freeze`.
    match unsafe { ioctl(file, IntegerSetter::<THAW>::new_usize(0)) } {
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(errno) => Err(errno).context("cannot thaw the file system"),
    }
}
