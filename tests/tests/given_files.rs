//! Files that are named to a command: one that has no end, or that waits for a writer, keeps none.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Output, Stdio},
};

use nix::{sys::stat::Mode, unistd::mkfifo};
use podstuck_tests::podstuck;

fn run(words: &[&str], file: &Path) -> Output {
    let mut command = Command::new(podstuck());
    // A process that waits for ever is ended, and has failed.
    command.args(words).arg(file).stdin(Stdio::null());
    let mut timed = Command::new("/usr/bin/timeout");
    timed.arg("60").arg(command.get_program()).args(command.get_args()).output().unwrap()
}

fn is_refused(words: &[&str], file: &Path, why: &str) {
    let output = run(words, file);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(why), "{words:?} {}: {said}", file.display());
    assert_eq!(output.status.code(), Some(2), "{words:?} {}: {said}", file.display());
}

#[test]
fn a_pipe_or_a_device_is_refused_by_every_command_that_reads_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    for words in
        [&["replay"][..], &["report"], &["compare", "/dev/null"], &["diagnose", "--pod-json"]]
    {
        is_refused(words, &pipe, "not a regular file");
        is_refused(words, Path::new("/dev/zero"), "not a regular file");
    }
}

#[test]
fn a_file_without_an_end_in_a_directory_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let findings = directory.path().join("findings.jsonl");
    File::create(&findings).unwrap().set_len(20 << 30).unwrap();
    is_refused(&["report"], directory.path(), "longer than");
    fs::remove_file(&findings).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &findings).unwrap();
    is_refused(&["report"], directory.path(), "not a regular file");
    fs::remove_file(&findings).unwrap();
    mkfifo(&findings, Mode::S_IRWXU).unwrap();
    is_refused(&["report"], directory.path(), "not a regular file");
}
