//! Whether a path can be reached at all, such as that of a FUSE mount.

use std::{ffi::OsString, path::Path};

use anyhow::Result;
use nix::errno::Errno;
use rustix::fs::{OFlags, StatxFlags};
use serde::{Deserialize, Serialize};

use super::{
    asked::{AsWhom, Asked, from_proc, in_thread},
    fuse_servers::FindFuseServer,
    seen_by::Root,
};
use podstuck_confine::{
    helper::{Question, Share, Teller, ask},
    mount_point,
    role::Role,
};
use podstuck_model::{
    degraded::Feed,
    hung::{FuseServer, MountPoint},
    query::ReachFuseMounts,
};

/// FUSE mounts that are looked at for one query.
const MOUNTS_MAX: usize = 4;

impl Asked for ReachFuseMounts {
    async fn answer(self, share: Share, _: &AsWhom) -> Vec<(MountPoint, i32)> {
        let Self { pid, path } = self;
        let mounts = from_proc(move || mount_point::fuse_at(pid, &path)).await;
        let reach = move || {
            let looked = mounts.into_iter().flatten().take(MOUNTS_MAX).filter_map(|mount| {
                // One that does not answer is a call that hangs, and is found as such.
                let errno = ask(ReachPath { pid, path: mount.point.clone().into() }).ok()?;
                let is_dead = errno == Errno::ENOTCONN as i32;
                let search = || ask(FindFuseServer { connection: mount.minor });
                let fuse = is_dead.then(|| search().unwrap_or(FuseServer::NotShown));
                Some((MountPoint { fuse, ..mount }, errno))
            });
            looked.collect()
        };
        in_thread(share, reach).await.unwrap_or_default()
    }
}

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

/// Whether there is no such path in this mount namespace; false where it does not answer.
pub fn is_missing(path: &Path) -> bool {
    ask(ReachPath { pid: std::process::id(), path: path.into() }).ok() == Some(nix::libc::ENOENT)
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
