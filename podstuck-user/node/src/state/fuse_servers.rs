//! Whether a process has the connection of a FUSE mount open: a server that lives may answer with any error, also with
//! the one that the kernel returns when there is no server.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use podstuck_confine::{
    helper::{Question, Teller},
    proc,
    role::Role,
    silent,
};
use podstuck_model::{degraded::Feed, hung::FuseServer};

/// Links of descriptors that are no files.
const NO_FILES: [&str; 3] = ["socket:", "pipe:", "anon_inode:"];

/// Finds the processes that have a connection open, by its number.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FindFuseServer {
    pub(super) connection: u32,
}

impl Question for FindFuseServer {
    const FEEDS: Option<Feed> = Some(Feed::Objects);
    const ROLE: Role = Role::Helper;
    type Step = ();
    type Part = ();
    type Answer = FuseServer;

    fn answer(self, _: &mut Teller<(), ()>) -> Result<FuseServer> {
        let mut found = FuseServer::Gone;
        for pid in proc::processes() {
            let process = PathBuf::from(format!("/proc/{pid}"));
            let all = silent::read(&process, |process| Some(connections(process)));
            for connection in all.unwrap_or_default() {
                match connection {
                    Some(number) if number == self.connection => return Ok(FuseServer::Lives(pid)),
                    Some(_) => {}
                    None => found = FuseServer::NotShown,
                }
            }
        }
        Ok(found)
    }
}

/// The FUSE connections that a process has open; `None` for one whose number the kernel does not show.
fn connections(process: &Path) -> Vec<Option<u32>> {
    let all = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    all.filter_map(|entry| {
        let link = fs::read_link(entry.path()).ok()?;
        if NO_FILES.iter().any(|kind| link.to_string_lossy().starts_with(kind)) {
            return None;
        }
        let info = fs::read_to_string(process.join("fdinfo").join(entry.file_name())).ok()?;
        let number = number(&info);
        let is_device = link.file_name().is_some_and(|name| name == "fuse");
        (number.is_some() || is_device).then_some(number)
    })
    .collect()
}

/// The line is there since Linux 6.16 (`fuse_dev_show_fdinfo`).
fn number(info: &str) -> Option<u32> {
    info.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_shows_whose_connection_it_is() {
        assert_eq!(number("pos:\t0\nmnt_id:\t24\nfuse_connection:\t39\n"), Some(39));
        assert_eq!(number("pos:\t0\nflags:\t02100002\n"), None);
    }

    #[test]
    fn what_no_process_has_open_has_no_server() {
        let asked = FindFuseServer { connection: u32::MAX };
        let found = asked.answer(&mut Teller::new()).unwrap();
        assert!(matches!(found, FuseServer::Gone | FuseServer::NotShown), "{found:?}");
    }
}
