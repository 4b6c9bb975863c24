//! A tree of files: what is opened and read of it, and what that may cost.

use std::{
    ffi::{CStr, OsStr, OsString},
    mem::{self, MaybeUninit},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    time::Instant,
};

use fastrand::Rng;
use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat, Statx, StatxFlags, fstatfs,
        openat2, statat, statx,
    },
    io::Errno,
};

use super::{
    Budget,
    position::{FileSystem, Reading},
    tree::{Listing, Shape, Tree},
};

/// Most subdirectories of one directory that are remembered; of more, this number at random.
const DIRECTORIES_MAX: usize = 200_000;
/// Files that are looked at for other names, one in each of the first directories with files.
const FILES_LOOKED_AT: u64 = 64;
/// Number of `stat` calls that cost as much as opening and reading one directory.
const LOOKS_PER_READING: f64 = 4.0;
/// Paths longer than this are opened piece by piece (`PATH_MAX` is 4096).
const PIECE: usize = 4000;

/// What lies below a directory, on the same mount. No link is followed.
pub(super) struct FileTree {
    top: OwnedFd,
    file_system: FileSystem,
    budget: Budget,
    started: Instant,
    directories: u64,
    looks: u64,
    entries: u64,
    files_looked_at: u64,
    flags: OFlags,
    /// For names as the kernel gives them; kept, since to make one for each directory takes longer than
    /// to read most.
    buffer: Vec<MaybeUninit<u8>>,
    rng: Rng,
    /// A file that was looked at has another name.
    pub(super) linked: bool,
    /// Something could be neither read nor known to be gone.
    pub(super) failed: bool,
}

impl FileTree {
    pub(super) fn new(top: OwnedFd, budget: Budget) -> rustix::io::Result<Self> {
        Ok(Self {
            file_system: FileSystem::of_type(fstatfs(&top)?.f_type),
            top,
            rng: budget.rng(),
            budget,
            started: Instant::now(),
            directories: 0,
            looks: 0,
            entries: 0,
            files_looked_at: 0,
            // To look must not write: the time of access is that.
            flags: OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOATIME,
            buffer: vec![MaybeUninit::uninit(); 32 << 10],
            linked: false,
            failed: false,
        })
    }

    fn open(&mut self, path: &Path) -> rustix::io::Result<OwnedFd> {
        match open_below(&self.top, path, self.flags) {
            // Only the owner and who may do anything may leave it as it is.
            Err(Errno::PERM) if self.flags.contains(OFlags::NOATIME) => {
                self.flags.remove(OFlags::NOATIME);
                open_below(&self.top, path, self.flags)
            }
            result => result,
        }
    }

    fn list(
        &mut self,
        path: &Path,
        buffer: &mut [MaybeUninit<u8>],
    ) -> rustix::io::Result<Listing<PathBuf>> {
        let directory = self.open(path)?;
        let size = size_of(&directory)?.stx_size;
        let spent_before = self.spent();
        let mut reading = Reading { read: 0, first: 0, last: 0, size };
        let (mut directories, mut count) = (Vec::<OsString>::new(), 0_u64);
        let mut is_whole = true;
        let mut entries = RawDir::new(&directory, buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            reading.last = entry.next_entry_cookie();
            if name == c"." || name == c".." {
                continue;
            }
            if reading.read == 0 {
                reading.first = reading.last;
            }
            reading.read += 1;
            self.entries += 1;
            if self.is_directory(&directory, name, entry.file_type()) {
                count += 1;
                let name = OsStr::from_bytes(name.to_bytes()).to_owned();
                // Of many, each has the same chance to be remembered (reservoir sampling).
                if directories.len() < DIRECTORIES_MAX {
                    directories.push(name);
                } else if let Some(one) = directories.get_mut(self.rng.u64(..count) as usize) {
                    *one = name;
                }
            }
            let spent =
                if reading.read.is_multiple_of(512) { self.spent() - spent_before } else { 0.0 };
            if reading.is_enough(self.file_system, spent) {
                is_whole = false;
                break;
            }
        }
        let known = if is_whole { None } else { reading.all(self.file_system) };
        self.failed |= !is_whole && known.is_none();
        let read = reading.read as f64;
        let (entries, error) = known.unwrap_or((read, 0.0));
        let each_stands_for = (count as f64 / directories.len().max(1) as f64).max(1.0)
            * (entries / read.max(1.0)).max(1.0);
        let directories = directories.iter().map(|name| path.join(name)).collect();
        Ok(Listing { seen: reading.read, entries, error, directories, each_stands_for })
    }

    /// Some file systems leave it to the inode what an entry is.
    fn is_directory(&mut self, directory: &OwnedFd, name: &CStr, kind: FileType) -> bool {
        let look = || statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
        match kind {
            FileType::Directory => true,
            FileType::Unknown => {
                self.looks += 1;
                let is = |stat: Stat| FileType::from_raw_mode(stat.st_mode).is_dir();
                look().is_ok_and(is)
            }
            _ => {
                if self.files_looked_at < FILES_LOOKED_AT.min(self.directories) {
                    self.files_looked_at += 1;
                    self.linked |= look().is_ok_and(|stat| stat.st_nlink > 1);
                }
                false
            }
        }
    }
}

impl Tree for FileTree {
    type Directory = PathBuf;

    fn read(&mut self, path: &PathBuf) -> Listing<PathBuf> {
        self.directories += 1;
        let mut buffer = mem::take(&mut self.buffer);
        let listing = self.list(path, &mut buffer);
        self.buffer = buffer;
        listing.unwrap_or_else(|errno| {
            // What vanishes meanwhile is being deleted: that is the point. A mount is not part of it.
            self.failed |=
                !matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV);
            Listing::empty()
        })
    }

    fn shape(&mut self, path: &PathBuf) -> Shape {
        self.looks += 1;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let looked = open_below(&self.top, path, flags).and_then(size_of);
        let Ok(stat) = looked else { return Shape { directories: Some(0), blocks: 0 } };
        // Itself and its parent name it, too; 1 where directories are not counted.
        let directories = u64::from(stat.stx_nlink).checked_sub(2);
        Shape { directories, blocks: stat.stx_size >> 12 }
    }

    fn spent(&self) -> f64 {
        let part = |used: f64, limit: u64| used / limit.max(1) as f64;
        let readings = self.directories as f64 + self.looks as f64 / LOOKS_PER_READING;
        part(self.started.elapsed().as_secs_f64() * 1e3, self.budget.milliseconds)
            .max(part(readings, self.budget.directories))
            .max(part(self.entries as f64, self.budget.entries))
    }

    fn is_over(&self) -> bool {
        self.spent() > Budget::HARD_END
    }
}

/// Links and size, of what is open.
pub(super) fn size_of(open: impl AsFd) -> rustix::io::Result<Statx> {
    statx(open, c"", AtFlags::EMPTY_PATH, StatxFlags::NLINK.union(StatxFlags::SIZE))
}

/// Opens what is below a directory, through no link and into no other mount.
fn open_below(top: &OwnedFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    const RESOLVE: ResolveFlags =
        ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);
    let open = |from: &OwnedFd, path: &Path, flags| {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        openat2(from, path, flags, Mode::empty(), RESOLVE)
    };
    if path.as_os_str().len() <= PIECE {
        return open(top, path, flags);
    }
    let (mut from, mut piece) = (None, PathBuf::new());
    for name in path {
        if piece.as_os_str().len() + name.len() > PIECE {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            from = Some(open(from.as_ref().unwrap_or(top), &piece, flags)?);
            piece.clear();
        }
        piece.push(name);
    }
    open(from.as_ref().unwrap_or(top), &piece, flags)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tree(path: &Path) -> FileTree {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::open(path, flags, Mode::empty()).unwrap();
        FileTree::new(top, Budget::default()).unwrap()
    }

    #[test]
    fn links_lead_nowhere_and_what_is_gone_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("real")).unwrap();
        fs::write(dir.path().join("real/file"), "").unwrap();
        fs::hard_link(dir.path().join("real/file"), dir.path().join("real/name")).unwrap();
        std::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
        let mut tree = tree(dir.path());
        let top = tree.read(&PathBuf::new());
        assert_eq!((top.seen, top.directories), (2, vec![PathBuf::from("real")]));
        assert_eq!(tree.read(&"link".into()).seen, 0);
        assert_eq!(tree.read(&"gone".into()).seen, 0);
        assert_eq!(tree.read(&"real".into()).seen, 2);
        assert!(tree.linked && !tree.failed);
    }

    #[test]
    fn a_path_may_be_longer_than_the_kernel_takes() {
        let dir = tempfile::tempdir().unwrap();
        let name = "n".repeat(250);
        let (mut path, mut at) = (
            PathBuf::new(),
            rustix::fs::open(dir.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap(),
        );
        for _ in 0..20 {
            rustix::fs::mkdirat(&at, &name, Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, &name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
                .unwrap();
            path.push(&name);
        }
        let above = path.parent().unwrap().to_path_buf();
        assert_eq!(tree(dir.path()).read(&above).directories, [path]);
    }
}
