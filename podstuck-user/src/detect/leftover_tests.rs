use std::{sync::Arc, time::Duration};

use super::{super::sample::failed, *};
use crate::{
    model::identity::Volume,
    state::look::{Entries, Entry},
};

fn full(plugin: &str, object: &str, seconds: &[f64]) -> (Leftover, Vec<Case>) {
    let mut leftover = Leftover::default();
    let mut cases = Vec::new();
    for second in seconds {
        cases.extend(leftover.observe(&empty(plugin, object, *second), false));
    }
    (leftover, cases)
}

fn empty(plugin: &str, object: &str, second: f64) -> Operation {
    let mut op = failed(Call::UnlinkatDir, Errno::ENOTEMPTY, object, second);
    let target = Arc::make_mut(&mut op.target);
    target.volume = target.volume.take().map(|volume| Volume { plugin: plugin.into(), ..volume });
    op
}

fn entry(name: &str, age: u64) -> Entry {
    Entry { name: name.into(), is_directory: false, age: Duration::from_secs(age) }
}

fn conclude(leftover: &Leftover, case: &Case, listed: Vec<Entry>, users: &[User]) -> Option<Draft> {
    let count = listed.len() as u64;
    let entries = Ok(Answer::Entries(Entries { listed, count }));
    let mounts = Mounts::default();
    let seen = Seen { mounts: Some(&mounts), entries: &entries, users };
    leftover.conclude(case, &seen, &Umounts::default(), Monotonic(20_000_000_000))
}

#[test]
fn the_way_a_removal_begins_is_no_case() {
    assert!(full("kubernetes.io/empty-dir", "", &[1.0]).1.is_empty());
    assert_eq!(full("kubernetes.io/empty-dir", "", &[1.0, 1.6]).1.len(), 1);
}

#[test]
fn directories_that_failed_once_make_room() {
    let plugin = "kubernetes.io/projected";
    let (mut leftover, _) = full(plugin, "stays", &[1.0, 1.6]);
    for n in 0..3 * DIRECTORIES {
        leftover.observe(&empty(plugin, &format!("..{n}"), 2.0 + n as f64), false);
    }
    assert_eq!(leftover.directories.len(), DIRECTORIES);
    assert_eq!(leftover.observe(&empty(plugin, "stays", 9000.0), false).into_iter().count(), 1);
    let late = [9001.0, 9002.0].map(|s| leftover.observe(&empty(plugin, "later", s), false));
    assert!(late[1].is_some(), "found also when the table is full");
}

#[test]
fn the_deepest_directory_is_the_one() {
    let mut leftover = Leftover::default();
    let mut cases = Vec::new();
    for (object, second) in
        [("", 1.0), ("a/b", 1.3), ("a", 1.31), ("", 1.32), ("", 2.0), ("a/b", 2.4), ("a", 2.41)]
    {
        cases.extend(leftover.observe(&empty("kubernetes.io/empty-dir", object, second), false));
    }
    let paths: Vec<_> = cases.iter().map(|case| case.path.clone()).collect();
    assert_eq!(paths, [Path::new(super::super::sample::VOLUME).join("a/b")]);
}

#[test]
fn any_other_error_is_the_cause() {
    let mut leftover = Leftover::default();
    leftover.observe(&empty("kubernetes.io/empty-dir", "", 1.0), false);
    leftover.observe(&failed(Call::Unlinkat, Errno::EPERM, "f", 1.1), false);
    assert!(leftover.observe(&empty("kubernetes.io/empty-dir", "", 2.0), false).is_none());
}

#[test]
fn housekeeping_is_none_of_it() {
    let mut leftover = Leftover::default();
    for second in [1.0, 3.0, 5.0] {
        assert!(leftover.observe(&empty("kubernetes.io/csi", "", second), true).is_none());
    }
}

#[test]
fn what_comes_back_has_a_writer_who_is_named_if_he_is_found() {
    let (leftover, cases) = full("kubernetes.io/empty-dir", "d", &[10.0, 11.0]);
    let user = User { pid: 7, comm: "backup".into(), how: "a file open for writing", writes: true };
    let reader = User { pid: 8, comm: "tail".into(), how: "an open file", writes: false };
    let both = [user, reader.clone()];
    let draft = conclude(&leftover, &cases[0], vec![entry("new", 1)], &both).unwrap();
    assert!(draft.remedies.iter().any(|remedy| remedy.command == "kill 7"));
    assert_eq!(draft.id, "writer-still-alive");
    assert!(draft.evidence.iter().any(|e| e.fact.contains("backup (pid 7)")));
    let alone = conclude(&leftover, &cases[0], vec![entry("new", 1)], &[]).unwrap();
    assert!(alone.confidence < draft.confidence);
    let read = conclude(&leftover, &cases[0], vec![entry("new", 1)], &[reader]).unwrap();
    assert!(!read.remedies.iter().any(|remedy| remedy.command.contains("kill")));
    let old = conclude(&leftover, &cases[0], vec![entry("old", 3600)], &[]).unwrap();
    assert_eq!(old.id, "leftover-unexplained");
}

#[test]
fn data_below_a_mount_point_are_moved_and_not_deleted() {
    let (leftover, cases) = full("kubernetes.io/csi", "mount", &[10.0, 11.0]);
    let draft = conclude(&leftover, &cases[0], vec![entry("rows.dat", 3600)], &[]).unwrap();
    assert_eq!(draft.id, "data-under-mountpoint");
    assert!(draft.remedies[0].command.contains("mv "), "{}", draft.remedies[0].command);
    assert!(!draft.remedies.iter().any(|remedy| remedy.command.contains("rm ")));
}

#[test]
fn an_empty_directory_that_is_not_empty_is_the_file_systems() {
    let (leftover, cases) = full("kubernetes.io/csi", "mount", &[10.0, 11.0]);
    assert_eq!(conclude(&leftover, &cases[0], vec![], &[]).unwrap().id, "fs-phantom-entries");
}

#[test]
fn a_subpath_that_is_still_mounted_was_skipped() {
    let (leftover, cases) = full(crate::identity::classify::SUBPATH, "", &[10.0, 11.0]);
    let point = cases[0].path.join("0");
    let mount = crate::state::mounts::Mount {
        id: 5,
        point: point.clone(),
        root: "/data/sub".into(),
        ..Default::default()
    };
    let mounts = Mounts { all: vec![mount], ..Mounts::default() };
    let entries = Ok(Answer::Entries(Entries { listed: vec![entry("0", 9)], count: 1 }));
    let seen = Seen { mounts: Some(&mounts), entries: &entries, users: &[] };
    let mut umounts = Umounts::default();
    let now = Monotonic(20_000_000_000);
    let draft = leftover.conclude(&cases[0], &seen, &umounts, now).unwrap();
    assert_eq!(draft.id, "subpath-source-deleted");
    assert!(draft.remedies[0].command.ends_with("/0"));
    let mut tried = failed(Call::Umount2, Errno::EBUSY, "", 12.0);
    tried.path = point;
    umounts.note(&tried);
    assert!(leftover.conclude(&cases[0], &seen, &umounts, now).is_none(), "then it is busy");
}

#[test]
fn what_is_mounted_is_busy_and_not_full() {
    let (leftover, cases) = full("kubernetes.io/csi", "mount", &[10.0, 11.0]);
    let entries = Ok(Answer::Entries(Entries::default()));
    let seen = Seen { mounts: None, entries: &entries, users: &[] };
    let now = Monotonic(20_000_000_000);
    assert!(leftover.conclude(&cases[0], &seen, &Umounts::default(), now).is_none());
}
