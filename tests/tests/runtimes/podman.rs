//! Podman, which has no daemon: its containers are known, what is healthy is not reported, and what keeps a layer or a
//! volume is.

use std::{fs, io::Write, path::Path, process::Command};

use nix::mount::{MntFlags, umount2};
use podstuck_tests::{Disk, Mounted, of_type, skip, watch};
use serde_json::Value;

use super::{
    assert_complete, counted,
    daemons::{
        busybox, chattr, disk, has_programs, is_of_another_release, oci_runtime, program, share,
    },
    finding, obey, output,
};

/// Where it keeps its data by default, which is where it is searched.
const DATA: &str = "/var/lib/containers";
/// What it leaves elsewhere.
const LEFT: [&str; 3] = ["/run/libpod", "/run/containers", "/dev/shm/libpod_lock"];

/// On a disk of its own, without a network.
struct Podman(#[expect(dead_code, reason = "mounted as long as it is needed")] Disk);

impl Podman {
    /// With an image; `None`, with the test noted as skipped, where that is impossible.
    fn start() -> Option<Self> {
        if !has_programs(&["podman", "conmon", &oci_runtime()]) {
            return None;
        }
        if LEFT.iter().any(|path| Path::new(path).exists()) {
            skip("podman is in use on this machine");
            return None;
        }
        let podman = Self(disk(Path::new(DATA), 20_000));
        share(Path::new(DATA));
        let folder = tempfile::tempdir().unwrap();
        let layer = folder.path().join("layer.tar");
        fs::File::create(&layer).unwrap().write_all(&busybox(folder.path())).unwrap();
        let words =
            ["import", "-c", "CMD [\"/bin/sleep\",\"9999\"]", layer.to_str().unwrap(), "bb:1"];
        output(Self::podman(&words));
        Some(podman)
    }

    fn podman(args: &[&str]) -> Command {
        let mut podman = program("podman");
        // Its own choice is crun, which does not take hierarchies of both versions, as this machine's may be.
        podman.args(["--runtime", &oci_runtime(), "--cgroup-manager", "cgroupfs"]).args(args);
        podman
    }

    /// A container that sleeps, with a volume at `/data`.
    fn run(name: &str) {
        // Its defaults are above what a machine of ours may have.
        let limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"];
        let of = ["-d", "--name", name, "--network", "none", "--stop-timeout", "0", "-v", "/data"];
        output(Self::podman(&[&["run"], &limits[..], &of, &["bb:1"]].concat()));
    }

    fn inspect(name: &str, format: &str) -> String {
        output(Self::podman(&["inspect", "--format", format, name]))
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let _ = Self::podman(&["rm", "--all", "--force", "--volumes"]).output();
        // Podman mounts this on itself.
        let _ = umount2(&Path::new(DATA).join("storage/overlay"), MntFlags::MNT_DETACH);
        for path in LEFT.map(Path::new) {
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }
}

fn of_storage(finding: &&Value) -> bool {
    finding["call"]["path"].as_str().is_some_and(|path| path.starts_with(DATA))
}

#[test]
fn healthy_ones_are_not_reported() {
    let Some(_podman) = Podman::start() else { return };
    let all = watch(&[]);
    for name in ["one", "two", "three"] {
        Podman::run(name);
        let work = "mkdir -p /data/a /d; touch /data/a/f /d/f; rm -r /d";
        output(Podman::podman(&["exec", name, "sh", "-c", work]));
    }
    for name in ["one", "two", "three"] {
        output(Podman::podman(&["rm", "--force", "--volumes", name]));
    }
    let (lines, _) = all.stop();
    assert_eq!(of_type(&lines, "finding").into_iter().find(of_storage), None);
    assert!(counted(&lines, "unlinkat", "ok") > 0);
}

#[test]
fn an_immutable_file_in_a_layer() {
    let Some(_podman) = Podman::start() else { return };
    Podman::run("guarded");
    let id = Podman::inspect("guarded", "{{.Id}}");
    output(Podman::podman(&["exec", "guarded", "sh", "-c", "mkdir -p /d/e; touch /d/e/f /d/g"]));
    let layer = Podman::inspect("guarded", "{{.GraphDriver.Data.UpperDir}}");
    let file = format!("{layer}/d/e/f");
    chattr("+i", &file);

    let mut live = watch(&["--container", "guarded"]);
    assert!(!Podman::podman(&["rm", "--force", "guarded"]).output().unwrap().status.success());
    let found = finding(&mut live, "immutable-attribute", "new");
    let path = found["call"]["path"].as_str().unwrap();
    // Since 5.6 it moves a layer aside before it deletes it.
    let aside = Path::new(DATA).join("storage/overlay/tempdirs");
    assert!(path == file || Path::new(path).starts_with(aside) && path.ends_with("/diff/d/e/f"));
    assert_eq!(found["certainty"], "firm");
    assert_eq!(found["actor"]["comm"], "podman");
    assert_eq!(found["volume"]["plugin"], "container-layer");
    assert_eq!((&found["container"], &found["container_name"]), (&id.into(), &"guarded".into()));
    if is_of_another_release() {
        // The reported path leads through its process, which has ended with its mount namespace.
        chattr("-i", path);
    } else {
        obey(&found);
    }
    // It removes what an earlier removal has left before it does anything else.
    output(Podman::podman(&["ps"]));
    assert!(!Path::new(&layer).exists());
    finding(&mut live, "immutable-attribute", "cleared");
    let (lines, status) = live.stop();
    assert_eq!(status.code(), Some(1));
    assert_complete(&lines);
}

#[test]
fn a_mount_in_a_volume() {
    let Some(_podman) = Podman::start() else { return };
    Podman::run("owner");
    let id = Podman::inspect("owner", "{{.Id}}");
    let volume = Podman::inspect("owner", "{{(index .Mounts 0).Source}}");
    let sub = Path::new(&volume).join("sub");
    fs::create_dir(&sub).unwrap();
    let mounted = Mounted::memory(&*sub, "");
    fs::write(sub.join("one"), "").unwrap();

    let mut live = watch(&["--container", "owner"]);
    let _ = Podman::podman(&["rm", "--force", "--volumes", "owner"]).output();
    let found = finding(&mut live, "removal-crosses-mount", "new");
    assert_eq!(found["volume"]["path"], Path::new(&volume).parent().unwrap().to_str().unwrap());
    assert_eq!((&found["container"], &found["container_name"]), (&id.into(), &"owner".into()));
    if !is_of_another_release() {
        // There its mount namespace ends with it.
        assert!(found["evidence"].to_string().contains("podstuck of type tmpfs"), "{found:#}");
    }
    drop(mounted);
    let _ = live.stop();
}
