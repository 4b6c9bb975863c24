//! The call counts of a real Go program, as recorded with strace.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
};

use serde_json::json;

use super::*;

static RUNNING: AtomicBool = AtomicBool::new(false);

fn counts(calls: &Calls) -> serde_json::Value {
    let mut table = serde_json::to_value(calls.tally.by_outcome()).unwrap();
    table.as_object_mut().unwrap().retain(|_, outcomes| outcomes != &json!({}));
    table
}

/// `t/{f1,a/b}`
fn small_tree() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("t");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::write(tree.join("f1"), "").unwrap();
    (directory, tree)
}

#[test]
fn remove_tries_a_file_first() {
    let (_directory, tree) = small_tree();
    let mut calls = Calls::new(None, &RUNNING);
    assert_eq!(remove(&mut calls, &tree.join("f1")), Ok(()));
    assert_eq!(remove(&mut calls, &tree.join("a/b")), Ok(()));
    assert_eq!(remove(&mut calls, &tree.join("missing")), Err(Errno::NOENT));
    assert_eq!(remove(&mut calls, &tree), Err(Errno::NOTEMPTY));
    let expected = json!({
        "unlinkat": {"ok": 1, "EISDIR": 2, "ENOENT": 1},
        "unlinkat+AT_REMOVEDIR": {"ok": 1, "ENOENT": 1, "ENOTEMPTY": 1},
    });
    assert_eq!(counts(&calls), expected);
}

#[test]
fn remove_all_makes_the_recorded_calls() {
    let (_directory, tree) = small_tree();
    let mut calls = Calls::new(None, &RUNNING);
    remove_all(&mut calls, &tree).unwrap();
    let expected = json!({
        "unlinkat": {"ok": 1, "EISDIR": 4},
        "unlinkat+AT_REMOVEDIR": {"ok": 3, "ENOTEMPTY": 1},
    });
    assert_eq!(counts(&calls), expected);
    assert!(!tree.exists());
}

#[test]
fn remove_all_of_nothing_is_done() {
    let (_directory, tree) = small_tree();
    let mut calls = Calls::new(None, &RUNNING);
    remove_all(&mut calls, &tree.join("missing")).unwrap();
    let expected = json!({"unlinkat": {"ENOENT": 1}, "unlinkat+AT_REMOVEDIR": {"ENOENT": 1}});
    assert_eq!(counts(&calls), expected);
}

#[test]
fn remove_all_reads_in_batches_and_follows_no_link() {
    let (directory, tree) = small_tree();
    for number in 0..2500 {
        fs::write(tree.join(format!("n{number}")), "").unwrap();
    }
    let outside = directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("keep"), "").unwrap();
    std::os::unix::fs::symlink(&outside, tree.join("link")).unwrap();
    let mut calls = Calls::new(None, &RUNNING);
    remove_all(&mut calls, &tree).unwrap();
    let expected = json!({
        "unlinkat": {"ok": 2502, "EISDIR": 4},
        "unlinkat+AT_REMOVEDIR": {"ok": 3, "ENOTEMPTY": 1},
    });
    assert_eq!(counts(&calls), expected);
    assert!(outside.join("keep").exists());
}

#[test]
fn nothing_more_is_deleted_after_a_stop() {
    let (_directory, tree) = small_tree();
    let stop = AtomicBool::new(false);
    let mut calls = Calls::new(None, &stop);
    stop.store(true, Ordering::Relaxed);
    assert!(matches!(remove_all(&mut calls, &tree), Err(Failure::Stopped)));
    assert!(tree.join("f1").exists());
}

#[test]
fn the_first_error_is_kept_with_its_whole_path() {
    let error = Failure::new("unlinkat", "f", Errno::PERM).below("d".as_ref());
    let text = error.below("/v/data".as_ref()).to_string();
    assert!(text.starts_with("unlinkat /v/data/d/f: "), "{text}");
}
