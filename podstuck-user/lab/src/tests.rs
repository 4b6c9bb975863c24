//! Plays every case and checks that it leaves nothing behind. The removal process is this test program, started
//! again.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use caps::{CapSet, Capability};
use podstuck_testing::requires;
use serde_json::{Value, json};

use super::{Options, RemovalArgs, cases::find, removal, runner::run_to};

const ROOT: &str = "PODSTUCK_LAB_TEST_ROOT";

/// The messages use a file descriptor of their own, because libtest also writes to stdout.
fn relaunch_test(args: &RemovalArgs) -> io::Result<Command> {
    let test = podstuck_testing::again();
    let mut command = Command::new("sh");
    command.args(["-c", r#"exec "$0" "$@" 3>&1 >/dev/null"#]).arg(test.get_program());
    command.args(test.get_args()).env(ROOT, &args.root);
    command.env("CASE", &args.case).env("POD_UID", &args.uid);
    command.env("RATE", args.rate.map(|rate| rate.to_string()).unwrap_or_default());
    command.env("ATTEMPTS", args.attempts.map(|most| most.to_string()).unwrap_or_default());
    Ok(command)
}

fn play_removal(root: PathBuf) {
    let text = |name| std::env::var(name).unwrap();
    let args = RemovalArgs {
        root,
        case: text("CASE"),
        uid: text("POD_UID"),
        rate: text("RATE").parse().ok(),
        attempts: text("ATTEMPTS").parse().ok(),
        late: false,
    };
    let mut out = File::options().write(true).open("/dev/fd/3").unwrap();
    removal::play(&args, &mut out).unwrap();
}

/// Every test begins with this. In a process that a test has started for the removal, it plays the removal and exits.
fn privileges() -> Result<(), &'static str> {
    if let Some(root) = std::env::var_os(ROOT) {
        play_removal(root.into());
        std::process::exit(0);
    }
    let allowed = caps::has_cap(None, CapSet::Effective, Capability::CAP_SYS_ADMIN).unwrap();
    if allowed { Ok(()) } else { Err("needs root") }
}

fn options() -> Options {
    // Limits the number of attempts, not the duration: how many attempts fit into a duration depends on the machine.
    Options { attempts: Some(2), launcher: relaunch_test, ..Options::default() }
}

/// Plays a case to its end; returns its last line.
fn play(id: &str, options: &Options) -> Value {
    let mut out = Vec::new();
    run_to(&mut out, find(id).unwrap(), options, &AtomicBool::new(false)).unwrap();
    let lines: Vec<Value> =
        String::from_utf8(out).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let [ready, done] = lines.try_into().unwrap();
    assert_eq!(ready["state"], "ready");
    assert_eq!(ready["pod_uid"], done["pod_uid"]);
    assert_nothing_left(&ready);
    done
}

fn assert_nothing_left(ready: &Value) {
    let root = ready["root"].as_str().unwrap();
    assert!(ready["path"].as_str().unwrap().starts_with(root));
    assert!(!Path::new(root).exists(), "{root} is left");
    assert!(!fs::read_to_string("/proc/mounts").unwrap().contains(root));
    assert!(!Path::new(&format!("/proc/{}", ready["pid"])).exists(), "a process is left");
}

fn failures(done: &Value, call: &str, errno: &str) -> Value {
    done["calls"][call][errno].clone()
}

#[test]
fn busy_directories_are_tried_again() {
    requires!(privileges());
    for id in ["csi-driver-lost-publish-state", "stacked-mounts", "removal-crosses-mount"] {
        let done = play(id, &options());
        assert_eq!(done["attempts"], 2, "{id}");
        assert_eq!(done["pods_removed"], 0, "{id}");
        assert_eq!(failures(&done, "unlinkat+AT_REMOVEDIR", "EBUSY"), 2, "{id}");
        // The umount of the token volume, and the one of two that the driver remembers.
        let expected = if id == "stacked-mounts" { 2 } else { 1 };
        assert_eq!(done["calls"]["umount2"], json!({"ok": expected}), "{id}");
    }
}

#[test]
fn what_kubelet_waits_for_in_silence_makes_no_call() {
    requires!(privileges());
    for id in [
        "csi-driver-lost-publish-state-silent",
        "csi-driver-not-registered",
        "vol-data-missing-or-corrupt",
    ] {
        let done = play(id, &options());
        assert_eq!(done["pods_removed"], 0, "{id}");
        assert_eq!(done["attempts"], 2, "{id}");
        // The umount of the token volume only.
        assert_eq!(done["calls"]["umount2"], json!({"ok": 1}), "{id}");
        assert_eq!(failures(&done, "unlinkat+AT_REMOVEDIR", "ENOTEMPTY"), 3, "{id}");
        assert_eq!(failures(&done, "unlinkat+AT_REMOVEDIR", "EBUSY"), Value::Null, "{id}");
    }
}

#[test]
fn directories_that_are_not_empty_are_tried_again() {
    requires!(privileges());
    for id in ["data-under-mountpoint", "subpath-source-deleted"] {
        let done = play(id, &options());
        assert_eq!((&done["attempts"], &done["pods_removed"]), (&json!(2), &json!(0)), "{id}");
        assert_eq!(failures(&done, "unlinkat+AT_REMOVEDIR", "ENOTEMPTY"), 5, "{id}");
    }
    let done = play("orphaned-pod-dir", &Options { attempts: Some(1), ..options() });
    assert_eq!((&done["attempts"], &done["pods_removed"]), (&json!(1), &json!(0)));
    assert_eq!(failures(&done, "unlinkat+AT_REMOVEDIR", "ENOTDIR"), 1);
}

#[test]
fn a_busy_umount_is_tried_again() {
    requires!(privileges());
    for id in [
        "nested-mount-under-volume",
        "volume-held-by-host-process",
        "volume-held-by-hosttocontainer-agent",
    ] {
        let done = play(id, &options());
        assert_eq!(done["calls"]["umount2"], json!({"ok": 1, "EBUSY": 2}), "{id}");
    }
}

#[test]
fn protected_files_stay() {
    requires!(privileges());
    for id in ["immutable-attribute", "append-only-attribute"] {
        let done = play(id, &options());
        assert_eq!(failures(&done, "unlinkat", "EPERM"), 2, "{id}");
        assert_eq!(failures(&done, "unlinkat+AT_REMOVEDIR", "EPERM"), Value::Null, "{id}");
    }
}

#[test]
fn healthy_pods_go_one_after_the_other() {
    requires!(privileges());
    let done = play("healthy", &options());
    assert_eq!((&done["attempts"], &done["pods_removed"]), (&json!(2), &json!(2)));
    for (call, outcomes) in done["calls"].as_object().unwrap() {
        for outcome in outcomes.as_object().unwrap().keys() {
            let ordinary = ["ok", "EISDIR", "ENOTEMPTY", "ENOENT"].contains(&outcome.as_str());
            assert!(ordinary, "{call} {outcome}");
        }
    }
}

#[test]
fn many_entries_go_in_one_attempt() {
    requires!(privileges());
    let options = Options { entries: Some(2000), rate: Some(10_000), ..options() };
    let done = play("emptydir-mass-files", &options);
    assert_eq!((&done["attempts"], &done["pods_removed"]), (&json!(1), &json!(1)));
    assert!(failures(&done, "unlinkat", "ok").as_u64() >= Some(1600));
    assert!(failures(&done, "unlinkat+AT_REMOVEDIR", "ok").as_u64() >= Some(400));
}

#[test]
fn a_stop_ends_it_and_cleans_up() {
    requires!(privileges());
    // Stops both during the removal and before its start.
    for start_delay in [Duration::ZERO, Duration::from_secs(60)] {
        let (stop, mut out) = (AtomicBool::new(false), Vec::new());
        let options = Options { attempts: None, start_delay, ..options() };
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(700));
                stop.store(true, Ordering::Relaxed);
            });
            run_to(&mut out, find("immutable-attribute").unwrap(), &options, &stop).unwrap();
        });
        let lines: Vec<Value> = serde_json::Deserializer::from_slice(&out)
            .into_iter()
            .collect::<Result<_, _>>()
            .unwrap();
        let [ready, done] = lines.try_into().unwrap();
        assert_nothing_left(&ready);
        // A removal that never began reports zero calls.
        let has_begun = start_delay.is_zero();
        assert_eq!(done["attempts"].as_u64() > Some(0), has_begun, "{done:#}");
        let has_called = done["calls"]
            .as_object()
            .unwrap()
            .values()
            .any(|outcomes| !outcomes.as_object().unwrap().is_empty());
        assert_eq!(has_called, has_begun, "{done:#}");
    }
}
