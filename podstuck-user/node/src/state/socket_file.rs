//! Whether a path still names the file of the socket that a process bound to it. sock_diag(7) has the inode of that file
//! (`UNIX_DIAG_VFS`, Linux 3.3), which stays the same when the file is removed or another one takes its place.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, statfs};
use podstuck_confine::{
    helper::{Question, Share, Teller},
    proc,
    role::Role,
};
use podstuck_model::{
    path::in_run,
    query::{FindSocketPath, NoAnswer, SocketPath},
};

use super::{
    asked::{AsWhom, Asked, Helped, in_helper},
    sockets, unix_diag,
};

impl Asked for FindSocketPath {
    async fn answer(self, share: Share, _: &AsWhom) -> Result<SocketPath, NoAnswer> {
        in_helper(share, Helped(self)).await
    }
}

impl Question for Helped<FindSocketPath> {
    const ROLE: Role = Role::Helper;
    type Step = ();
    type Part = ();
    type Answer = SocketPath;

    fn answer(self, _: &mut Teller<(), ()>) -> Result<SocketPath> {
        let FindSocketPath { client, owner, path } = self.0;
        let path = in_run(&path);
        let bound = bound_to(owner, &path)?;
        let root = PathBuf::from(format!("/proc/{client}/root"));
        let place = root.join(path.strip_prefix("/").context("a relative path")?);
        let found = match fs::metadata(&place) {
            Ok(found) => found,
            Err(error) if is_missing(&error) => return Ok(SocketPath::Missing),
            Err(error) => return Err(error).context("stat of the path"),
        };
        // Its stat may have the inode of another layer.
        if statfs(&place).context("its file system")?.filesystem_type() == OVERLAYFS_SUPER_MAGIC {
            bail!("the path is on an overlay, whose inodes are not those of sock_diag");
        }
        // sock_diag has the lower half of the number.
        let is_own = u64::from(bound) == found.ino() & u64::from(u32::MAX);
        Ok(if is_own { SocketPath::Own } else { SocketPath::Other })
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The inode of the file that `bind` made for the socket on which a process listens.
fn bound_to(owner: u32, path: &Path) -> Result<u32> {
    let process = PathBuf::from(format!("/proc/{owner}"));
    let network = |process: &Path| proc::namespace(process, "net");
    if network(&process) != network(Path::new("/proc/self")) {
        bail!("pid {owner} is in another network namespace, or has ended");
    }
    let own = sockets::sockets_of(&process);
    let listening = sockets::table_for(&process).listening.into_iter();
    let mut its = listening.filter(|it| own.contains(&it.inode) && in_run(&it.path) == path);
    let number = its.next().context("it listens on no socket of this path")?.inode;
    let socket = unix_diag::all()?.into_iter().find(|it| it.inode == number);
    socket.and_then(|it| it.file).context("the kernel does not name the file of its socket")
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// kubernetes#129193, nydus-snapshotter#631: the daemon runs and listens, and no client reaches it.
    #[test]
    fn a_path_that_was_removed_or_taken_does_not_name_the_socket() {
        let directory = tempfile::tempdir().unwrap();
        let [path, other] = ["a.sock", "b.sock"].map(|name| directory.path().join(name));
        let _listener = UnixListener::bind(&path).unwrap();
        let pid = std::process::id();
        let asked = || {
            let asked = FindSocketPath { client: pid, owner: pid, path: path.clone() };
            Helped(asked).answer(&mut Teller::new())
        };
        match asked() {
            Ok(found) => assert_eq!(found, SocketPath::Own),
            Err(error) => return podstuck_testing::skip(format!("{error:#}")),
        }
        let _second = UnixListener::bind(&other).unwrap();
        fs::rename(&other, &path).unwrap();
        assert_eq!(asked().unwrap(), SocketPath::Other);
        fs::remove_file(&path).unwrap();
        assert_eq!(asked().unwrap(), SocketPath::Missing);
    }
}
