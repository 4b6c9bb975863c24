//! Real runtimes beside a watch: what is healthy is not reported, and what is stuck is, with the
//! right facts and commands that help.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "runtimes/attributes.rs"]
mod attributes;
#[path = "runtimes/by_container.rs"]
mod by_container;
#[path = "runtimes/by_daemon.rs"]
mod by_daemon;
#[path = "runtimes/cri.rs"]
mod cri;
#[path = "common/runtimes.rs"]
mod daemons;
#[path = "runtimes/full_disk.rs"]
mod full_disk;
#[path = "runtimes/image_volume.rs"]
mod image_volume;
#[path = "runtimes/many.rs"]
mod many;
#[path = "runtimes/out_of_step.rs"]
mod out_of_step;
#[path = "runtimes/pid_namespace.rs"]
mod pid_namespace;
#[path = "runtimes/podman.rs"]
mod podman;
#[path = "runtimes/snapshots.rs"]
mod snapshots;
#[path = "runtimes/storm.rs"]
mod storm;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use daemons::{Runtimes, chattr, output};
use nix::mount::{MsFlags, mount};
use podstuck_tests::{Ending, Running, diagnose, of_type, summary, watch};
use serde_json::Value;

fn watch_below(path: &Path) -> Running {
    watch(&["--path", path.to_str().unwrap()])
}

/// Waits for the next finding, which must be this one.
fn finding(watch: &mut Running, id: &str, state: &str) -> Value {
    let found = watch.wait_for(&format!("{id}, {state}"), |line| {
        line["type"] == "finding" && line["state"] == state
    });
    assert_eq!(found["id"], id, "{found:#}");
    found
}

fn assert_actor(finding: &Value, component: &str, pid: u32) {
    assert_eq!(finding["actor"]["component"], component, "{finding:#}");
    assert_eq!(finding["actor"]["pid"], pid, "{finding:#}");
}

/// Runs the first command that a finding proposes, as it is printed.
fn obey(finding: &Value) -> String {
    obey_nth(finding, 0)
}

fn obey_nth(finding: &Value, nth: usize) -> String {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(finding["remedies"][nth]["command"].as_str().unwrap());
    output(shell)
}

/// How often a call ended so.
fn counted(lines: &[Value], call: &str, outcome: &str) -> u64 {
    summary(lines)["by_outcome"][call][outcome].as_u64().unwrap_or(0)
}

fn assert_complete(lines: &[Value]) {
    let completeness = &summary(lines)["completeness"];
    // Look-alikes are counted on the whole node, and other tests make some.
    let of_others = |what: &str| what.starts_with("look_alike");
    for (what, lost) in completeness.as_object().unwrap().iter().filter(|it| !of_others(it.0)) {
        let none = lost.is_null() || lost.as_array().is_some_and(Vec::is_empty);
        assert!(*lost == 0 || none, "{what}: {completeness:#}");
    }
}

#[test]
fn healthy_containers_are_not_reported() {
    let Some(runtimes) = Runtimes::start() else { return };
    let ours = watch_below(runtimes.top());
    let all = watch(&[]);
    for name in ["first", "second"] {
        runtimes.run_docker(name);
        output(runtimes.docker(&[
            "exec",
            name,
            "sh",
            "-c",
            "mkdir /data/a /b; touch /data/a/f /f",
        ]));
    }
    output(runtimes.docker(&["run", "--rm", "--network", "none", "bb:1", "rm", "/bin/touch"]));
    runtimes.run_ctr("third");
    runtimes.kill_ctr("third");
    runtimes.delete_ctr("third");
    for name in ["first", "second"] {
        output(runtimes.docker(&["rm", "-f", "-v", name]));
    }
    let (lines, status) = ours.stop();
    assert!(of_type(&lines, "finding").is_empty(), "{lines:#?}");
    assert_eq!(status.code(), Some(0), "exit status without a finding");
    assert!(counted(&lines, "unlinkat", "EISDIR") > 0, "{lines:#?}");
    assert!(counted(&lines, "umount2", "ok") > 0, "{lines:#?}");
    assert_complete(&lines);
    // Others may be at work on this machine, but nothing that a runtime did is reported.
    let (lines, _) = all.stop();
    let runtime = |f: &&Value| {
        ["dockerd", "containerd", "containerd-shim", "runc"]
            .map(Value::from)
            .contains(&f["actor"]["component"])
    };
    assert_eq!(of_type(&lines, "finding").into_iter().find(runtime), None);
}

#[test]
fn an_immutable_file_in_a_layer() {
    let Some(runtimes) = Runtimes::start() else { return };
    runtimes.run_docker("guarded");
    let id = runtimes.inspect("guarded", "{{.Id}}");
    output(runtimes.docker(&["exec", "guarded", "sh", "-c", "mkdir -p /d/e; touch /d/e/f /d/g"]));
    let layer = PathBuf::from(runtimes.inspect("guarded", "{{.GraphDriver.Data.UpperDir}}"));
    let file = layer.join("d/e/f");
    chattr("+i", file.to_str().unwrap());

    let mut watch = watch_below(runtimes.top());
    assert!(!runtimes.docker(&["rm", "-f", "guarded"]).output().unwrap().status.success());
    let found = finding(&mut watch, "immutable-attribute", "new");
    assert_actor(&found, "dockerd", runtimes.dockerd());
    assert_eq!(found["call"]["path"], file.to_str().unwrap());
    assert_eq!(found["call"]["syscall"], "unlinkat");
    assert_eq!(found["call"]["errno_name"], "EPERM");
    assert_eq!(found["volume"]["plugin"], "container-layer");
    assert_eq!(found["volume"]["path"], layer.parent().unwrap().to_str().unwrap());
    assert_eq!((&found["container"], &found["container_name"]), (&id.into(), &"guarded".into()));
    assert_eq!(found["blocks_deletion"], true, "dockerd gives up, and the container stays");
    assert!(!runtimes.docker(&["rm", "-f", "guarded"]).output().unwrap().status.success());

    obey(&found);
    runtimes.obey(&found, 1);
    let cleared = finding(&mut watch, "immutable-attribute", "cleared");
    assert_eq!(cleared["call"], found["call"]);
    assert_eq!(cleared["count"], 2, "{cleared:#}");
    let (lines, status) = watch.stop();
    assert_eq!(status.code(), Some(1));
    assert_eq!(counted(&lines, "unlinkat", "EPERM"), 2);
    assert_complete(&lines);
}

#[test]
fn a_mount_in_a_docker_volume() {
    let Some(runtimes) = Runtimes::start() else { return };
    runtimes.run_docker("owner");
    let (volume, id) = (runtimes.volume("owner"), runtimes.inspect("owner", "{{.Id}}"));
    let sub = volume.join("sub");
    fs::create_dir(&sub).unwrap();
    mount(Some("guest"), &sub, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
    for name in ["one", "two", "three"] {
        fs::write(sub.join(name), "").unwrap();
    }
    // The removal takes them as they are listed.
    let first = fs::read_dir(&sub).unwrap().next().unwrap().unwrap().path();

    let mut watch = watch_below(&volume);
    // Docker says that all went well; the volume is left.
    output(runtimes.docker(&["rm", "-f", "-v", "owner"]));
    let found = finding(&mut watch, "removal-crosses-mount", "new");
    assert_actor(&found, "dockerd", runtimes.dockerd());
    assert_eq!(found["severity"], "critical");
    assert_eq!(found["call"]["path"], first.to_str().unwrap());
    assert_eq!(found["call"]["errno_name"], "ok");
    assert_eq!(found["volume"]["plugin"], "docker-volume");
    assert_eq!(found["volume"]["path"], volume.parent().unwrap().to_str().unwrap());
    // The container is deleted before its volume.
    assert_eq!((&found["container"], &found["container_name"]), (&id.into(), &"owner".into()));
    let facts = found["evidence"].to_string();
    assert!(facts.contains("guest of type tmpfs"), "{facts}");
    assert!(fs::read_dir(&sub).unwrap().next().is_none(), "what it reported has happened");

    obey(&found);
    // As dockerd sees it, which may have a mount namespace of its own.
    let seen = format!("/proc/{}/root{}", runtimes.dockerd(), sub.join("four").display());
    let refused = fs::write(seen, "").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "nothing more is lost");
    obey_nth(&found, 1);
    output(runtimes.docker(&["volume", "prune", "--force"]));
    assert!(!volume.exists());
    let (lines, status) = watch.stop();
    assert_eq!(status.code(), Some(1));
    assert_eq!(counted(&lines, "unlinkat", "ok"), 3);
    assert_eq!(counted(&lines, "unlinkat+AT_REMOVEDIR", "EBUSY"), 1);
    assert_complete(&lines);
}

#[test]
fn a_root_file_system_in_use() {
    let Some(runtimes) = Runtimes::start() else { return };
    let root = runtimes.run_ctr("held");
    let mut holder = Command::new("sleep");
    let holder = Ending::start(holder.arg("600").current_dir(&root));
    runtimes.kill_ctr("held");

    let mut watch = watch_below(&root);
    assert!(!runtimes.ctr(&["task", "delete", "held"]).output().unwrap().status.success());
    let found = finding(&mut watch, "shim-rootfs-busy", "new");
    assert_eq!(found["actor"]["component"], "containerd-shim");
    assert_eq!(found["actor"]["comm"], "containerd-shim");
    assert_eq!(found["call"]["path"], root.to_str().unwrap());
    assert_eq!(found["call"]["syscall"], "umount2");
    assert_eq!(found["call"]["errno_name"], "EBUSY");
    assert_eq!(found["container"], "held");
    assert_eq!(found["blocks_deletion"], true);
    let pid = holder.id().to_string();
    let evidence = found["evidence"].to_string();
    assert!(evidence.contains(&pid), "{pid} is not in {evidence}");
    // The remedy ends the processes that hold it.
    obey(&found);

    drop(holder);
    if !runtimes.delete_ctr_again("held") {
        return;
    }
    let cleared = finding(&mut watch, "shim-rootfs-busy", "cleared");
    assert_eq!(cleared["count"], 50, "{cleared:#}");
    let (lines, status) = watch.stop();
    assert_eq!(status.code(), Some(1));
    // The shim tries so often before it gives up.
    assert_eq!(counted(&lines, "umount2", "EBUSY"), 50);
    assert_complete(&lines);
}

/// After the failed attempt, the cause is read from containerd's own log.
#[test]
fn a_root_file_system_in_use_is_found_in_containerds_log() {
    let Some(runtimes) = Runtimes::start() else { return };
    let (uid, id) = ("5e0c8a1e-7a35-4c52-8a5b-2f4f0b1d9c01", "c1".repeat(32));
    let kubelet = tempfile::tempdir().unwrap();
    fs::create_dir_all(kubelet.path().join("pods").join(uid)).unwrap();
    let root = runtimes.run_ctr_in_pod(uid, &id);
    let mut holder = Command::new("sleep");
    let holder = Ending::start(holder.arg("600").current_dir(&root));
    runtimes.kill_ctr(&id);
    assert!(!runtimes.ctr(&["task", "delete", &id]).output().unwrap().status.success());

    let root = kubelet.path().to_str().unwrap();
    let asked = ["--pod-uid", uid, "--kubelet-root", root, "--timeout", "60s"];
    let (lines, _) = diagnose(&asked).finish();
    let answer = of_type(&lines, "diagnosis").last().copied().unwrap();
    let said = answer["said"].as_array().unwrap();
    let of_rootfs =
        |said: &&Value| said["text"].as_str().unwrap().contains("/rootfs: device or resource busy");
    let said = said.iter().find(of_rootfs).unwrap_or_else(|| panic!("{answer:#}"));
    assert_eq!((&said["component"], &said["uid"]), (&"containerd".into(), &uid.into()), "{said:#}");
    assert_eq!(said["complaint"], "rootfs-busy");
    let source = said["source"].as_str().unwrap();
    let log = runtimes.top().join("containerd.log");
    let of_daemon = format!("log of containerd (pid {}), {}", runtimes.containerd(), log.display());
    assert_eq!(source, of_daemon);
    assert!(
        fs::read_to_string(&log)
            .unwrap()
            .contains(said["at"].as_str().unwrap().trim_end_matches('Z'))
    );
    let cause = &answer["causes"][0];
    assert_eq!(cause["id"], "shim-rootfs-busy", "{answer:#}");
    let evidence = cause["evidence"].to_string();
    assert!(evidence.contains(&format!("pid {}", holder.id())), "{evidence}");
    assert!(evidence.contains("containerd says, last at"), "{evidence}");

    drop(holder);
    runtimes.delete_ctr_again(&id);
}
