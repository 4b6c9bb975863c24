//! A daemon that does nothing, while what it has started lives: known from what is there, with no log.

use std::{
    fs,
    process::{Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_tests::watch;

use super::{Runtimes, by_container::ask, finding, obey, output};

pub(crate) fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
}

#[test]
fn a_dockerd_that_a_signal_has_stopped() {
    let Some(runtimes) = Runtimes::start() else { return };
    runtimes.run_docker("kept");
    let id = runtimes.inspect("kept", "{{.Id}}");
    let mut live = watch(&["--container", "kept"]);
    let (answer, status) = ask("kept", &["--timeout", "8s"]);
    assert_eq!((answer["causes"].as_array().unwrap().len(), status), (0, Some(5)));
    signal(runtimes.dockerd(), Signal::SIGSTOP);
    let mut remove = runtimes.docker(&["rm", "-f", "kept"]).stdout(Stdio::null()).spawn().unwrap();
    let found = finding(&mut live, "runtime-hang", "new");
    let (answer, status) = ask("kept", &["--timeout", "60s"]);
    let late = &answer["causes"][0];
    assert_eq!((&late["id"], status), (&"runtime-hang".into(), Some(1)), "{answer:#}");
    for found in [&found, late] {
        assert_eq!(
            (&found["certainty"], &found["blocks_deletion"]),
            (&"firm".into(), &true.into())
        );
        assert_eq!(found["container"], id.as_str());
        let facts = found["evidence"].to_string();
        assert!(facts.contains(&format!("process {} is stopped", runtimes.dockerd())), "{facts}");
    }
    assert_eq!(remove.try_wait().unwrap(), None, "the client of dockerd waits");
    obey(late);
    assert!(remove.wait().unwrap().success());
    finding(&mut live, "runtime-hang", "cleared");
    let _ = live.stop();
}

/// What a process has open, and may have.
fn may_open(pid: u32, most: usize) {
    let mut limit = Command::new("prlimit");
    output({
        limit.arg(format!("--pid={pid}")).arg(format!("--nofile={most}:"));
        limit
    });
}

#[test]
fn a_dockerd_that_has_used_up_its_descriptors() {
    let Some(runtimes) = Runtimes::start() else { return };
    runtimes.run_docker("kept");
    let dockerd = runtimes.dockerd();
    let open = fs::read_dir(format!("/proc/{dockerd}/fd")).unwrap().count();
    let mut live = watch(&["--container", "kept"]);
    // Fewer than it has: one that is closed must not be enough to go on.
    may_open(dockerd, open / 2);
    let mut remove = runtimes.docker(&["rm", "-f", "kept"]).stdout(Stdio::null()).spawn().unwrap();
    let found = finding(&mut live, "runtime-hang", "new");
    let (answer, status) = ask("kept", &["--timeout", "60s"]);
    let late = &answer["causes"][0];
    assert_eq!((&late["id"], status), (&"runtime-hang".into(), Some(1)), "{answer:#}");
    for found in [&found, late] {
        assert_eq!(
            (&found["certainty"], &found["container_name"]),
            (&"firm".into(), &"kept".into())
        );
        let facts = found["evidence"].to_string();
        assert!(facts.contains(&format!("of {} allowed", open / 2)), "{facts}");
    }
    assert_eq!(remove.try_wait().unwrap(), None, "nobody takes its connection");
    obey(late);
    assert!(remove.wait().unwrap().success());
    finding(&mut live, "runtime-hang", "cleared");
    let _ = live.stop();
}

#[test]
fn a_dockerd_that_was_killed() {
    let Some(mut runtimes) = Runtimes::start() else { return };
    runtimes.run_docker("kept");
    let mut live = watch(&["--container", "kept"]);
    runtimes.kill_dockerd();
    let found = finding(&mut live, "runtime-down", "new");
    let (answer, _) = ask("kept", &["--timeout", "60s"]);
    for found in [&found, &answer["causes"][0]] {
        assert_eq!((&found["id"], &found["certainty"]), (&"runtime-down".into(), &"firm".into()));
        assert_eq!(found["container_name"], "kept", "{found:#}");
        let facts = found["evidence"].to_string();
        assert!(facts.contains("no process of dockerd runs; 1 of its shims is alive"), "{facts}");
    }
    assert_eq!(answer["containers"][0]["stage"], "running");
    runtimes.start_dockerd();
    finding(&mut live, "runtime-down", "cleared");
    output(runtimes.docker(&["rm", "-f", "kept"]));
    let _ = live.stop();
}

#[test]
fn a_containerd_that_was_killed_under_a_pods_shim() {
    let Some(mut runtimes) = Runtimes::start() else { return };
    let (uid, id) = ("5e0c8a1e-7a35-4c52-8a5b-2f4f0b1d9c03", "c3".repeat(32));
    runtimes.run_ctr_in_pod(uid, &id);
    let mut live = watch(&["--container", &id]);
    runtimes.kill_containerd();
    let found = finding(&mut live, "runtime-down", "new");
    let (answer, _) = ask(&id, &["--timeout", "60s"]);
    let socket = runtimes.top().join("containerd.sock");
    for found in [&found, &answer["causes"][0]] {
        assert_eq!((&found["id"], &found["certainty"]), (&"runtime-down".into(), &"firm".into()));
        assert_eq!((&found["pod"]["uid"], &found["container"]), (&uid.into(), &id.clone().into()));
        let facts = found["evidence"].to_string();
        let expected =
            format!("no process listens on {}, the socket through which shims", socket.display());
        assert!(facts.contains(&expected), "{facts}");
    }
    runtimes.start_containerd();
    finding(&mut live, "runtime-down", "cleared");
    runtimes.kill_ctr(&id);
    runtimes.delete_ctr(&id);
    let _ = live.stop();
}
