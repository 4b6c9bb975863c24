//! Calls that do not return, each kept from returning by a lab: before the call, in it, and after the
//! exit that probes see; and the tool itself beside all of them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[path = "hung/kernel_lock.rs"]
mod kernel_lock;
#[path = "hung/slow_server.rs"]
mod slow_server;
#[path = "common/stuck.rs"]
mod stuck;

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use podstuck_tests::{lab, obey, of_type, requires, root_and_btf, slowdown, summary, watch};
use serde_json::Value;
use stuck::{Lab, THRESHOLD, end, finding, hung, stack};

#[test]
fn a_silent_fuse_server_is_found_in_a_call_that_deletes_nothing() {
    requires!(root_and_btf());
    let lab = Lab::build("fuse-daemon-hung");
    let mut watching = lab.watch(&[]);
    lab.start();
    let hung = hung(&mut watching, &lab, "in-syscall");
    let path = format!("{}/m", lab.text("path"));
    assert_eq!((&hung["syscall"], &hung["path"]), (&"openat".into(), &path.as_str().into()));
    assert_eq!((&hung["pid"], &hung["comm"]), (&lab.ready["pid"], &"kubelet".into()));
    assert_eq!((&hung["state"], &hung["wchan"]), (&"S".into(), &"request_wait_answer".into()));
    assert!(stack(&hung).contains(&"fuse_dir_open"), "{hung:#}");
    finding(&mut watching, &lab, "fuse-daemon-hung");
    let lines = end(lab, watching, "fuse-daemon-hung");
    assert!(lines.iter().any(|l| l["type"] == "hung" && l["over"] == true), "{lines:#?}");
    assert!(lines.iter().any(|l| l["state"] == "cleared"), "{lines:#?}");
}

/// With the defaults: a server that does not answer is found to hang after 30 s, and reported as slow before.
#[test]
fn a_watch_that_ends_before_a_cause_is_named_is_no_all_clear() {
    requires!(root_and_btf());
    let lab = Lab::build("fuse-daemon-hung");
    let mut watching = watch(&["--kubelet-root", lab.text("kubelet_root")]);
    lab.start();
    hung(&mut watching, &lab, "in-syscall");
    let (lines, status) = watching.stop();
    // Other tests run beside this one, and what they do to a file system or disk is the whole node's.
    let findings = of_type(&lines, "finding");
    let is_own = |line: &&Value| line["pod"]["uid"] == lab.ready["pod_uid"];
    assert_eq!(findings.iter().copied().find(is_own), None);
    let waits = &summary(&lines)["completeness"]["not_returned"];
    let path = format!("openat of {}/m by kubelet (pid {})", lab.text("path"), lab.ready["pid"]);
    let mut waits = waits.as_array().unwrap().iter().map(|it| it.as_str().unwrap());
    assert!(waits.any(|it| it.starts_with(&path)), "{:#}", summary(&lines));
    assert_eq!(status.code(), Some(if findings.is_empty() { 5 } else { 1 }));
    lab.end();
}

#[test]
fn a_frozen_file_system_is_found_and_a_harmless_outcome_may_be_slow() {
    requires!(root_and_btf());
    let lab = Lab::build("filesystem-frozen");
    let mut watching = lab.watch(&[]);
    lab.start();
    let reported = hung(&mut watching, &lab, "in-syscall");
    // What kubelet removes first of the volume.
    let path = lab.ready["path"].as_str().unwrap().replace("/volumes/", "/plugins/");
    assert_eq!(
        (&reported["syscall"], &reported["path"]),
        (&"unlinkat".into(), &path.as_str().into())
    );
    assert_eq!((&reported["pid"], &reported["state"]), (&lab.ready["pid"], &"D".into()));
    assert!(stack(&reported).contains(&"mnt_want_write"), "{reported:#}");
    let found = finding(&mut watching, &lab, "filesystem-frozen");
    assert_eq!(found["call"]["path"], path, "{found:#}");
    assert_eq!(found["actor"]["pid"], lab.ready["pid"], "{found:#}");

    // Another watch, from now on, has not seen it begin.
    let mut later = lab.watch(&[]);
    let before = hung(&mut later, &lab, "in-syscall");
    assert_eq!(before["since_before_start"], true, "{before:#}");
    assert_eq!((&before["path"], &before["pid"]), (&path.into(), &lab.ready["pid"]));
    assert!(stack(&before).contains(&"mnt_want_write"), "{before:#}");
    finding(&mut later, &lab, "filesystem-frozen");

    obey(found["remedies"][0]["command"].as_str().unwrap());
    for watching in [&mut watching, &mut later] {
        watching.wait_for("end", |line| line["type"] == "hung" && line["over"] == true);
        watching.wait_for("cleared", |line| line["state"] == "cleared");
    }
    drop(later);
    let lines = end(lab, watching, "filesystem-frozen");
    let over = lines.iter().find(|line| line["type"] == "hung" && line["over"] == true).unwrap();
    assert_eq!(over["errno_name"], "EISDIR", "{over:#}");
    assert!(over["age_s"].as_f64().unwrap() > THRESHOLD, "{over:#}");
}

#[test]
fn a_slow_disk_is_found_after_umount2_has_returned() {
    requires!(root_and_btf());
    let export = tempfile::tempdir().unwrap();
    let lab = Lab::build("umount-flush-slow");
    let mut watching = lab.watch(&["--export", export.path().to_str().unwrap()]);
    lab.start();
    let reported = hung(&mut watching, &lab, "after-exit");
    assert_eq!((&reported["syscall"], &reported["path"]), (&"umount2".into(), &lab.ready["path"]));
    assert_eq!((&reported["pid"], &reported["state"]), (&lab.ready["pid"], &"D".into()));
    assert!(stack(&reported).contains(&"task_work_run"), "{reported:#}");
    finding(&mut watching, &lab, "umount-flush-slow");
    let over = watching.wait_for("end", |line| line["type"] == "hung" && line["over"] == true);
    watching.wait_for("cleared", |line| line["state"] == "cleared");
    end(lab, watching, "umount-flush-slow");

    // The phase has a series of its own, and is no call.
    let table = fs::read_to_string(export.path().join("histograms.csv")).unwrap();
    let is_mine = |row: &&str| row.starts_with("umount2/after-exit,ok,") && row.contains(",pv,");
    let row = table.lines().find(is_mine);
    let row: Vec<&str> = row.unwrap_or_else(|| panic!("{table}")).split(',').collect();
    assert_eq!(row[5], "1", "{table}");
    let longest: f64 = row[11].parse().unwrap();
    let age = over["age_s"].as_f64().unwrap();
    assert!((longest / 1e9 - age).abs() < age * 0.07, "{longest} {over:#}");
}

#[test]
fn a_stopped_disk_is_found_after_umount2_has_returned() {
    requires!(root_and_btf());
    let lab = Lab::build("umount-kernel-hang");
    let mut watching = lab.watch(&[]);
    lab.start();
    let reported = hung(&mut watching, &lab, "after-exit");
    assert_eq!((&reported["path"], &reported["pid"]), (&lab.ready["path"], &lab.ready["pid"]));
    assert!(stack(&reported).contains(&"task_work_run"), "{reported:#}");
    let found = finding(&mut watching, &lab, "umount-kernel-hang");
    assert_eq!(found["call"]["path"], lab.ready["path"], "{found:#}");

    // The argument is the only trace that a watch finds which starts now: nothing is mounted there.
    let mut later = lab.watch(&[]);
    let before = hung(&mut later, &lab, "after-exit");
    assert_eq!(before["since_before_start"], true, "{before:#}");
    assert_eq!((&before["path"], &before["pid"]), (&lab.ready["path"], &lab.ready["pid"]));
    finding(&mut later, &lab, "umount-kernel-hang");
    drop(later);
    end(lab, watching, "umount-kernel-hang");
}

/// Ended when dropped; one that waits for a FUSE server ends with that.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

/// `umount PATH` where the lab's mounts are. It becomes `umount` in the same process.
fn umount(lab: &Lab, path: &str) -> Program {
    let mut command = Command::new("nsenter");
    command.args(["--target", &lab.ready["pid"].to_string(), "--mount", "umount", path]);
    Program(command.stderr(Stdio::null()).spawn().unwrap())
}

#[test]
fn an_umount_that_never_comes_to_its_call_is_found() {
    requires!(root_and_btf());
    let lab = Lab::build("fuse-daemon-hung");
    let path = format!("{}/m", lab.text("path"));
    let mut watching = lab.watch(&[]);
    let program = umount(&lab, &path);
    let seen = hung(&mut watching, &lab, "before-umount");
    let pid = Value::from(program.0.id());
    for reported in [seen, {
        // And by one that starts later.
        let mut later = lab.watch(&[]);
        let reported = hung(&mut later, &lab, "before-umount");
        assert_eq!(reported["since"], "process-start", "{reported:#}");
        reported
    }] {
        assert_eq!(
            (&reported["path"], &reported["comm"]),
            (&path.as_str().into(), &"umount".into())
        );
        assert_eq!(reported["pid"], pid, "{reported:#}");
        assert!(stack(&reported).contains(&"request_wait_answer"), "{reported:#}");
    }
    let found = finding(&mut watching, &lab, "fuse-daemon-hung");
    lab.start();
    assert_eq!(
        (&found["actor"]["pid"], &found["actor"]["component"]),
        (&pid, &"umount-helper".into())
    );
    // It ends when the server does, before it comes to unmount.
    drop(program);
    end(lab, watching, "fuse-daemon-hung");
}

#[test]
fn the_tool_goes_on_beside_all_of_them_and_ends_when_asked_to() {
    requires!(root_and_btf());
    let stuck = ["fuse-daemon-hung", "filesystem-frozen", "umount-kernel-hang"].map(Lab::build);
    let (mass, ready) = lab("emptydir-mass-files", &["--entries", "30000", "--rate", "5000"]);
    let roots = stuck.iter().map(|lab| lab.text("kubelet_root"));
    let roots: Vec<&str> = roots
        .chain(ready["kubelet_root"].as_str())
        .flat_map(|root| ["--kubelet-root", root])
        .collect();
    let mut node = watch(&[&["--hung-after", "200ms"], roots.as_slice()].concat());
    stuck.iter().for_each(Lab::start);
    for lab in &stuck {
        let id = lab.text("lab").to_owned();
        // Each is reported at an age of its own, and so perhaps before one that was asked for earlier.
        let is_reported = node.seen.iter().any(|line| {
            line["type"] == "finding"
                && line["id"] == id
                && line["pod"]["uid"] == lab.ready["pod_uid"]
        });
        if !is_reported {
            finding(&mut node, lab, &id);
        }
    }
    // What needs the counts of each second is still found.
    mass.resume();
    node.wait_for("mass deletion", |line| {
        line["id"] == "emptydir-mass-files" && line["pod"]["uid"] == ready["pod_uid"]
    });
    let asked = Instant::now();
    let (lines, _) = node.stop();
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(10) * slowdown(), "{took:?}");
    assert!(summary(&lines)["calls"].as_u64().unwrap() > 1000);
    drop(mass);
    for lab in stuck {
        lab.end();
    }
}
