//! How much is left in a tree.

mod budget;
mod estimate;
mod file_tree;
mod position;
mod stratum;
mod tree;

use std::{
    io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags, fstatfs, openat};
use serde::{Deserialize, Serialize};

use self::{
    budget::Budget,
    estimate::estimate,
    file_tree::{FileTree, size_of},
    position::FileSystem,
};
use super::{
    asked::{AsWhom, Asked, in_helper},
    seen_by::{Root, while_it_lives},
};
use podstuck_confine::role::Role;
use podstuck_confine::{
    alive::Occasion,
    helper::{Question, Share, Teller},
};
use podstuck_model::{
    degraded::Feed,
    query::{CountRemaining, NoAnswer},
    remaining::{Remaining, Sample},
};

/// How much is left, within a budget.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CountWithin {
    #[serde(flatten)]
    asked: CountRemaining,
    #[serde(default)]
    budget: Budget,
}

impl Asked for CountRemaining {
    async fn answer(self, share: Share, _: &AsWhom) -> Result<Remaining, NoAnswer> {
        in_helper(share, CountWithin { asked: self, budget: Budget::default() }).await
    }
}

impl Question for CountWithin {
    const FEEDS: Option<Feed> = Some(Feed::Objects);
    const OCCASION: Occasion = Occasion::Answered;
    const ROLE: Role = Role::HelperBeneath;
    type Step = ();
    type Part = ();
    type Answer = Remaining;

    fn enters(&self) -> Option<(u32, &Path)> {
        Some((self.asked.pid, &self.asked.directory))
    }

    fn answer(self, _: &mut Teller<(), ()>) -> Result<Remaining> {
        let CountRemaining { pid, directory } = &self.asked;
        while_it_lives(*pid, || remaining(&Root::of(*pid)?, directory, self.budget))
    }
}

fn remaining(root: &Root, directory: &Path, budget: Budget) -> Result<Remaining> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let held = match root.directory(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Remaining { complete: true, gone: true, ..Remaining::default() });
        }
        held => held,
    };
    let open = held
        .and_then(|held| Ok(openat(held, ".", flags, Mode::empty())?))
        .with_context(|| format!("opening {}", directory.display()))?;
    let (top, space) = (size_of(&open)?, fstatfs(&open)?);
    let mut tree = FileTree::new(open, budget)?;
    let found = estimate(&mut tree, PathBuf::new(), &mut budget.rng());
    let complete = found.complete && !tree.failed;
    let sample = Sample {
        entries: found.entries.round() as u64,
        error: found.error.round() as u64,
        directories: found.directories,
        levels: found.levels as u64,
        linked: tree.linked,
    };
    Ok(Remaining {
        seen: found.seen,
        complete,
        gone: false,
        nlink: top.stx_nlink.into(),
        size: top.stx_size,
        inodes_used: space.f_files.saturating_sub(space.f_ffree),
        is_ext: FileSystem::of_type(space.f_type) == FileSystem::Ext,
        sample: (!complete && !tree.failed).then_some(sample),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn own() -> Root {
        Root::of(std::process::id()).unwrap()
    }

    #[test]
    fn all_entries_of_a_small_tree_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        for i in 0..10 {
            fs::create_dir(dir.path().join(i.to_string())).unwrap();
            fs::write(dir.path().join(i.to_string()).join("f"), "").unwrap();
        }
        let Remaining { seen, complete, .. } =
            remaining(&own(), dir.path(), Budget::default()).unwrap();
        assert_eq!((seen, complete), (20, true));
    }

    #[test]
    fn a_missing_object_is_distinguished_from_an_unreadable_one() {
        let look = |path| remaining(&own(), Path::new(path), Budget::default());
        let gone = look("/nonexistent").unwrap();
        assert!(gone.gone && gone.complete && gone.seen == 0);
        let error = look("/proc/self/status").unwrap_err();
        assert!(format!("{error:#}").contains("/proc/self/status"), "{error:#}");
    }
}
