//! Directories and files beneath the root of a process: the helper's side.

use std::{
    ffi::OsString,
    fs,
    io::{self, Read},
    os::{linux::fs::MetadataExt, unix::ffi::OsStringExt},
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use rustix::fs::OFlags;

use super::seen_by::Root;
use podstuck_confine::way::{Base, Way};
use podstuck_model::object::FileId;

/// A directory that is opened again for each read, since its contents come and go.
#[derive(Clone)]
pub(super) struct Directory<'a> {
    pub(super) root: &'a Root,
    pub(super) path: PathBuf,
}

impl Directory<'_> {
    pub(super) fn join(&self, name: impl AsRef<Path>) -> Self {
        Self { path: self.path.join(name), ..*self }
    }

    /// Another name in the directory that this one is in.
    pub(super) fn beside(&self, name: &str) -> Self {
        Self { path: self.path.with_file_name(name), ..*self }
    }

    /// What is there, and not what it leads to if it is a link.
    pub(super) fn itself(&self) -> io::Result<fs::Metadata> {
        fs::metadata(self.root.open(&self.path, OFlags::NOFOLLOW)?.path())
    }

    pub(super) fn names(&self) -> io::Result<impl Iterator<Item = OsString> + use<>> {
        let held = self.root.open(&self.path, OFlags::DIRECTORY)?;
        Ok(fs::read_dir(held.path())?.flatten().map(|entry| entry.file_name()))
    }

    /// Where it leads, if it is a symbolic link.
    pub(super) fn leads_to(&self) -> Option<OsString> {
        let held = self.root.open(&self.path, OFlags::NOFOLLOW).ok()?;
        let target = rustix::fs::readlinkat(held, "", Vec::new()).ok()?;
        Some(OsString::from_vec(target.into_bytes()))
    }

    /// When an entry of it was made or removed last.
    pub(super) fn changed(&self) -> Option<Timestamp> {
        let metadata = self.itself().ok()?;
        let nanoseconds = i32::try_from(metadata.st_mtime_nsec()).ok()?;
        Timestamp::new(metadata.st_mtime(), nanoseconds).ok()
    }

    /// The first symbolic link on the way to it, and where the way leads; `None` without one.
    pub(super) fn link(&self) -> Option<(PathBuf, PathBuf)> {
        let (mut at, mut first) = (PathBuf::from("/"), None);
        let mut way = Way::of(&self.path);
        while let Some(name) = way.pop() {
            if name == ".." {
                at.pop();
                continue;
            }
            let next = at.join(name);
            let held = self.root.open(&next, OFlags::NOFOLLOW).ok()?;
            if !fs::metadata(held.path()).is_ok_and(|it| it.file_type().is_symlink()) {
                at = next;
                continue;
            }
            if matches!(way.follow(&held).ok()?, Base::Root) {
                at = PathBuf::from("/");
            }
            first.get_or_insert(next);
        }
        first.map(|link| (link, at))
    }

    pub(super) fn id(&self) -> Option<FileId> {
        let metadata = self.itself().ok()?;
        Some(FileId { device: metadata.st_dev(), inode: metadata.st_ino() })
    }

    /// Its text, if it is a regular file of at most `longest` bytes. An object of another type was not made by the writer
    /// of such files, and opening it may block.
    pub(super) fn contents(&self, longest: u64) -> io::Result<Contents> {
        let held = self.root.open(&self.path, OFlags::NOFOLLOW)?;
        let metadata = fs::metadata(held.path())?;
        if metadata.is_file() && metadata.st_size() <= longest {
            // It may grow, or have more than it says, as a FUSE server's.
            let mut text = Vec::new();
            fs::File::open(held.path())?.take(longest.saturating_add(1)).read_to_end(&mut text)?;
            let size = text.len() as u64;
            return Ok(if size <= longest {
                Contents::Text(text)
            } else {
                Contents::Other { size }
            });
        }
        Ok(Contents::Other { size: metadata.st_size() })
    }
}

/// What a file is found to be.
pub(super) enum Contents {
    /// With this in it.
    Text(Vec<u8>),
    /// Not a file, or too long.
    Other { size: u64 },
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_on_the_way_is_found_with_where_it_leads() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("data/kubelet/pods")).unwrap();
        symlink("data/../data", top.join("disk")).unwrap();
        symlink(top.join("disk/kubelet"), top.join("kubelet")).unwrap();
        symlink("loop", top.join("loop")).unwrap();
        let root = Root::of(std::process::id()).unwrap();
        let link = |path: &str| Directory { root: &root, path: top.join(path) }.link();
        let real = top.join("data/kubelet");
        assert_eq!(link("kubelet"), Some((top.join("kubelet"), real.clone())));
        assert_eq!(link("disk/kubelet/pods"), Some((top.join("disk"), real.join("pods"))));
        assert_eq!([link("data/kubelet"), link("loop"), link("none")], [None, None, None]);
    }

    #[test]
    fn a_file_is_not_read_beyond_what_it_may_have() {
        let top = tempfile::tempdir().unwrap();
        let root = Root::of(std::process::id()).unwrap();
        let read = |path: PathBuf| Directory { root: &root, path }.contents(5).unwrap();
        let file = top.path().join("file");
        fs::write(&file, "12345").unwrap();
        assert!(matches!(read(file.clone()), Contents::Text(text) if text == b"12345"));
        fs::write(&file, "123456").unwrap();
        assert!(matches!(read(file), Contents::Other { size: 6 }));
        // It says that it is empty, and has more than this.
        let status = "/proc/self/status".into();
        assert!(matches!(read(status), Contents::Other { size: 6 }));
    }
}
