//! What is in directories that name pods: those of their logs, and kubelet's own. The disk below may hang like any
//! other: a helper reads them, where their file system lives at all.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::identity::Listed;
use podstuck_confine::proc;
use podstuck_confine::{
    alive,
    helper::{Budget, Question, Teller, ask_each},
};
use podstuck_model::degraded::Feed;

/// Names of what is in these directories, one part for each.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ListDirectories {
    directories: Vec<OsString>,
}

impl Question for ListDirectories {
    const BUDGET: Budget = Budget::Names;
    type Step = OsString;
    type Part = Vec<String>;
    type Answer = ();

    fn answer(self, tell: &mut Teller<OsString, Vec<String>>) -> Result<()> {
        for directory in &self.directories {
            tell.at(directory)?;
            tell.part(&names_in(Path::new(directory)))?;
        }
        Ok(())
    }
}

/// Those that can be a pod's.
fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Lists directories. What one of them does not answer is not waited for by the others, and is missing in what is
/// made of them.
pub fn list(directories: &[PathBuf], feed: Feed) -> Listed {
    let table = proc::mounts(std::process::id());
    let looks = directories.iter().map(|path| (table.as_ref(), path.as_path()));
    let is_left_out = alive::left_out(feed, looks);
    let mut listed = Listed {
        counts: vec![0; directories.len()],
        is_all: !is_left_out.contains(&true),
        ..Listed::default()
    };
    let alive = directories.iter().zip(is_left_out).enumerate();
    let alive = alive.filter(|(_, (_, is_left_out))| !is_left_out);
    let alive: Vec<(usize, OsString)> = alive.map(|(at, (path, _))| (at, path.into())).collect();
    ask_each(
        alive,
        |(_, directory)| directory.clone(),
        |(_, directory)| (std::process::id(), directory.into()),
        |left| ListDirectories { directories: left.iter().map(|(_, path)| path.clone()).collect() },
        |(at, directory), names: Result<Vec<String>, _>| {
            let failed = names.as_ref().err().map(ToString::to_string);
            alive::looked(feed, Path::new(&directory), failed.as_deref());
            listed.is_all &= names.is_ok();
            let names = names.unwrap_or_default();
            if let Some(count) = listed.counts.get_mut(at) {
                *count = names.len();
            }
            listed.names.extend(names);
        },
    );
    listed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_listed_and_where_there_is_no_directory_there_are_none() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("shop_cart_x")).unwrap();
        assert_eq!(names_in(dir.path()), ["shop_cart_x"]);
        assert_eq!(names_in(&dir.path().join("none")), Vec::<String>::new());
    }
}
