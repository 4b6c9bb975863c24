//! A FUSE server that takes long for one request, and answers others meanwhile: it is slow, and does not hang.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};

use nix::mount::{MntFlags, umount2};
use podstuck_tests::{
    UID, beside_the_tests, empty_dir, of_type, requires, root_and_btf, settle, slowdown, watch,
};

/// Requests of others. They are answered between two reads of the call: it is reported each time that it is twice as
/// old, after 1.6 s and after 3.2 s.
const OTHERS: usize = 12;
const OTHERS_TAKE_MS: u32 = 2400;
/// A server that answers no request would hang after 3 s.
const TAKES_MS: u32 = 5000;

/// A file system below which kubelet has its directories.
struct Server {
    child: Child,
    directory: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut command = Command::new(beside_the_tests("podstuck-fuse"));
        let mut child = command.arg(directory.path()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { child, directory }
    }

    fn root(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = umount2(self.root(), MntFlags::MNT_DETACH);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_fuse_server_that_answers_others_is_slow_and_does_not_hang() {
    requires!(root_and_btf());
    if !Path::new("/sys/fs/fuse/connections/abort").exists()
        && fs::read_dir("/sys/fs/fuse/connections").is_err()
    {
        return podstuck_tests::skip("FUSE connections are not shown here");
    }
    let server = Server::start();
    let root = server.root().to_str().unwrap();
    let file = empty_dir(server.root()).join(format!("slow-{}", TAKES_MS * slowdown()));
    fs::write(&file, "data").unwrap();
    let others: Vec<_> = (0..OTHERS)
        .map(|number| {
            // A removal locks its directory.
            let directory = server.root().join(format!("others-{number}"));
            fs::create_dir(&directory).unwrap();
            let other = directory.join(format!("slow-{}", OTHERS_TAKE_MS * slowdown()));
            fs::write(&other, "data").unwrap();
            other
        })
        .collect();
    let after = format!("{}ms", 200 * slowdown());
    let mut watching = watch(&["--kubelet-root", root, "--pod-uid", UID, "--hung-after", &after]);
    thread::scope(|scope| {
        let call = scope.spawn(|| fs::remove_file(&file).unwrap());
        others.iter().for_each(|other| drop(scope.spawn(move || fs::remove_file(other).unwrap())));
        let path = file.to_str().unwrap();
        let of_file = |line: &serde_json::Value| line["type"] == "hung" && line["path"] == path;
        call.join().unwrap();
        let over = watching.wait_for("its end", |line| of_file(line) && line["over"] == true);
        // While the call goes on, its directory is locked, and may keep the tool from knowing what it is about. It was
        // long enough for a server that answers no request to be blamed.
        assert!(over["age_s"].as_f64().unwrap() > 3.0 * f64::from(slowdown()), "{over:#}");
    });
    settle();
    let (lines, status) = watching.stop();
    assert!(of_type(&lines, "finding").is_empty(), "{lines:#?}");
    // Calls of other tests may not return either: then the watch was not complete.
    assert!(matches!(status.code(), Some(0 | 5)), "{status}");
}
