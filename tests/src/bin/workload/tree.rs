//! Removes deep trees as Go's `os.RemoveAll` does, which kubelet and the runtimes delete with: each
//! entry is first tried as a file, and every step is relative to a directory's descriptor.

use std::{
    ffi::{CStr, CString},
    fs,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{OFlag, openat},
    sys::stat::{Mode, mkdirat},
    unistd::{UnlinkatFlags, syncfs, unlinkat},
};

use crate::Done;
use crate::count::{Call, Count};
use crate::each::{directory, make_file};

/// Directories in each other.
const DEPTH: u64 = 16;
/// In each directory, beside the directory below it.
const FILES: u64 = 49;
const ENTRIES: u64 = DEPTH * (FILES + 1);
/// Go reads this number of names at once, and opens the directory again after a full batch.
pub(crate) const BATCH: usize = 1024;

/// Makes trees with `entries` entries in all and removes them, a portion at a time.
pub(crate) fn remove_trees(dir: &Path, entries: u64, portion: u64) -> Result<Done> {
    let mut done = Done::default();
    let mut left = entries.div_ceil(ENTRIES);
    while left > 0 {
        let now = left.min(portion.div_ceil(ENTRIES));
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let top = directory(dir)?;
        for number in 0..now {
            make_tree(&top, &PathBuf::from(format!("tree-{number}")))?;
        }
        syncfs(&top).with_context(|| format!("cannot sync {}", dir.display()))?;
        done.time
            .time(|| remove_entries(&mut done.count, &top))?
            .with_context(|| format!("cannot remove what is in {}", dir.display()))?;
        left -= now;
    }
    Ok(done)
}

fn make_tree(top: &OwnedFd, name: &Path) -> Result<()> {
    let names: Vec<PathBuf> = (0..FILES).map(|i| format!("file-{i}").into()).collect();
    let mut parent = top.try_clone().context("cannot duplicate a descriptor")?;
    for level in 0..DEPTH {
        let name = if level == 0 { name } else { Path::new("directory") };
        mkdirat(&parent, name, Mode::S_IRWXU)
            .with_context(|| format!("cannot create the directory {}", name.display()))?;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        parent = openat(&parent, name, flags, Mode::empty())
            .with_context(|| format!("cannot open the directory {}", name.display()))?;
        for name in &names {
            make_file(&parent, name)?;
        }
    }
    Ok(())
}

/// `os.RemoveAll` of one entry.
fn remove(count: &mut Count, parent: &OwnedFd, name: &CStr) -> nix::Result<()> {
    match count.note(Call::Unlinkat, unlinkat(parent, name, UnlinkatFlags::NoRemoveDir)) {
        Err(Errno::EISDIR) => {}
        result => return result,
    }
    remove_entries(count, &open_below(parent, name)?)?;
    count.note(Call::UnlinkatRemoveDir, unlinkat(parent, name, UnlinkatFlags::RemoveDir))
}

fn remove_entries(count: &mut Count, directory: &OwnedFd) -> nix::Result<()> {
    loop {
        let names = batch(directory)?;
        for name in &names {
            remove(count, directory, name)?;
        }
        if names.len() < BATCH {
            return Ok(());
        }
    }
}

pub(crate) fn batch(directory: &OwnedFd) -> nix::Result<Vec<CString>> {
    // A descriptor of its own: reading moves the offset, and deleting may move what is unread.
    let mut dir = Dir::from_fd(open_below(directory, c".")?)?;
    let mut names = Vec::new();
    for entry in dir.iter() {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
        if names.len() == BATCH {
            break;
        }
    }
    Ok(names)
}

pub(crate) fn open_below(parent: &OwnedFd, name: &CStr) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}
