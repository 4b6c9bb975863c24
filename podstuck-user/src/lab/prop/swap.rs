//! A swap file on a volume. It is switched off when the case is over; a lab that is killed by
//! SIGKILL leaves it on.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::Staged;
use crate::lab::tool;

const SIZE: usize = 1 << 20;

/// Makes the file and switches it on.
pub(super) fn stage(directory: &Path) -> Result<Staged> {
    let path = directory.join("swapfile");
    // No holes, which swap files must not have.
    fs::write(&path, vec![0; SIZE]).with_context(|| format!("cannot write {}", path.display()))?;
    tool::run("chmod", ["600".as_ref(), path.as_os_str()])?;
    tool::run("mkswap", [path.as_os_str()])?;
    tool::run("swapon", [path.as_os_str()])?;
    Ok(Box::new(Swap(path)))
}

struct Swap(PathBuf);

impl Drop for Swap {
    fn drop(&mut self) {
        if let Err(error) = tool::run("swapoff", [self.0.as_os_str()]) {
            crate::lab::note(&format!("podstuck lab: {error:#}"));
        }
    }
}
