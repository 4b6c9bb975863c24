//! A kubelet that is not known by its name: its root directory is learnt from its calls, and where that cannot be, the
//! run does not end as if nothing were wrong.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "common/programs.rs"]
#[allow(dead_code, reason = "each test takes what it needs")]
mod programs;

use std::{
    fs,
    os::unix::fs::{chown, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use podstuck_tests::{
    Ending, UID, empty_dir, of_type, requires, root_and_btf, settle, slowdown, summary, watch,
};
use serde_json::Value;

/// A program of the node with a name that says nothing. It does what the script says, with these words.
fn agent(folder: &Path, script: &str, words: &[&Path]) -> Ending {
    let program = folder.join("agent");
    if !program.is_symlink() {
        symlink(fs::canonicalize("/bin/sh").unwrap(), &program).unwrap();
    }
    let mut command = Command::new(program);
    command.args(["-c", script, "sh"]).args(words).stderr(Stdio::null());
    Ending::start(&mut command)
}

/// A directory of ours, and the volume of a pod below it that is not empty.
fn stuck() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let top = tempfile::tempdir_in("/var/tmp").unwrap();
    let root = top.path().join("its-own");
    let volume = empty_dir(&root);
    fs::write(volume.join("file"), "").unwrap();
    (top, root, volume)
}

const AGAIN: &str = r#"while :; do rmdir "$1"; sleep 0.3; done"#;

#[test]
fn the_first_call_that_fails_is_reported_wherever_it_is() {
    if !programs::has_programs(&["chattr"]) {
        return;
    }
    let (top, _, volume) = stuck();
    let file = volume.join("file");
    let shown = file.to_str().unwrap();
    programs::chattr("+i", shown);
    let mut watching = watch(&[]);
    // Once, as a kubelet does that then waits for two minutes.
    let agent = agent(top.path(), r#"rm -f "$1"; sleep 100"#, &[&file]);
    let mut found = None;
    // Whatever comes of it, the file has to go.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        found = Some(watching.wait_for("finding", |line| line["type"] == "finding"));
    }));
    programs::chattr("-i", shown);
    drop(agent);
    assert!(result.is_ok());
    let found = found.unwrap();
    assert_eq!((&found["id"], &found["pod"]["uid"]), (&"immutable-attribute".into(), &UID.into()));
    let (lines, _) = watching.stop();
    assert!(summary(&lines)["completeness"]["not_looked_at"].is_null(), "{lines:#?}");
}

/// What is said of the only directory that was not read, and the exit status.
fn not_looked_at(args: &[&str], top: &Path, volume: &Path) -> (Value, Option<i32>) {
    let watching = watch(args);
    let agent = agent(top, AGAIN, &[volume]);
    thread::sleep(Duration::from_secs(3) * slowdown());
    drop(agent);
    settle();
    let (lines, status) = watching.stop();
    assert!(of_type(&lines, "finding").is_empty(), "{lines:#?}");
    let all = &summary(&lines)["completeness"]["not_looked_at"];
    assert_eq!(all.as_array().map_or(0, Vec::len), 1, "{lines:#?}");
    (all[0].clone(), status.code())
}

#[test]
fn a_directory_that_is_not_believed_is_no_all_clear() {
    requires!(root_and_btf());
    let (top, root, volume) = stuck();
    // Its owner can make what he likes of it.
    chown(&root, Some(1000), None).unwrap();
    let (unread, status) = not_looked_at(&[], top.path(), &volume);
    assert_eq!(unread["root"], root.to_str().unwrap(), "{unread:#}");
    assert!(unread["why"].as_str().unwrap().contains("owner 1000"), "{unread:#}");
    assert!(unread["failed"].as_u64().unwrap() > 1, "{unread:#}");
    assert_eq!(status, Some(5));
}

#[test]
fn another_root_than_the_given_one_is_named_whether_a_pod_is_asked_for_or_not() {
    requires!(root_and_btf());
    let (top, root, volume) = stuck();
    let given = top.path().join("given");
    empty_dir(&given);
    let given = given.to_str().unwrap();
    for args in [&["--kubelet-root", given][..], &["--kubelet-root", given, "--pod-uid", UID]] {
        let (unread, status) = not_looked_at(args, top.path(), &volume);
        assert_eq!(unread["root"], root.to_str().unwrap(), "{unread:#}");
        assert_eq!(status, Some(5), "{args:?}");
    }
}

#[test]
fn the_first_line_names_the_directory_and_the_option() {
    requires!(root_and_btf());
    let (top, root, volume) = stuck();
    chown(&root, Some(1000), None).unwrap();
    let mut watching = Command::new(podstuck_tests::podstuck());
    watching.args(["watch", "--output", "text", "--duration", "4s"]).stdout(Stdio::piped());
    let watching = watching.spawn().unwrap();
    let _agent = agent(top.path(), AGAIN, &[&volume]);
    let output = watching.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let root = root.to_str().unwrap();
    let named =
        words.find(&format!("not examined: {root}; add --kubelet-root {root} if it holds pods"));
    assert!(named < words.find("no finding in"), "{text}");
    assert!(named.is_some(), "{text}");
    assert!(!text.contains("nothing wrong"), "{text}");
    assert_eq!(output.status.code(), Some(5), "{text}");
}

#[test]
fn the_pods_of_a_kubelet_that_is_down_are_where_its_unit_says() {
    requires!(root_and_btf());
    let host = tempfile::tempdir_in("/var/tmp").unwrap();
    let write = |name: &str, text: &str| {
        let file = host.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    empty_dir(&host.path().join("data/kubelet"));
    write(
        "usr/lib/systemd/system/kubelet.service",
        "[Service]\nEnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\n\
         ExecStart=/usr/bin/kubelet $KUBELET_KUBEADM_ARGS\n",
    );
    let diagnose = || {
        let host = host.path().to_str().unwrap();
        let ways = ["--no-trace", "--timeout", "2s", "--output", "text"];
        let args = ["diagnose", "--host-root", host, "--pod-uid", UID];
        podstuck_tests::run(&[&args[..], &ways].concat())
    };
    assert_eq!(diagnose().status.code(), Some(2), "nobody says where");
    let flags = "KUBELET_KUBEADM_ARGS=\"--v=2 --root-dir=/data/kubelet\"\n";
    write("var/lib/kubelet/kubeadm-flags.env", flags);
    let output = diagnose();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("/data/kubelet/pods"), "{text}");
    assert_eq!(output.status.code(), Some(5), "{text}");
}
