//! The disk below the export directory.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_tests::{backend, has_loop_devices, podstuck, requires, root_and_btf, slowdown};
use serde_json::Value;

use crate::stuck_pod::StuckPod;

/// A run ends within this, whatever its disk does: Ctrl-C ends it within two seconds where nothing is wrong.
const END: Duration = Duration::from_secs(10);

/// A watch with an export directory, and what it says on both outputs.
struct Exporting {
    child: Child,
    printed: BufReader<ChildStdout>,
}

impl Exporting {
    fn start(root: &str, export: &Path) -> Self {
        let mut command = Command::new(podstuck());
        command.args(["watch", "--output", "json", "--kubelet-root", root, "--export"]);
        command.arg(export).args(["--backend", backend().as_deref().unwrap_or("auto")]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let printed = BufReader::new(child.stdout.take().unwrap());
        let mut this = Self { child, printed };
        this.until(|line| line["type"] == "start");
        this
    }

    fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.printed.read_line(&mut line).unwrap() > 0, "it has ended");
            let line: Value = serde_json::from_str(&line).unwrap();
            if fits(&line) {
                return line;
            }
        }
    }

    /// Asks it to end, and waits for its summary.
    fn is_asked_to_end(&mut self) {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGINT).unwrap();
        let asked = Instant::now();
        self.until(|line| line["type"] == "summary");
        assert!(asked.elapsed() < END * slowdown(), "{:?}", asked.elapsed());
    }

    /// Waits for its end; the exit status and what it complained about.
    fn ends(mut self) -> (Option<i32>, String) {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (self.child.wait().unwrap().code(), text)
    }
}

/// A file system on a directory of its own.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn memory(size: &str) -> Self {
        let this = Self(tempfile::tempdir().unwrap());
        let options = Some(format!("size={size}"));
        mount(Some("full"), this.path(), Some("tmpfs"), MsFlags::empty(), options.as_deref())
            .unwrap();
        this
    }

    /// On a disk of its own.
    fn disk(image: &Path) -> Self {
        fs::File::create(image).unwrap().set_len(32 << 20).unwrap();
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(image));
        let this = Self(tempfile::tempdir().unwrap());
        run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(this.path()));
        this
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn freeze(&self, how: &str) {
        run(Command::new("fsfreeze").arg(how).arg(self.path()));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let thaw = Command::new("fsfreeze").arg("--unfreeze").arg(self.path()).output();
        drop(thaw);
        let _ = umount2(self.path(), MntFlags::MNT_DETACH);
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_full_export_disk_costs_files_and_no_finding_and_is_reported() {
    requires!(root_and_btf());
    let disk = Mounted::memory("256k");
    let export = disk.path().join("export");
    let pod = StuckPod::build();
    let mut watch = Exporting::start(pod.root(), &export);
    let filler = disk.path().join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[b'x'; 4096]).is_ok() {}
    pod.start();
    let found = watch.until(|line| pod.is_found(line));
    assert_eq!(found["id"], "immutable-attribute", "{found:#}");
    watch.is_asked_to_end();
    let (status, complaints) = watch.ends();
    assert_eq!(status, Some(1), "{complaints}");
    let place: PathBuf = export.join("findings.jsonl");
    assert!(complaints.contains(place.to_str().unwrap()), "{complaints}");
    // Of a line that did not fit, nothing is left.
    let left = fs::read_to_string(&place).unwrap();
    assert!(left.is_empty() || left.ends_with('\n'), "{left}");
    for line in left.lines() {
        serde_json::from_str::<Value>(line).unwrap();
    }
    let names = fs::read_dir(&export).unwrap().map(|entry| entry.unwrap().file_name());
    let partial: Vec<_> = names.filter(|name| name.as_encoded_bytes().starts_with(b".")).collect();
    assert!(partial.is_empty(), "{partial:?}");
    pod.end();
}

/// The kernel lets no process go whose thread waits for a frozen file system. All that it has to say is said
/// before, and it is gone as soon as the disk is thawed.
#[test]
fn a_frozen_export_disk_keeps_no_finding_and_no_summary_back() {
    requires!(root_and_btf(), has_loop_devices());
    let top = tempfile::tempdir_in("/var/tmp").unwrap();
    let disk = Mounted::disk(&top.path().join("image"));
    let export = disk.path().join("export");
    let pod = StuckPod::build();
    let mut watch = Exporting::start(pod.root(), &export);
    disk.freeze("--freeze");
    pod.start();
    let found = watch.until(|line| pod.is_found(line));
    assert_eq!(found["id"], "immutable-attribute", "{found:#}");
    watch.is_asked_to_end();
    disk.freeze("--unfreeze");
    let (status, complaints) = watch.ends();
    assert_eq!(status, Some(1), "{complaints}");
    assert!(
        complaints.contains("the last files of the export directory are missing or old"),
        "{complaints}"
    );
    pod.end();
}
