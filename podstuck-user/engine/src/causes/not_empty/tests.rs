//! Tests of the verdicts about directories that are not empty.

use std::{path::Path, sync::Arc, time::Duration};

use crate::{
    causes::{
        not_empty::tracker::{DIRECTORIES, NotEmpty},
        orphan::Orphans,
    },
    model::{
        call::Call,
        errno::Errno,
        evidence::Certainty,
        identity::{Pod, SUBPATH, Volume},
        mounts::{Mount, Mounts},
        node::NodeSample,
        object::{Entries, Entry, User},
        operation::Operation,
        pod_group::{PodGroup, Task},
    },
    query::{Answer, Contents, Query},
    testing::{Alone, FILE, VOLUME, failed, holder_of, pod_group, task},
    tracker::Tracker,
    verdict::Draft,
};

fn full(plugin: &str, object: &str, seconds: &[f64]) -> (Alone<NotEmpty>, Vec<Query>) {
    let mut tracker = Alone::new();
    let mut queries = Vec::new();
    for second in seconds {
        queries.extend(tracker.ask(&empty(plugin, object, *second)));
    }
    (tracker, queries)
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

fn answer(mounts: Option<Mounts>, listed: Vec<Entry>, users: &[User]) -> Answer {
    let count = listed.len() as u64;
    let entries = Ok(Entries { listed, count, directory: Some(FILE) });
    Answer::Directory(Contents { mounts, entries, users: users.to_vec() })
}

fn conclude(
    tracker: &mut Alone<NotEmpty>,
    query: &Query,
    listed: Vec<Entry>,
    users: &[User],
) -> Option<Draft> {
    tracker.answer(query, answer(Some(Mounts::default()), listed, users))
}

#[test]
fn the_way_a_removal_begins_is_no_case() {
    assert!(full("kubernetes.io/empty-dir", "", &[1.0]).1.is_empty());
    assert_eq!(full("kubernetes.io/empty-dir", "", &[1.0, 1.6]).1.len(), 1);
}

#[test]
fn directories_that_failed_once_make_way() {
    let plugin = "kubernetes.io/projected";
    let (mut tracker, _) = full(plugin, "stays", &[1.0, 1.6]);
    for n in 0..3 * DIRECTORIES {
        tracker.ask(&empty(plugin, &format!("..{n}"), 2.0 + n as f64));
    }
    assert_eq!((tracker.tracker.once.len(), tracker.tracker.again.len()), (DIRECTORIES, 1));
    assert_eq!(tracker.tracker.dropped(), 0, "as a matter of course");
    assert_eq!(tracker.ask(&empty(plugin, "stays", 9000.0)).len(), 1);
    let late = [9001.0, 9002.0].map(|second| tracker.ask(&empty(plugin, "later", second)));
    assert_eq!(late[1].len(), 1, "found also when the table is full");
}

#[test]
fn the_deepest_directory_is_the_one() {
    let mut tracker = Alone::<NotEmpty>::new();
    let mut queries = Vec::new();
    for (object, second) in
        [("", 1.0), ("a/b", 1.3), ("a", 1.31), ("", 1.32), ("", 2.0), ("a/b", 2.4), ("a", 2.41)]
    {
        queries.extend(tracker.ask(&empty("kubernetes.io/empty-dir", object, second)));
    }
    let paths: Vec<_> = queries.iter().map(|query| query.path.clone()).collect();
    assert_eq!(paths, [Path::new(VOLUME).join("a/b")]);
}

#[test]
fn any_other_error_is_the_cause() {
    let mut tracker = Alone::<NotEmpty>::new();
    tracker.ask(&empty("kubernetes.io/empty-dir", "", 1.0));
    tracker.ask(&failed(Call::Unlinkat, Errno::EPERM, "f", 1.1));
    assert!(tracker.ask(&empty("kubernetes.io/empty-dir", "", 2.0)).is_empty());
}

#[test]
fn housekeeping_does_not_count() {
    let of_pod = |mut op: Operation| {
        Arc::make_mut(&mut op.target).pod =
            Some(Pod { uid: "u".into(), namespace: None, name: None });
        op
    };
    for is_housekeeping in [true, false] {
        let mut tracker = Alone::<NotEmpty>::new();
        let mut asked = 0;
        for second in [1.0, 3.0, 5.0] {
            let mut orphans = Alone::<Orphans>::new();
            let mut whole = of_pod(failed(Call::UnlinkatDir, Errno::ENOTEMPTY, "", second));
            whole.path = "/k/pods/u/volumes".into();
            if is_housekeeping {
                orphans.ask(&whole);
            }
            tracker.others = vec![Box::new(orphans.tracker)];
            asked += tracker.ask(&of_pod(empty("kubernetes.io/csi", "", second))).len();
        }
        assert_eq!(asked == 0, is_housekeeping, "{asked}");
    }
}

#[test]
fn entries_that_come_back_have_a_writer_that_is_named_if_found() {
    let (mut tracker, queries) = full("kubernetes.io/empty-dir", "d", &[10.0, 11.0]);
    let user = User {
        pid: 7,
        started: None,
        comm: "backup".into(),
        how: "a file open for writing".into(),
        writes: true,
    };
    let reader = User {
        pid: 8,
        started: None,
        comm: "tail".into(),
        how: "an open file".into(),
        writes: false,
    };
    let both = [user, reader.clone()];
    let draft = conclude(&mut tracker, &queries[0], vec![entry("new", 1)], &both).unwrap();
    assert!(draft.remedies.iter().any(|remedy| remedy.words() == "kill 7"));
    assert_eq!(draft.id(), "writer-still-alive");
    assert!(draft.evidence.iter().any(|e| e.fact.contains("backup (pid 7)")));
    let alone = conclude(&mut tracker, &queries[0], vec![entry("new", 1)], &[]).unwrap();
    assert_eq!((alone.certainty(), draft.certainty()), (Certainty::Likely, Certainty::Firm));
    let read = conclude(&mut tracker, &queries[0], vec![entry("new", 1)], &[reader]).unwrap();
    assert!(!read.remedies.iter().any(|remedy| remedy.words().contains("kill")));
    let old = conclude(&mut tracker, &queries[0], vec![entry("old", 3600)], &[]).unwrap();
    assert_eq!(old.id(), "leftover-unexplained");
}

/// kubernetes#114652: a process of the container outlives the volume, and makes its files again.
#[test]
fn what_a_living_process_of_the_pod_fills_again_is_emptied_after_its_end() {
    let finding = |tasks: Vec<Task>| {
        let of_pod = |op: &mut Operation| {
            let pod = Pod { uid: "u".into(), namespace: None, name: None };
            Arc::make_mut(&mut op.target).pod = Some(pod);
        };
        let mut tracker = Alone::new();
        let cgroups = vec![PodGroup { tasks, ..pod_group("u") }];
        tracker.sample = Some(NodeSample { cgroups, ..NodeSample::default() });
        let mut queries = Vec::new();
        for second in [10.0, 11.0] {
            let mut op = empty("kubernetes.io/csi", "mount", second);
            of_pod(&mut op);
            queries.extend(tracker.ask(&op));
        }
        conclude(&mut tracker, &queries[0], vec![entry("data", 3600)], &[]).unwrap()
    };
    let [shell, child] = [("sh", 7), ("sleep", 9)].map(|(comm, pid)| Task {
        started: pid.into(),
        group: "/k/pod/c".into(),
        ..task(comm, pid)
    });
    let pause = Task { group: "/k/pod/s".into(), ..task("pause", 5) };
    let draft = finding(vec![child, shell.clone(), pause.clone()]);
    draft.assert_is("data-under-mountpoint", Certainty::Likely);
    assert_eq!(holder_of(&draft.held_by), "sh (pid 7)");
    let all: Vec<&str> = draft.remedies.iter().map(|it| it.words()).collect();
    assert!(all.len() == 2 && all[0].ends_with("kill -9 7") && all[1].contains("mv "), "{all:?}");
    assert!(!draft.remedies[1].risk.contains("then succeeds"), "{:?}", draft.remedies[1]);
    let killed = Task { killed: true, ..shell };
    for ended in [vec![pause], vec![killed], Vec::new()] {
        finding(ended).assert_is("data-under-mountpoint", Certainty::Firm);
    }
}

#[test]
fn data_below_a_mount_point_are_moved_and_not_deleted() {
    let (mut tracker, queries) = full("kubernetes.io/csi", "mount", &[10.0, 11.0]);
    let draft = conclude(&mut tracker, &queries[0], vec![entry("rows.dat", 3600)], &[]).unwrap();
    assert_eq!(draft.id(), "data-under-mountpoint");
    assert!(draft.remedies[0].words().contains("mv "), "{}", draft.remedies[0].words());
    assert!(!draft.remedies.iter().any(|remedy| remedy.words().contains("rm ")));
}

#[test]
fn names_that_were_not_listed_may_be_anything() {
    for (count, is_ruled_out) in [(1, true), (2, false)] {
        let (mut tracker, queries) = full("kubernetes.io/csi", "", &[1.0, 1.6]);
        let entries = Entries { listed: vec![entry("a", 9)], count, directory: Some(FILE) };
        let (mounts, users) = (Some(Mounts::default()), Vec::new());
        let answer = Answer::Directory(Contents { mounts, entries: Ok(entries), users });
        let draft = tracker.answer(&queries[0], answer).unwrap();
        assert_eq!(draft.id(), "data-under-mountpoint");
        let names = draft.ruled_out.iter().any(|it| it.cause.as_str() == "nfs-silly-rename");
        assert_eq!(names, is_ruled_out);
    }
}

#[test]
fn an_empty_directory_that_is_not_empty_is_the_file_systems() {
    let (mut tracker, queries) = full("kubernetes.io/csi", "mount", &[10.0, 11.0]);
    assert_eq!(
        conclude(&mut tracker, &queries[0], vec![], &[]).unwrap().id(),
        "fs-phantom-entries"
    );
}

#[test]
fn a_subpath_that_is_still_mounted_was_skipped() {
    let (mut tracker, queries) = full(SUBPATH, "", &[10.0, 11.0]);
    let point = queries[0].path.join("0");
    let mount = Mount { id: 5, point: point.clone(), root: "/data/sub".into(), ..Mount::default() };
    let mounts = Mounts { all: vec![mount], ..Mounts::default() };
    let seen = answer(Some(mounts), vec![entry("0", 9)], &[]);
    let draft = tracker.answer(&queries[0], seen.clone()).unwrap();
    assert_eq!(draft.id(), "subpath-source-deleted");
    assert!(draft.remedies[0].words().ends_with("/0'"));
    let mut tried = failed(Call::Umount2, Errno::EBUSY, "", 12.0);
    tried.path = point;
    tracker.unmounts.note(&tried);
    assert!(tracker.answer(&queries[0], seen).is_none(), "then it is busy");
}

#[test]
fn a_mount_point_is_busy_and_not_full() {
    let (mut tracker, queries) = full("kubernetes.io/csi", "mount", &[10.0, 11.0]);
    let entries = Ok(Entries::default());
    let seen = Answer::Directory(Contents { mounts: None, entries, users: Vec::new() });
    assert!(tracker.answer(&queries[0], seen).is_none());
}
