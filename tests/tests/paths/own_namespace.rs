//! A run in a mount namespace that is not the node's: the directories that it is given are those that it sees.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
};

use podstuck_tests::{
    UID, add_up, beside_the_tests, podstuck, requires, root_and_btf, settle, summary, trace,
};
use serde_json::Value;

const SCRIPT: &str = "#!/bin/sh
exec unshare --mount --propagation private sh -c '
    mount -t tmpfs podstuck-test TOP && mkdir -p TOP/kubelet/pods/UID && exec PODSTUCK \"$@\"' sh \"$@\"
";

#[test]
fn an_unmount_by_its_path_is_counted_where_only_the_run_sees_the_directory() {
    requires!(root_and_btf());
    let (top, scripts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let script = scripts.path().join("podstuck");
    let in_it = SCRIPT.replace("TOP", &text(top.path())).replace("UID", UID);
    let in_it = in_it.replace("PODSTUCK", &text(&podstuck()));
    fs::write(&script, in_it).unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let root = top.path().join("kubelet");
    let watch = trace(&script, "watch", &["--pod-uid", UID, "--kubelet-root", &text(&root)]);
    // A look at the node's mounts.
    settle();
    let volume = root.join("pods").join(UID).join("volumes/kubernetes.io~empty-dir/data");
    let mut nsenter = Command::new("nsenter");
    nsenter.args(["--mount", "--target", &watch.pid().to_string()]);
    let calls = ["umount", "--dir", &text(&volume), "--calls", "20"];
    let made = nsenter.arg(beside_the_tests("podstuck-workload")).args(calls).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let truth: Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(truth["tally"]["umount2"]["ok"], 20, "{truth}");
    let (lines, _) = watch.stop();
    assert_eq!(summary(&lines)["completeness"]["look_alikes"], 0, "{lines:#?}");
    assert_eq!(add_up(&[&summary(&lines)["by_outcome"]])["umount2 ok"], 20, "{lines:#?}");
}
