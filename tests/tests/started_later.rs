//! A kubelet that is started while somebody watches is known from the next look at the node on, without any mount
//! that tells of it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use podstuck_tests::{UID, empty_dir, requires, root_and_btf, settle, slowdown, watch};

/// Named like a kubelet's program, with the flag that says where its pods are, and it tries to remove a
/// directory in one of them again and again.
struct Kubelet(Child);

impl Kubelet {
    fn start(program: &Path, root: &Path, directory: &Path) -> Self {
        let script = r#"while :; do rmdir "$1"; sleep 0.1; done"#;
        let mut command = Command::new(program);
        command.args(["-c", script, "sh"]).arg(directory).arg("--root-dir").arg(root);
        Self(command.stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_kubelet_that_is_started_later_brings_its_root_directory() {
    requires!(root_and_btf());
    let (top, export) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let program = top.path().join("kubelet");
    symlink(fs::canonicalize("/bin/sh").unwrap(), &program).unwrap();
    let root = top.path().join("its own");
    let volume = empty_dir(&root);
    fs::write(volume.join("file"), "").unwrap();
    let watching = watch(&["--export", export.path().to_str().unwrap()]);
    let kubelet = Kubelet::start(&program, &root, &volume);
    // A look every two seconds, what it finds is shown to the probes, and then something is tried.
    thread::sleep(Duration::from_secs(8) * slowdown());
    drop(kubelet);
    settle();
    watching.stop();
    let table = fs::read_to_string(export.path().join("histograms.csv")).unwrap();
    let its: Vec<&str> = table.lines().filter(|row| row.contains(UID)).collect();
    assert!(its.iter().any(|row| row.contains("ENOTEMPTY")), "{table}");
}
