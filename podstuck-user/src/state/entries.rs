//! What is in a directory that does not become empty: the helper's side.

use std::{
    ffi::OsString,
    fs,
    os::linux::fs::MetadataExt,
    path::Path,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Names that are listed. More are only counted.
const LISTED: usize = 64;
/// Entries that are looked at.
const COUNTED: u64 = 100_000;

/// Something in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name.
    pub name: OsString,
    /// A directory.
    pub is_directory: bool,
    /// Time since its inode last changed, which is at least that since it was made.
    pub age: Duration,
}

/// What is in a directory, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entries {
    /// Some of them.
    pub listed: Vec<Entry>,
    /// How many there are; at most 100,000 are looked at.
    pub count: u64,
}

/// Reads a directory, and nothing below it.
pub(super) fn entries(directory: &Path) -> Result<Entries> {
    let read =
        fs::read_dir(directory).with_context(|| format!("opening {}", directory.display()))?;
    let now = SystemTime::now();
    let mut found = Entries::default();
    for entry in read {
        let entry = entry.with_context(|| format!("reading {}", directory.display()))?;
        found.count += 1;
        // The type comes with the name; `stat` of a mount point would ask what is mounted there.
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        // What vanishes meanwhile was there, and that is all there is to say.
        let Ok(metadata) = entry.metadata() else { continue };
        let changed = u64::try_from(metadata.st_ctime()).unwrap_or_default();
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(changed);
        let age = now.duration_since(changed).unwrap_or_default();
        found.listed.push(Entry { name: entry.file_name(), is_directory, age });
        if found.count >= COUNTED {
            break;
        }
    }
    found.listed.sort_by_key(|entry| entry.age);
    found.listed.truncate(LISTED);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_and_all_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(entries(dir.path()).unwrap(), Entries::default());
        for n in 0..100 {
            fs::write(dir.path().join(n.to_string()), "").unwrap();
        }
        fs::create_dir(dir.path().join("d")).unwrap();
        let found = entries(dir.path()).unwrap();
        assert_eq!((found.count, found.listed.len()), (101, LISTED));
        assert!(found.listed.iter().all(|entry| entry.age < Duration::from_secs(600)));
        assert!(entries(Path::new("/nonexistent")).is_err());
    }
}
