//! Names that are as long as they may be, and full of what a terminal, a shell or a parser might obey.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_tests::{backend, call, empty_dir, podstuck, requires, root_and_btf, settle, watch};
use serde_json::Value;

/// Escape codes, quotes, substitutions, a byte that is no UTF-8, a right-to-left override, line ends; 255 bytes.
fn name(first: u8) -> Vec<u8> {
    let part = b"\x1b[2J\x9b31m\n'\"`$(touch HERE)\\ \xff\xe2\x80\xae;\r\t&|*";
    let mut name = vec![first];
    while name.len() < 255 {
        name.push(part[(name.len() - 1) % part.len()]);
    }
    name
}

/// A text without anything that changes what is shown around it.
fn assert_plain(text: &str) {
    let shown = |c: char| c == '\n' || (!c.is_control() && c != '\u{202e}');
    assert!(text.chars().all(shown), "{text:?}");
}

/// Findings about the volume, as text and as JSON, while `act` makes one happen.
fn told(root: &Path, act: impl FnOnce()) -> (String, Value) {
    let root = ["--kubelet-root", root.to_str().unwrap()];
    let mut text = Command::new(podstuck());
    text.args(["watch", "--output", "text", "--backend", backend().as_deref().unwrap_or("auto")]);
    let mut text = text.args(root).stdout(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(text.stdout.take().unwrap());
    let mut shown = Vec::new();
    printed.read_until(b'\n', &mut shown).unwrap();
    let mut json = watch(&root);
    act();
    let has_way = |line: &Value| line["remedies"][0]["kind"] == "command";
    let found = json.wait_for("a way out", |line| line["type"] == "finding" && has_way(line));
    settle();
    kill(Pid::from_raw(text.id().cast_signed()), Signal::SIGINT).unwrap();
    printed.read_to_end(&mut shown).unwrap();
    text.wait().unwrap();
    let shown = String::from_utf8(shown).unwrap();
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
    requires!(root_and_btf());
    let dir = tempfile::Builder::new().prefix("podstuck-test-").tempdir_in("/var/tmp").unwrap();
    let volume = empty_dir(dir.path());
    let [object, other] = [b'a', b'b'].map(|first| volume.join(OsStr::from_bytes(&name(first))));
    let protected = |path: &PathBuf, flag: &str| {
        assert!(Command::new("chattr").arg(flag).arg(path).status().unwrap().success());
    };
    for path in [&object, &other] {
        fs::write(path, "").unwrap();
        protected(path, "+i");
    }
    let (shown, found) = told(dir.path(), || {
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
fn a_mount_on_255_hostile_bytes_is_named_and_met_alone() {
    requires!(root_and_btf());
    let dir = tempfile::Builder::new().prefix("podstuck-test-").tempdir_in("/var/tmp").unwrap();
    let volume = empty_dir(dir.path());
    let points = [b'a', b'b'].map(|first| volume.join(OsStr::from_bytes(&name(first))));
    for point in &points {
        fs::create_dir(point).unwrap();
        let none = None::<&str>;
        mount(Some(OsStr::from_bytes(&name(b's'))), point, Some("tmpfs"), MsFlags::empty(), none)
            .unwrap();
    }
    let [object, other] = &points;
    let is_mounted = |point: &Path| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(point).unwrap().dev() != fs::metadata(&volume).unwrap().dev()
    };
    let tried = std::panic::catch_unwind(|| {
        // Once may be chance, and is told nobody.
        let (shown, found) = told(dir.path(), || {
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
