//! The directory of a BPF file system (bpffs) below which podstuck pins what outlives it: the maps in `maps_LAYOUT`,
//! and in a directory `hooks_TURN` for each process the hooks of its probes.
//!
//! The kernel keeps pinned objects until their files are removed, so removing the files is all that uninstalling
//! takes, and needs no `bpf(2)`.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use podstuck_common::kept;
use rustix::fs::{OFlags, fstatfs, statfs};

/// `BPF_FS_MAGIC` of linux/magic.h
const BPF_FS: u32 = 0xcafe_4a11;
const MAPS: &str = "maps_";
const HOOKS: &str = "hooks_";
/// Pause between attempts to lock the directory.
const AGAIN: Duration = Duration::from_millis(100);

/// The locked directory. No other podstuck uses it until this process ends, in whatever way.
#[derive(Debug)]
pub struct Pins {
    top: PathBuf,
    _locked: File,
}

impl Pins {
    /// Opens the directory, creates it if it does not exist, and waits for as long as `patience` for a process that
    /// still uses it.
    ///
    /// # Errors
    /// Fails if it is on no BPF file system, if others may write to it, if there are names in it that podstuck does
    /// not use, and if another process uses it.
    pub fn open(top: &Path, patience: Duration) -> Result<Self> {
        let parent = top.parent().context("it has no parent directory")?;
        let of_parent = statfs(parent).with_context(|| format!("{}", parent.display()))?;
        if !is_bpf(of_parent.f_type) {
            bail!("{} is not a BPF file system", parent.display());
        }
        match make(top) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error).context("creating it");
            }
            _ => {}
        }
        Self::take(top, patience)
    }

    /// Opens the directory if it exists.
    ///
    /// # Errors
    /// Fails as [`Self::open`] does.
    pub fn open_existing(top: &Path, patience: Duration) -> Result<Option<Self>> {
        match fs::symlink_metadata(top) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            _ => Self::take(top, patience).map(Some),
        }
    }

    fn take(top: &Path, patience: Duration) -> Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(flags.bits().cast_signed());
        let opened = options.open(top).context("opening it")?;
        if !is_bpf(fstatfs(&opened)?.f_type) {
            bail!("it is not on a BPF file system");
        }
        let found = opened.metadata()?;
        let own = rustix::process::geteuid().as_raw();
        if found.uid() != own || found.mode() & 0o077 != 0 {
            bail!("others than user {own} may use it: remove it, or name another directory");
        }
        let begun = Instant::now();
        loop {
            match opened.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if begun.elapsed() < patience => thread::sleep(AGAIN),
                Err(TryLockError::WouldBlock) => bail!("another podstuck uses it"),
                Err(TryLockError::Error(error)) => return Err(error).context("locking it"),
            }
        }
        let pins = Self { top: top.to_owned(), _locked: opened };
        for name in names(top)? {
            if ![MAPS, HOOKS].iter().any(|start| name.starts_with(start)) {
                bail!("it has `{name}`, which podstuck has not created");
            }
        }
        Ok(pins)
    }

    /// The directory of the maps of this layout.
    pub fn maps(&self) -> PathBuf {
        self.top.join(format!("{MAPS}{}", kept::LAYOUT))
    }

    /// The directories of maps of other layouts.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn other_maps(&self) -> Result<Vec<PathBuf>> {
        let mut all = self.all(MAPS)?;
        all.retain(|path| *path != self.maps());
        Ok(all)
    }

    /// The directories of hooks.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn hooks(&self) -> Result<Vec<PathBuf>> {
        self.all(HOOKS)
    }

    /// Creates a directory of hooks.
    ///
    /// # Errors
    /// Fails if it exists or cannot be created.
    pub fn new_hooks(&self, turn: u32) -> Result<PathBuf> {
        let path = self.top.join(format!("{HOOKS}{turn}"));
        make(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(path)
    }

    /// Creates the directory of the maps.
    ///
    /// # Errors
    /// Fails if it exists or cannot be created.
    pub fn new_maps(&self) -> Result<()> {
        let path = self.maps();
        make(&path).with_context(|| format!("creating {}", path.display()))
    }

    fn all(&self, start: &str) -> Result<Vec<PathBuf>> {
        let names = names(&self.top)?.into_iter().filter(|name| name.starts_with(start));
        Ok(names.map(|name| self.top.join(name)).collect())
    }

    /// Removes everything below the directory: the hooks first, so that no program runs without its tables.
    ///
    /// # Errors
    /// Fails if something cannot be removed.
    pub fn clear(&self) -> Result<()> {
        for directory in [self.all(HOOKS)?, self.all(MAPS)?].concat() {
            remove(&directory)?;
        }
        Ok(())
    }

    /// Removes everything, and the directory itself.
    ///
    /// # Errors
    /// Fails if something cannot be removed.
    pub fn remove(self) -> Result<()> {
        self.clear()?;
        fs::remove_dir(&self.top).with_context(|| format!("removing {}", self.top.display()))
    }
}

/// Removes a directory with the pins in it.
///
/// # Errors
/// Fails if something cannot be removed.
pub fn remove(directory: &Path) -> Result<()> {
    fs::remove_dir_all(directory).with_context(|| format!("removing {}", directory.display()))
}

fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

fn names(directory: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(directory).with_context(|| format!("{}", directory.display()))?;
    let name = |entry: io::Result<fs::DirEntry>| {
        anyhow::Ok(entry?.file_name().to_string_lossy().into_owned())
    };
    entries.map(name).collect()
}

// The C library's type of it depends on the architecture.
fn is_bpf(kind: impl TryInto<i64>) -> bool {
    kind.try_into().is_ok_and(|kind| kind as u32 == BPF_FS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_another_file_system_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().join("podstuck");
        let why = Pins::open(&top, Duration::ZERO).unwrap_err().to_string();
        assert!(why.contains("is not a BPF file system") && !top.exists(), "{why}");
        assert!(Pins::open_existing(&top, Duration::ZERO).unwrap().is_none());
        assert!(Pins::open_existing(directory.path(), Duration::ZERO).is_err());
    }
}
