//! A run in a mount namespace that is not the node's: the directories that it is given are those that it sees.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
};

use podstuck_tests::{UID, add_up, podstuck, requires, root_and_btf, settle, summary, trace};

const SCRIPT: &str = "#!/bin/sh
exec unshare --mount --propagation private sh -c '
    mount -t tmpfs podstuck-test TOP && mkdir -p VOLUME && exec PODSTUCK \"$@\"' sh \"$@\"
";

#[test]
fn an_unmount_by_its_path_is_counted_where_only_the_run_sees_the_directory() {
    requires!(root_and_btf());
    let (top, scripts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let script = scripts.path().join("podstuck");
    let root = top.path().join("kubelet");
    let volume = root.join("pods").join(UID).join("volumes/kubernetes.io~empty-dir/data");
    let in_it = SCRIPT.replace("TOP", &text(top.path())).replace("VOLUME", &text(&volume));
    let in_it = in_it.replace("PODSTUCK", &text(&podstuck()));
    fs::write(&script, in_it).unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let watch = trace(&script, "watch", &["--pod-uid", UID, "--kubelet-root", &text(&root)]);
    // A read of the node's mounts.
    settle();
    let made = "for i in 1 2 3 4 5 6 7; do mount -t tmpfs podstuck-test VOLUME && umount VOLUME || exit 1; done";
    let mut nsenter = Command::new("nsenter");
    nsenter.args(["--mount", "--target", &watch.pid().to_string(), "sh", "-c"]);
    let made = nsenter.arg(made.replace("VOLUME", &text(&volume))).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let (lines, _) = watch.stop();
    // A look-alike is not counted. Their own count is that of the node, where other tests run.
    assert_eq!(add_up(&[&summary(&lines)["by_outcome"]])["umount2 ok"], 7, "{lines:#?}");
}
