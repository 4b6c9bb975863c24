//! What in a tree has attributes that forbid its removal: the helper's side. A look with bounds, since a
//! volume may have millions of files.

use std::{
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, Statx, StatxAttributes, StatxFlags, openat, statx},
    io::Errno,
};

use super::{
    asked::Beneath,
    attributes::attribute_bits,
    seen_by::{Root, file_id},
};
use podstuck_confine::{alive::Occasion, role};
use podstuck_model::{object::Protected, path::JsonPath, query::FindProtected};

/// How long it may look.
const LOOKING: Duration = Duration::from_millis(700);
/// Most objects that are read.
const LOOKED_AT: u64 = 50_000;
/// Most objects that are named.
const NAMED: usize = 8;
const WANTED: StatxFlags = StatxFlags::TYPE.union(StatxFlags::INO);
/// Directories inside each other that are gone into.
const DEPTH: usize = 64;

impl Beneath for FindProtected {
    type Found = Protected;
    const IS_SHORT: bool = false;
    const OCCASION: Occasion = Occasion::Unknown;

    fn path(&self) -> (u32, &Path) {
        (self.pid, &self.directory)
    }

    fn read(&self) -> Result<Protected> {
        let Self { pid, directory: there } = self;
        let held = Root::of(*pid)?.directory(there);
        let held = held.with_context(|| format!("opening {}", there.display()))?;
        role::open_no_more_unseen();
        Look::at(&held, there).context("looking for attributes")
    }
}

struct Look {
    found: Protected,
    end: Instant,
}

impl Look {
    /// Reads the tree below a directory, whose path for the caller is `there`.
    fn at(here: impl AsFd, there: &Path) -> Result<Protected> {
        let found = Protected { complete: true, ..Protected::default() };
        let mut look = Self { found, end: Instant::now() + LOOKING };
        let top = directory(here, b".").with_context(|| format!("opening {}", there.display()))?;
        let stat = statx(&top, "", AtFlags::EMPTY_PATH, WANTED)?;
        look.note(&stat, || there.to_owned());
        look.below(top, there, 0);
        Ok(look.found)
    }

    /// `false` when it is enough.
    fn below(&mut self, open: OwnedFd, path: &Path, depth: usize) -> bool {
        let (Ok(mut names), true) = (Dir::read_from(&open), depth < DEPTH) else {
            self.found.complete = false;
            return true;
        };
        loop {
            let entry = match names.next() {
                Some(Ok(entry)) => entry,
                Some(Err(_)) => {
                    self.found.complete = false;
                    return true;
                }
                None => return true,
            };
            let name = entry.file_name();
            if [&b"."[..], b".."].contains(&name.to_bytes()) {
                continue;
            }
            let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
            let stat = match statx(&open, name, flags, WANTED) {
                Ok(stat) => stat,
                // What vanishes meanwhile is being deleted: that is the point.
                Err(error) => {
                    self.found.complete &= error == Errno::NOENT;
                    continue;
                }
            };
            // What is mounted there is not what is removed.
            if stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
                continue;
            }
            let here = || path.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
            self.note(&stat, here);
            let is_enough = self.found.looked >= LOOKED_AT
                || self.found.objects.len() >= NAMED
                || (self.found.looked.is_multiple_of(256) && Instant::now() > self.end);
            if is_enough {
                self.found.complete = false;
                return false;
            }
            let is_directory = rustix::fs::FileType::from_raw_mode(stat.stx_mode.into()).is_dir();
            if !is_directory {
                continue;
            }
            match directory(&open, name.to_bytes()) {
                Ok(inner) => {
                    if !self.below(inner, &here(), depth + 1) {
                        return false;
                    }
                }
                Err(error) => self.found.complete &= error == Errno::NOENT,
            }
        }
    }

    fn note(&mut self, stat: &Statx, path: impl FnOnce() -> PathBuf) {
        self.found.looked += 1;
        let attributes = attribute_bits(stat);
        if attributes.immutable || attributes.append_only {
            self.found.objects.push((JsonPath(path()), attributes));
            self.found.files.push(file_id(stat));
        }
    }
}

fn directory(at: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt};

    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

    use super::*;

    /// Takes the attribute away again, also when the test fails.
    struct Immutable(fs::File);

    impl Immutable {
        fn new(path: &Path) -> Option<Self> {
            fs::write(path, "").unwrap();
            let file = fs::File::open(path).unwrap();
            let flags = ioctl_getflags(&file).ok()?;
            ioctl_setflags(&file, flags | IFlags::IMMUTABLE).ok()?;
            Some(Self(file))
        }
    }

    impl Drop for Immutable {
        fn drop(&mut self) {
            let _ = ioctl_setflags(&self.0, IFlags::empty());
        }
    }

    #[test]
    fn an_immutable_file_is_found_wherever_it_is() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("a/b")).unwrap();
        let there = Path::new("/k/v");
        let here = fs::File::open(top.path()).unwrap();
        let plain = Look::at(&here, there).unwrap();
        assert_eq!((plain.looked, plain.complete, plain.objects.len()), (3, true, 0));
        let Some(_file) = Immutable::new(&top.path().join("a/b/f")) else {
            podstuck_testing::skip("the attribute cannot be set here");
            return;
        };
        let found = Look::at(&here, there).unwrap();
        assert_eq!((found.looked, found.complete), (4, true));
        let (path, attributes) = &found.objects[0];
        assert_eq!(path.0, Path::new("/k/v/a/b/f"));
        let inode = fs::metadata(top.path().join("a/b/f")).unwrap().ino();
        assert_eq!(found.files.iter().map(|file| file.inode).collect::<Vec<_>>(), [inode]);
        assert!(attributes.immutable && !attributes.append_only);
    }

    #[test]
    fn a_link_is_not_followed() {
        let top = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/proc", top.path().join("l")).unwrap();
        let here = fs::File::open(top.path()).unwrap();
        assert_eq!(Look::at(&here, Path::new("/v")).unwrap().looked, 2);
        let own = Root::of(std::process::id()).unwrap();
        assert!(own.directory(&top.path().join("l")).is_err());
    }
}
