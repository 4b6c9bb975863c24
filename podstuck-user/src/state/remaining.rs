//! How much is left in a tree: the helper's side.

use std::{
    ffi::OsString,
    fs,
    os::{fd::AsFd, linux::fs::MetadataExt},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags, openat};
use serde::{Deserialize, Serialize};

use super::{
    helper::{Question, Teller},
    seen_by::{seen_by, while_it_lives},
};
use crate::model::object::Remaining;

/// How long the helper may count directory entries.
const COUNTING: Duration = Duration::from_millis(700);

/// How much is left in a tree.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CountRemaining {
    /// Whose mount namespace and root directory.
    pub(super) pid: u32,
    pub(super) directory: OsString,
}

impl Question for CountRemaining {
    type Step = ();
    type Part = ();
    type Answer = Remaining;

    fn answer(self, _: &mut Teller<(), ()>) -> Result<Remaining> {
        while_it_lives(self.pid, || remaining(&seen_by(self.pid, &self.directory)))
    }
}

fn remaining(directory: &Path) -> Result<Remaining> {
    const EXT_MAGIC: i64 = 0xef53;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let open = openat(rustix::fs::CWD, directory, flags, Mode::empty())
        .with_context(|| format!("opening {}", directory.display()))?;
    let metadata = fs::File::from(open.try_clone()?).metadata()?;
    let stat = rustix::fs::fstatfs(open.as_fd())?;
    let (seen, complete) = count_entries(directory, metadata.st_dev(), Instant::now() + COUNTING);
    Ok(Remaining {
        seen,
        complete,
        nlink: metadata.st_nlink(),
        size: metadata.st_size(),
        inodes_used: stat.f_files.saturating_sub(stat.f_ffree),
        is_ext: stat.f_type == EXT_MAGIC,
    })
}

/// Entries of a tree on one device, until the deadline.
fn count_entries(top: &Path, device: u64, deadline: Instant) -> (u64, bool) {
    let mut seen = 0;
    let mut todo = vec![top.to_path_buf()];
    while let Some(directory) = todo.pop() {
        let same = fs::symlink_metadata(&directory).is_ok_and(|m| m.st_dev() == device);
        // What vanishes meanwhile is being deleted: that is the point.
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        if !same {
            continue;
        }
        for entry in entries.flatten() {
            seen += 1;
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                todo.push(entry.path());
            }
            if seen % 256 == 0 && Instant::now() > deadline {
                return (seen, false);
            }
        }
    }
    (seen, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_entries_of_a_small_tree_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        for i in 0..10 {
            fs::create_dir(dir.path().join(i.to_string())).unwrap();
            fs::write(dir.path().join(i.to_string()).join("f"), "").unwrap();
        }
        let Remaining { seen, complete, .. } = remaining(dir.path()).unwrap();
        assert_eq!((seen, complete), (20, true));
    }

    #[test]
    fn what_is_gone_is_an_error_with_its_name() {
        let error = remaining(Path::new("/nonexistent")).unwrap_err();
        assert!(format!("{error:#}").contains("/nonexistent"));
    }
}
