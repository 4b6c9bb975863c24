//! Whether a path can be reached at all: the helper's side.

use std::{ffi::OsString, path::Path};

use anyhow::Result;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use serde::{Deserialize, Serialize};

use super::helper::{Question, Teller};

/// Whether a path, as a process sees it, can be reached. The answer is the errno, 0 if it can.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReachPath {
    pub(super) pid: u32,
    pub(super) path: OsString,
}

impl Question for ReachPath {
    type Step = ();
    type Part = ();
    type Answer = i32;

    fn answer(self, _: &mut Teller<(), ()>) -> Result<i32> {
        let path = Path::new(&self.path);
        let root = Path::new("/proc").join(self.pid.to_string()).join("root");
        let seen = root.join(path.strip_prefix("/").unwrap_or(path));
        let looked = statx(CWD, &seen, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS);
        Ok(looked.err().map_or(0, rustix::io::Errno::raw_os_error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_reached_or_not() {
        let reach = |path: &str| {
            ReachPath { pid: std::process::id(), path: path.into() }.answer(&mut Teller::new())
        };
        assert_eq!(reach("/proc").unwrap(), 0);
        assert_eq!(reach("/nonexistent").unwrap(), nix::libc::ENOENT);
    }
}
