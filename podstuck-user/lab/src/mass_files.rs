//! Fills a volume with a very large number of entries.
//!
//! On ext4, a second run within a few minutes is slow: the file system does not reuse recently deleted inodes and
//! searches for others each time.

use std::{
    fmt::Write,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{FileType, Mode, OFlags, mkdirat, mknodat, open, openat},
    io,
};

/// Default number of entries.
pub(super) const DEFAULT_ENTRIES: u32 = 300_000;
/// Every fifth entry is a directory; it contains the other four.
const FILES_PER_DIRECTORY: u32 = 4;
/// Default duration of the deletion, in seconds: long enough to observe.
const SECONDS_TO_WATCH: u32 = 18;

/// Default number of deletions per second.
pub(super) fn default_rate(entries: u32) -> u32 {
    (entries / SECONDS_TO_WATCH).max(1)
}

/// The number of directories among `entries` entries.
pub(super) fn directories(entries: u32) -> u32 {
    entries / (FILES_PER_DIRECTORY + 1)
}

/// Creates exactly `entries` entries, unless stopped. Shows a progress bar on a terminal.
pub(super) fn fill(directory: &Path, entries: u32, stop: &AtomicBool) -> Result<()> {
    let bar = ProgressBar::new(entries.into());
    if let Ok(style) = ProgressStyle::with_template("creating {wide_bar} {human_pos}/{human_len}") {
        bar.set_style(style);
    }
    let result = fill_counting(directory, entries, stop, &bar);
    bar.finish_and_clear();
    result.with_context(|| format!("cannot fill {}", directory.display()))
}

fn fill_counting(
    directory: &Path,
    entries: u32,
    stop: &AtomicBool,
    bar: &ProgressBar,
) -> io::Result<()> {
    let top = open(directory, DIRECTORY, Mode::empty())?;
    let mut name = String::new();
    for number in 0..directories(entries) {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        set_name(&mut name, "item", number);
        fill_item(&top, &name)?;
        bar.inc(u64::from(FILES_PER_DIRECTORY + 1));
    }
    for number in 0..entries % (FILES_PER_DIRECTORY + 1) {
        set_name(&mut name, "rest", number);
        touch(&top, &name)?;
    }
    Ok(())
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn fill_item(top: &OwnedFd, name: &str) -> io::Result<()> {
    mkdirat(top, name, Mode::from_raw_mode(0o755))?;
    let item = openat(top, name, DIRECTORY, Mode::empty())?;
    let mut part = String::new();
    (0..FILES_PER_DIRECTORY).try_for_each(|number| {
        set_name(&mut part, "part", number);
        touch(&item, &part)
    })
}

/// Creates a file with one call instead of open and close.
fn touch(directory: impl AsFd, name: &str) -> io::Result<()> {
    mknodat(directory, name, FileType::RegularFile, Mode::from_raw_mode(0o644), 0)
}

fn set_name(name: &mut String, kind: &str, number: u32) {
    name.clear();
    // Writing to a `String` cannot fail.
    let _ = write!(name, "{kind}-{number:06}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        fill(directory.path(), 103, &AtomicBool::new(false)).unwrap();
        let count = |path: &Path| std::fs::read_dir(path).unwrap().count();
        assert_eq!(count(directory.path()), 20 + 3);
        assert_eq!(count(&directory.path().join("item-000019")), 4);
    }
}
