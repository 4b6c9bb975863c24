//! Reads files that only root can have written or replaced, in the helper process. Settings of daemons and credentials
//! for servers are read only from such files: a process that can write one of them, or a directory on the way to it, would
//! have this tool send a file of root's to a server of its own.
//!
//! The way is gone step by step, each directory held, with links resolved here. So what was examined is what is read. A
//! sticky directory is no exception: any process may create a missing file there.

use std::{
    ffi::OsStr,
    fs::File,
    io::Read,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags, openat, statx},
    io::Errno,
};

use crate::identity::trust::is_roots_alone;
use podstuck_confine::way::{Base, Way};
use podstuck_model::{
    mounts::{Device, Mounts},
    path::safe_path,
};

/// A configuration is a few kilobytes.
pub(super) const LONGEST: u64 = 1 << 20;

/// What is mounted where the files are.
pub(super) struct OnlyRoots<'a>(pub(super) Option<&'a Mounts>);

/// What a way has led to so far.
struct Held {
    file: OwnedFd,
    stat: Statx,
    path: PathBuf,
}

impl OnlyRoots<'_> {
    /// Reads a file of moderate size.
    ///
    /// # Errors
    /// Fails when it cannot be read, when it is not a file, and when another user than root could have written it;
    /// the error names the writable part of the path.
    pub(super) fn read(&self, path: &Path) -> Result<String> {
        let mut text = String::new();
        self.open(path)?.take(LONGEST).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Whether a directory is root's alone, as far as the way to it goes; one that is not there is.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn examine(&self, directory: &Path) -> Result<()> {
        match self.walk(directory) {
            Err(error) if is_missing(&error) => Ok(()),
            walked => walked.map(drop),
        }
    }

    fn open(&self, path: &Path) -> Result<File> {
        let (above, held) = self.walk(path)?;
        // Opening a pipe would wait.
        if FileType::from_raw_mode(held.stat.stx_mode.into()) != FileType::RegularFile {
            bail!("it is not a file");
        }
        let name = held.path.file_name().context("it is not a file")?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&above, name, flags, Mode::empty())?;
        let now = stat(&file)?;
        let id = |stat: &Statx| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        if id(&now) != id(&held.stat) {
            bail!("it was replaced meanwhile");
        }
        Ok(File::from(file))
    }

    /// What is there, and the directory that it is in.
    fn walk(&self, path: &Path) -> Result<(OwnedFd, Held)> {
        if !path.is_absolute() {
            bail!("it is not an absolute path");
        }
        let root = || self.step(None, OsStr::new("/"), PathBuf::from("/"));
        let mut way = Way::of(path);
        let mut above = vec![root()?];
        while let Some(name) = way.pop() {
            if name == ".." {
                if above.len() > 1 {
                    above.pop();
                }
                continue;
            }
            let at = above.last().context("it is not a file")?;
            let held = self.step(Some(&at.file), &name, at.path.join(&name))?;
            if FileType::from_raw_mode(held.stat.stx_mode.into()) != FileType::Symlink {
                above.push(held);
                continue;
            }
            match way.follow(&held.file) {
                Err(Errno::LOOP) => bail!("there are too many links on the way to it"),
                Err(error) => return Err(error.into()),
                Ok(Base::Root) => above.truncate(1),
                Ok(Base::Here) => {}
            }
        }
        let held = above.pop().context("it is not a file")?;
        let above = match above.pop() {
            Some(above) => above.file,
            None => root()?.file,
        };
        Ok((above, held))
    }

    /// The next one, if it is root's alone.
    fn step(&self, above: Option<&OwnedFd>, name: &OsStr, path: PathBuf) -> Result<Held> {
        let shown = || safe_path(&path).into_owned();
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match above {
            Some(above) => openat(above, name, flags, Mode::empty()),
            None => openat(CWD, name, flags, Mode::empty()),
        };
        let file = file.with_context(shown)?;
        let stat = stat(&file).with_context(shown)?;
        let (mode, owner) = (stat.stx_mode.into(), stat.stx_uid);
        // Every process may read a link, and none can change it.
        let is_link = FileType::from_raw_mode(mode) == FileType::Symlink;
        if !is_roots_alone(owner, if is_link { 0 } else { mode }) {
            bail!("{} is not root's alone (owner {owner}, mode {:o})", shown(), mode & 0o7777);
        }
        let device = Device { major: stat.stx_dev_major, minor: stat.stx_dev_minor };
        let mounts = self.0.context("what is mounted there is not known")?;
        if mounts.all.iter().any(|mount| mount.device == device && mount.is_a_users()) {
            bail!(
                "{} is on a FUSE file system of a user, whose server may report any owner",
                shown()
            );
        }
        Ok(Held { file, stat, path })
    }
}

fn stat(file: &OwnedFd) -> rustix::io::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    let wanted = StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::UID | StatxFlags::INO;
    statx(file, c"", flags, wanted)
}

fn is_missing(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Errno>() == Some(&Errno::NOENT)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, chown, symlink},
    };

    use super::*;
    use crate::state::scratch::write;
    use podstuck_confine::proc;

    fn why(path: &Path) -> String {
        let mounts = proc::mounts(std::process::id());
        format!("{:#}", OnlyRoots(mounts.as_ref()).read(path).unwrap_err())
    }

    fn read(path: &Path) -> Result<String> {
        OnlyRoots(proc::mounts(std::process::id()).as_ref()).read(path)
    }

    #[test]
    fn only_what_root_alone_can_have_written_is_read() {
        if !rustix::process::getuid().is_root() {
            return podstuck_testing::skip("root is needed to make files of several owners");
        }
        let top = tempfile::tempdir_in("/run").unwrap();
        let at = |name: &str| top.path().join(name);
        write(at("a/b/config"), "text");
        assert_eq!(read(&at("a/b/config")).unwrap(), "text");
        // By relative and absolute links, as kubelet's current certificate, and by `..`.
        symlink("../b/config", at("a/b/relative")).unwrap();
        symlink(at("a/b/relative"), at("absolute")).unwrap();
        assert_eq!(read(&at("absolute")).unwrap(), "text");
        assert_eq!(read(&at("a/../a/b/config")).unwrap(), "text");
        symlink(at("ring"), at("ring")).unwrap();
        assert!(why(&at("ring")).contains("too many links"));
        assert!(
            why(&at("a/b")).contains("it is not a file") && why(&at("a/none")).contains("a/none")
        );
        assert!(OnlyRoots(None).read(&at("a/b/config")).is_err(), "the mounts are not known");

        let all = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        // Each part of the path may be another user's: the file, a directory, also a sticky one, and a link.
        for (path, mode) in [("a/b/config", 0o664), ("a/b", 0o777), ("a", 0o1777), ("a", 0o775)] {
            let before = fs::metadata(at(path)).unwrap().permissions();
            all(&at(path), mode);
            let said = why(&at("a/b/config"));
            assert!(
                said.contains(&format!("{} is not root's alone", at(path).display())),
                "{said}"
            );
            fs::set_permissions(at(path), before).unwrap();
        }
        chown(at("a/b/config"), Some(4242), None).unwrap();
        assert!(why(&at("absolute")).contains("owner 4242"));
        chown(at("a/b/config"), Some(0), None).unwrap();
        std::os::unix::fs::lchown(at("a/b/relative"), Some(4242), None).unwrap();
        assert!(why(&at("absolute")).contains("relative is not root's alone"));
        // The same under `/tmp`, where nothing is wrong but the place.
        let shared = tempfile::tempdir_in("/tmp").unwrap();
        write(shared.path().join("config"), "text");
        assert!(why(&shared.path().join("config")).contains("/tmp is not root's alone"));
    }

    #[test]
    fn a_users_fuse_says_what_it_likes() {
        if !rustix::process::getuid().is_root() {
            return podstuck_testing::skip("root is needed to make files of root's");
        }
        let top = tempfile::tempdir_in("/run").unwrap();
        write(top.path().join("config"), "text");
        let mut mounts = proc::mounts(std::process::id()).unwrap();
        let on = mounts.covering(top.path()).unwrap().id;
        let of = |user: u32, mounts: &mut Mounts| {
            let mount = mounts.all.iter_mut().find(|mount| mount.id == on).unwrap();
            mount.fs_type = "fuse.sshfs".into();
            mount.super_options = format!("rw,user_id={user},group_id=0");
        };
        of(1000, &mut mounts);
        let said =
            format!("{:#}", OnlyRoots(Some(&mounts)).read(&top.path().join("config")).unwrap_err());
        assert!(said.contains("FUSE file system of a user"), "{said}");
        of(0, &mut mounts);
        assert_eq!(OnlyRoots(Some(&mounts)).read(&top.path().join("config")).unwrap(), "text");
    }
}
