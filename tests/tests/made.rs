//! Faults that neither a lab nor a real kubelet shows, each made by real calls on this machine, and named.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use podstuck_tests::{
    EXT4, Ending, Mounted, Running, UID, done, has_loop_devices, make_image, own_mounts, requires,
    root_and_btf, slowdown, watch,
};
use serde_json::Value;

/// A directory of kubelet's with one pod, in a mount namespace of this test's thread and its children.
struct Node {
    mounted: Vec<Mounted>,
    directory: tempfile::TempDir,
}

impl Node {
    fn new() -> Self {
        own_mounts();
        let this =
            Self { directory: tempfile::tempdir_in("/dev/shm").unwrap(), mounted: Vec::new() };
        // By what kubelet makes for a container's last words, its start is known.
        let container = this.pod().join("containers/app");
        fs::create_dir_all(&container).unwrap();
        fs::write(container.join("1f0c3a7d"), "").unwrap();
        this
    }

    fn root(&self) -> &str {
        self.directory.path().to_str().unwrap()
    }

    fn pod(&self) -> PathBuf {
        self.directory.path().join("pods").join(UID)
    }

    /// A directory in the pod's.
    fn make(&self, below: &str) -> PathBuf {
        let path = self.pod().join(below);
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn bind(&mut self, from: &Path, to: &Path) {
        self.mounted.push(Mounted::bind(from, to));
    }

    /// A process whose program is called kubelet and has this directory, and which repeats this command.
    fn kubelet(&self, does: &str, with: &Path) -> Ending {
        let program = self.directory.path().join("kubelet");
        symlink(fs::canonicalize("/bin/sh").unwrap(), &program).unwrap();
        let script = format!("while :; do {does}; sleep 0.5; done");
        let mut command = Command::new(program);
        command.args(["-c", &script, "sh"]).arg(with).args(["--root-dir", self.root()]);
        Ending::start(command.stderr(Stdio::null()))
    }

    fn watch(&self) -> Running {
        let after = format!("{}s", 4 * slowdown());
        watch(&["--kubelet-root", self.root(), "--pod-uid", UID, "--not-attempted-after", &after])
    }
}

/// Waits for the first finding that is as sure as this, and has it be this one, of the pod.
fn assert_named(mut watching: Running, id: &str, certainty: &str) -> Value {
    let found = watching.wait_for(id, |line| {
        line["type"] == "finding" && (line["id"] != id || line["certainty"] == certainty)
    });
    assert_eq!((&found["id"], &found["certainty"]), (&id.into(), &certainty.into()), "{found:#}");
    assert_eq!(found["pod"]["uid"], UID, "{found:#}");
    watching.stop();
    found
}

/// As kubelet does where it takes a bind mount from the same file system for a directory.
#[test]
fn a_subpath_that_is_still_mounted_is_named() {
    requires!(root_and_btf());
    let mut node = Node::new();
    let volume = node.make("volumes/kubernetes.io~empty-dir/data/conf");
    let point = node.make("volume-subpaths/data/app/0");
    node.bind(&volume, &point);
    let watching = node.watch();
    let _kubelet = node.kubelet("rmdir \"$1\"", &point);
    let found = assert_named(watching, "subpath-busy", "firm");
    assert_eq!(found["call"]["path"], point.to_str().unwrap(), "{found:#}");
}

/// Whether the pod is to go at all, nothing here says: so it is no more than possible.
#[test]
fn a_mount_without_an_unmount_attempt_is_named() {
    requires!(root_and_btf());
    let mut node = Node::new();
    let volume = node.make("volumes/kubernetes.io~nfs/share");
    node.mounted.push(Mounted::memory(&volume, "size=1m"));
    let _kubelet = node.kubelet(":", &volume);
    let found = assert_named(node.watch(), "unmount-not-attempted", "possible");
    assert_eq!(found["call"]["path"], volume.to_str().unwrap(), "{found:#}");
}

/// A file whose inode is damaged cannot be looked up, and so not be removed.
#[test]
fn a_damaged_file_system_is_named() {
    requires!(root_and_btf());
    requires!(has_loop_devices());
    let mut node = Node::new();
    let image = node.directory.path().join("disk");
    make_image(&image, 8 << 20, EXT4);
    let volume = node.make("volumes/kubernetes.io~local-volume/pv");
    let whole = Mounted::image(&image, &volume, "");
    let file = volume.join("file");
    fs::write(&file, "data").unwrap();
    drop(whole);
    done(Command::new("debugfs").args(["-w", "-R", "sif /file mode 0"]).arg(&image));
    node.mounted.push(Mounted::image(&image, &volume, "errors=continue"));
    assert_eq!(fs::remove_file(&file).unwrap_err().raw_os_error(), Some(nix::libc::EUCLEAN));
    let watching = node.watch();
    let _kubelet = node.kubelet("rm -f \"$1\"", &file);
    let found = assert_named(watching, "device-io-error", "firm");
    assert_eq!(found["call"]["errno_name"], "EUCLEAN", "{found:#}");
}

/// A process deletes very many files of a volume that is no emptyDir.
#[test]
fn a_mass_deletion_is_named() {
    requires!(root_and_btf());
    let node = Node::new();
    let volume = node.make("volumes/kubernetes.io~local-volume/pv");
    let files = 24_000 / slowdown();
    for number in 0..files {
        fs::write(volume.join(number.to_string()), "").unwrap();
    }
    let watching = node.watch();
    let deleting = thread::spawn(move || {
        let (begun, per_second) = (Instant::now(), f64::from(files) / 12.0);
        for number in 0..files {
            fs::remove_file(volume.join(number.to_string())).unwrap();
            let due = Duration::from_secs_f64(f64::from(number) / per_second);
            thread::sleep(due.saturating_sub(begun.elapsed()));
        }
    });
    assert_named(watching, "mass-deletion", "firm");
    deleting.join().unwrap();
}
