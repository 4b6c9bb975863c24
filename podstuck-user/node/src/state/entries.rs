//! What is in a directory that does not become empty, and who uses it.

use std::{
    ffi::OsString,
    fs,
    os::linux::fs::MetadataExt,
    path::Path,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result};
use rustix::fs::{OFlags, StatxFlags};
use serde::{Deserialize, Serialize};

use super::{
    asked::{AsWhom, Asked, in_thread},
    holders::users_below,
    seen_by::{Root, file_id, while_it_lives},
};
use podstuck_confine::{
    alive::{self, Occasion},
    helper::{Question, Share, Teller, ask_in_parts},
    role::{self, Role},
};
use podstuck_model::{
    degraded::Feed,
    object::{Entries, Entry, User},
    query::{Contents, NoAnswer, ReadDirectory, ReadMounts},
};

/// Names that are listed. More are only counted.
const LISTED: usize = 64;
/// Entries that are looked at.
const COUNTED: u64 = 100_000;

/// What is in it. Before that it tells who uses something below it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReadEntries {
    #[serde(flatten)]
    asked: ReadDirectory,
    /// The directory is not to be entered.
    users_only: bool,
}

impl Asked for ReadDirectory {
    async fn answer(self, share: Share, whom: &AsWhom) -> Contents {
        let Self { pid, namespace, directory: path } = self.clone();
        let mounts =
            ReadMounts { pid, namespace, path, mount_id: 0 }.answer(share.clone(), whom).await;
        let looked = in_thread(share, move || look(self)).await;
        let (users, entries) = looked.unwrap_or_else(|error| (Vec::new(), Err(error)));
        Contents { mounts, entries, users }
    }
}

/// Who uses something below a directory, also when it does not answer; and what is in it.
fn look(asked: ReadDirectory) -> (Vec<User>, Result<Entries, NoAnswer>) {
    let mut users = Vec::new();
    let why_not = alive::why_not(asked.pid, &asked.directory, Occasion::Answered);
    let question = ReadEntries { asked, users_only: why_not.is_some() };
    let entries = ask_in_parts(question, |part| users = part).map_err(NoAnswer::from);
    (users, why_not.map_or(entries, |why| Err(NoAnswer::NotEntered(why))))
}

impl Question for ReadEntries {
    const FEEDS: Option<Feed> = Some(Feed::Objects);
    const ROLE: Role = Role::HelperBeneath;
    type Step = ();
    type Part = Vec<User>;
    type Answer = Entries;

    fn place(&self) -> OsString {
        self.asked.directory.clone().into()
    }

    fn answer(self, tell: &mut Teller<(), Vec<User>>) -> Result<Entries> {
        let Self { asked: ReadDirectory { pid, namespace, directory }, users_only } = &self;
        // From memory, and so even if the directory does not answer.
        tell.part(&users_below(*pid, *namespace, directory))?;
        if *users_only {
            return Ok(Entries::default());
        }
        while_it_lives(*pid, || {
            let held = Root::of(*pid)?.open(directory, OFlags::DIRECTORY);
            let held = held.with_context(|| format!("opening {}", directory.display()))?;
            // From here on nothing is opened by a name that others have chosen.
            role::open_no_more_unseen();
            let own = held.statx(StatxFlags::INO).ok().map(|stat| file_id(&stat));
            Ok(Entries { directory: own, ..entries(&held.path())? })
        })
    }
}

/// Reads a directory, and nothing below it.
fn entries(directory: &Path) -> Result<Entries> {
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
