//! Whether a path can be reached at all: the helper's side.

use std::{ffi::OsString, path::Path};

use anyhow::Result;
use rustix::fs::{OFlags, StatxFlags};
use serde::{Deserialize, Serialize};

use super::seen_by::Root;
use podstuck_confine::helper::{Question, Teller};
use podstuck_confine::role::Role;
use podstuck_model::degraded::Feed;

/// Whether a path, as a process sees it, can be reached. The answer is the errno, 0 if it can.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReachPath {
    pub(super) pid: u32,
    pub(super) path: OsString,
}

impl Question for ReachPath {
    const FEEDS: Option<Feed> = Some(Feed::Objects);
    const ROLE: Role = Role::HelperBeneath;
    type Step = ();
    type Part = ();
    type Answer = i32;

    fn enters(&self) -> Option<(u32, &Path)> {
        Some((self.pid, self.path.as_ref()))
    }

    fn answer(self, _: &mut Teller<(), ()>) -> Result<i32> {
        let held =
            Root::of(self.pid).and_then(|root| root.open(Path::new(&self.path), OFlags::NOFOLLOW));
        let looked = held.and_then(|held| held.ask(StatxFlags::BASIC_STATS));
        Ok(looked.err().and_then(|error| error.raw_os_error()).unwrap_or_default())
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
