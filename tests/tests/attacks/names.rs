//! Names that are as long as they may be, and full of what a terminal, a shell or a parser might obey. A tenant makes
//! them in his volume, as root of his container and of a user namespace of his own, beside another pod that is stuck.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_tests::{
    backend, call, empty_dir, podstuck, requires, root_and_btf, settle, user_namespaces, watch,
};
use serde_json::Value;

use crate::{
    stuck_pod::StuckPod,
    tenant::{Tenant, runc},
};

/// What the kernel takes at most.
const LONGEST: usize = 255;
/// A command about a mount has the name twice, and a longer line than every shell takes is not printed.
const MOUNTED: usize = 80;

/// Escape codes, quotes, substitutions, a byte that is no UTF-8, a right-to-left override, line ends.
fn name(first: u8, length: usize) -> Vec<u8> {
    let part = b"\x1b[2J\x9b31m\n'\"`$(touch HERE)\\ \xff\xe2\x80\xae;\r\t&|*";
    let mut name = vec![first];
    while name.len() < length {
        name.push(part[(name.len() - 1) % part.len()]);
    }
    name
}

/// What makes an object in his volume with this name, in a shell of the tenant's.
fn made_by_tenant(program: &str, name: &[u8]) -> String {
    let octal: String = name.iter().map(|byte| format!("\\{byte:03o}")).collect();
    // What it does as root of a user namespace is its own there, and the node's root's outside.
    format!("{program} \"/data/$(printf '{octal}')\"")
}

/// The same, by root of a user namespace.
fn made_apart(program: &str, name: &[u8]) -> String {
    let script = made_by_tenant(program, name).replace('\'', "'\\''");
    format!("unshare --user --map-root-user --mount sh -c '{script}'")
}

/// A text without anything that changes what is shown around it.
fn assert_plain(text: &str) {
    let shown = |c: char| c == '\n' || (!c.is_control() && c != '\u{202e}');
    assert!(text.chars().all(shown), "{text:?}");
}

/// Ends with the test, also when that fails.
struct Watching(Child);

impl Watching {
    fn end(&self) {
        let _ = kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGINT);
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.end();
        let _ = self.0.wait();
    }
}

/// Findings about the volume, as text and as JSON, while `act` makes one happen; and about another pod, that is stuck.
fn findings_of(root: &Path, act: impl FnOnce()) -> (String, Value) {
    let pod = StuckPod::build();
    let root = ["--kubelet-root", root.to_str().unwrap(), "--kubelet-root", pod.root()];
    let mut text = Command::new(podstuck());
    text.args(["watch", "--output", "text", "--backend", backend().as_deref().unwrap_or("auto")]);
    let mut text = Watching(text.args(root).stdout(Stdio::piped()).spawn().unwrap());
    let mut printed = BufReader::new(text.0.stdout.take().unwrap());
    let mut shown = Vec::new();
    printed.read_until(b'\n', &mut shown).unwrap();
    let mut json = watch(&root);
    pod.start();
    let other = pod.cause_is_found(&mut json);
    act();
    let has_way = |line: &Value| {
        line["remedies"][0]["kind"] == "command" && line["pod"]["uid"] != other["pod"]["uid"]
    };
    let found = json.wait_for("a way out", |line| line["type"] == "finding" && has_way(line));
    settle();
    text.end();
    printed.read_to_end(&mut shown).unwrap();
    drop(text);
    let shown = String::from_utf8(shown).unwrap();
    pod.end();
    assert!(shown.contains(other["id"].as_str().unwrap()), "{shown}");
    assert!(shown.contains(found["id"].as_str().unwrap()), "{shown}");
    (shown, found)
}

/// Runs a command in a directory of its own, in which nothing is made by it.
fn run(command: &str) {
    let here = tempfile::tempdir().unwrap();
    let done =
        Command::new("bash").args(["-c", command]).current_dir(here.path()).output().unwrap();
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command}: {error}");
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0, "{command}");
}

/// Two files in a volume, each with such a name.
#[test]
fn a_file_of_255_hostile_bytes_is_named_and_met_alone() {
    requires!(root_and_btf(), runc(), user_namespaces());
    let dir = tempfile::Builder::new().prefix("podstuck-test-").tempdir_in("/var/tmp").unwrap();
    let volume = empty_dir(dir.path());
    let [object, other] =
        [b'a', b'b'].map(|first| volume.join(OsStr::from_bytes(&name(first, LONGEST))));
    let protected = |path: &PathBuf, flag: &str| {
        assert!(Command::new("chattr").arg(flag).arg(path).status().unwrap().success());
    };
    let tenant = Tenant::start(&[(&volume, "/data")]);
    tenant.does(&made_by_tenant("touch", &name(b'a', LONGEST)));
    tenant.does(&made_apart("touch", &name(b'b', LONGEST)));
    // He may not do that himself.
    for path in [&object, &other] {
        protected(path, "+i");
    }
    let (shown, found) = findings_of(dir.path(), || {
        call(&["unlink".as_ref(), object.as_os_str()]);
    });
    let command = found["remedies"][0]["command"].as_str().unwrap().to_owned();
    let tried = std::panic::catch_unwind(|| {
        assert_plain(&shown);
        assert_plain(&command);
        run(&command);
        fs::remove_file(&object).unwrap();
        assert!(fs::remove_file(&other).is_err(), "the other one is as it was");
    });
    for path in [&object, &other] {
        let _ = Command::new("chattr").arg("-i").arg(path).stderr(Stdio::null()).status();
    }
    tried.unwrap();
}

/// A mount in a volume, and another one beside it, each on such a name.
#[test]
fn a_mount_on_hostile_bytes_is_named_and_met_alone() {
    requires!(root_and_btf(), runc(), user_namespaces());
    let dir = tempfile::Builder::new().prefix("podstuck-test-").tempdir_in("/var/tmp").unwrap();
    let volume = empty_dir(dir.path());
    let points = [b'a', b'b'].map(|first| volume.join(OsStr::from_bytes(&name(first, MOUNTED))));
    let tenant = Tenant::start(&[(&volume, "/data")]);
    tenant.does(&made_by_tenant("mkdir", &name(b'a', MOUNTED)));
    tenant.does(&made_apart("mkdir", &name(b'b', MOUNTED)));
    // In his own namespace he mounts there, too, and stays.
    let own = made_apart("mount -t tmpfs mine", &name(b'a', MOUNTED));
    let own = own.strip_suffix('\'').unwrap();
    let _mounted = tenant.begins(&format!("{own}; echo ready; sleep 600'"));
    for point in &points {
        let none = None::<&str>;
        mount(
            Some(OsStr::from_bytes(&name(b's', MOUNTED))),
            point,
            Some("tmpfs"),
            MsFlags::empty(),
            none,
        )
        .unwrap();
    }
    let [object, other] = &points;
    let is_mounted = |point: &Path| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(point).unwrap().dev() != fs::metadata(&volume).unwrap().dev()
    };
    let tried = std::panic::catch_unwind(|| {
        // Once may be chance, and is not reported.
        let (shown, found) = findings_of(dir.path(), || {
            for _ in 0..4 {
                call(&["rmdir".as_ref(), object.as_os_str()]);
                thread::sleep(Duration::from_secs(1));
            }
        });
        assert_plain(&shown);
        let command = found["remedies"][0]["command"].as_str().unwrap();
        assert_plain(command);
        run(command);
        assert!(!is_mounted(object), "{command}");
        assert!(is_mounted(other), "{command}");
    });
    for point in &points {
        let _ = umount2(point, MntFlags::MNT_DETACH);
    }
    tried.unwrap();
}
