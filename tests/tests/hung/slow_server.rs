//! A FUSE server that takes long for one request, and answers others meanwhile: it is slow, and does not hang.

use std::{fs, path::Path, thread};

use podstuck_tests::{
    FuseServer, UID, empty_dir, of_type, requires, root_and_btf, settle, slowdown, watch,
};

/// Requests of others. They are answered between two reads of the call: it is reported each time that it is twice as
/// old, after 1.6 s and after 3.2 s.
const OTHERS: usize = 12;
const OTHERS_TAKE_MS: u32 = 2400;
/// A server that answers no request would hang after 3 s.
const TAKES_MS: u32 = 5000;

#[test]
fn a_fuse_server_that_answers_others_is_slow_and_does_not_hang() {
    requires!(root_and_btf());
    if !Path::new("/sys/fs/fuse/connections/abort").exists()
        && fs::read_dir("/sys/fs/fuse/connections").is_err()
    {
        return podstuck_tests::skip("FUSE connections are not shown here");
    }
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let server = FuseServer::mount(directory.path());
    let root = server.at().to_str().unwrap();
    let file = empty_dir(server.at()).join(format!("slow-{}", TAKES_MS * slowdown()));
    fs::write(&file, "data").unwrap();
    let others: Vec<_> = (0..OTHERS)
        .map(|number| {
            // A removal locks its directory.
            let directory = server.at().join(format!("others-{number}"));
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
