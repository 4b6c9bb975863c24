//! A process that calls itself kubelet and has paths like a pod's changes nothing that is reported about the pod.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    fs,
    path::Path,
    process::{Child, Command},
    thread,
    time::Duration,
};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use podstuck_tests::{
    UID, empty_dir, requires, root_and_btf, settle, summary, user_namespaces, watch,
};
use serde_json::Value;

/// A user and a mount namespace of its own.
const OWN: [&str; 3] = ["--user", "--map-root-user", "--mount"];

/// A volume of memory, and a process that keeps it busy.
struct Busy<'a> {
    volume: &'a Path,
    holder: Child,
}

impl<'a> Busy<'a> {
    fn new(volume: &'a Path) -> Self {
        let none: Option<&str> = None;
        mount(Some("tmpfs"), volume, Some("tmpfs"), MsFlags::empty(), none).unwrap();
        let holder = Command::new("sleep").arg("600").current_dir(volume).spawn().unwrap();
        Self { volume, holder }
    }

    /// As the node does it, which fails.
    fn unmount(&self) {
        for _ in 0..2 {
            let status = Command::new("umount").arg(self.volume).status().unwrap();
            assert!(!status.success());
            thread::sleep(Duration::from_secs(1));
        }
    }

    fn release(&mut self) {
        self.holder.kill().unwrap();
        self.holder.wait().unwrap();
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        let _ = umount2(self.volume, MntFlags::MNT_DETACH);
    }
}

/// What a process that may make a user namespace can do in it: it has the same paths there as the pod, and unmounts
/// and removes what is behind them.
fn imitate(top: &Path, volume: &Path) {
    let script = r#"printf kubelet > /proc/$$/comm
        set -e
        for each in 1 2 3; do
            mount -t tmpfs mine "$1"
            mkdir -p "$2"
            mount -t tmpfs mine "$2"
            umount "$2"
            rmdir "$2" "$(dirname "$2")"
            umount "$1"
        done"#;
    let mut own = Command::new("unshare");
    own.args(OWN).args(["sh", "-c", script, "kubelet"]).args([top, volume]);
    let status = own.status().unwrap();
    assert!(status.success());
}

/// A finding about the pod.
fn is_about_it(line: &Value) -> bool {
    line["type"] == "finding" && line["pod"]["uid"] == UID
}

#[test]
fn a_kubelet_of_a_user_namespace_clears_no_pods_finding() {
    requires!(root_and_btf());
    requires!(user_namespaces());
    let top = tempfile::tempdir().unwrap();
    let volume = empty_dir(top.path());
    let mut busy = Busy::new(&volume);
    let mut watching = watch(&["--kubelet-root", top.path().to_str().unwrap()]);
    busy.unmount();
    let found = watching.wait_for("a finding", is_about_it);
    assert_eq!(found["id"], "volume-held-by-host-process");
    imitate(top.path(), &volume);
    // Two drains, after which it would be over; and an update comes five seconds after the news.
    thread::sleep(Duration::from_secs(5));
    busy.unmount();
    let then = watching.wait_for("what has come of it", is_about_it);
    assert_eq!((&then["id"], &then["state"]), (&found["id"], &"update".into()), "{then:#}");
    assert!(then["count"].as_u64() > found["count"].as_u64(), "{then:#}");
    busy.release();
    umount2(&volume, MntFlags::empty()).unwrap();
    fs::remove_dir(&volume).unwrap();
    let end = watching.wait_for("its end", is_about_it);
    assert_eq!((&end["id"], &end["state"]), (&found["id"], &"cleared".into()), "{end:#}");
    settle();
    let (lines, _) = watching.stop();
    // They were seen: three of theirs, and one of the node.
    let unmounts = &summary(&lines)["by_outcome"]["umount2"]["ok"];
    assert!(unmounts.as_u64().is_some_and(|calls| calls > 3), "{unmounts}");
}
