//! Removes a tree as Go's `os.RemoveAll` does and stops in the middle of it, by a signal to itself, so
//! that what is left can be counted.

use std::{ffi::CStr, os::fd::OwnedFd, path::Path};

use anyhow::{Context, Result};
use nix::{
    errno::Errno,
    sys::signal::{Signal, raise},
    unistd::{UnlinkatFlags, unlinkat},
};

use crate::Done;
use crate::each::directory;
use crate::tree::{BATCH, batch, open_below};

/// Removes what is in a directory, and stops after `entries` entries.
pub(crate) fn remove_and_stop(dir: &Path, entries: u64) -> Result<Done> {
    let mut removal = Removal { until_stop: entries };
    removal
        .empty(&directory(dir)?)
        .with_context(|| format!("cannot remove what is in {}", dir.display()))?;
    Ok(Done::default())
}

struct Removal {
    until_stop: u64,
}

impl Removal {
    fn empty(&mut self, directory: &OwnedFd) -> nix::Result<()> {
        loop {
            let names = batch(directory)?;
            for name in &names {
                self.remove(directory, name)?;
            }
            if names.len() < BATCH {
                return Ok(());
            }
        }
    }

    fn remove(&mut self, parent: &OwnedFd, name: &CStr) -> nix::Result<()> {
        match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
            Err(Errno::EISDIR) => {
                self.empty(&open_below(parent, name)?)?;
                unlinkat(parent, name, UnlinkatFlags::RemoveDir)?;
            }
            result => result?,
        }
        self.until_stop = self.until_stop.wrapping_sub(1);
        if self.until_stop == 0 { raise(Signal::SIGSTOP) } else { Ok(()) }
    }
}
