//! A container whose init process cannot end, because its PID namespace has a zombie that no process outside reaps
//! (moby#38005).

use std::process::Command;

use nix::sys::signal::Signal;
use podstuck_tests::{diagnose, of_type};

use super::{Ending, Runtimes, by_daemon::signal, daemons::until, obey_nth, output};

const UID: &str = "5e0c8a1e-7a35-4c52-8a5b-2f4f0b1d9c03";

/// The only child of a process.
fn child(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.trim().parse().ok()
}

fn waits_in(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default()
}

#[test]
fn a_zombie_whose_parent_outside_is_stopped_is_found() {
    let Some(runtimes) = Runtimes::start() else { return };
    let id = "c3".repeat(32);
    runtimes.run_ctr_in_pod(UID, &id);
    let list = output(runtimes.ctr(&["task", "list"]));
    let line = list.lines().find(|line| line.starts_with(&id)).unwrap();
    let init: u32 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    let mut command = Command::new("nsenter");
    command.args(["--target", &init.to_string(), "--pid", "sleep", "3600"]);
    let outside = Ending::start(&mut command);
    until("its child is in the container", || child(outside.id()).is_some());
    let zombie = child(outside.id()).unwrap();
    signal(outside.id(), Signal::SIGSTOP);
    output(runtimes.ctr(&["task", "kill", "--signal", "SIGKILL", &id]));
    until("the init process waits", || waits_in(init) == "zap_pid_ns_processes");

    let (lines, _) = diagnose(&["--pod-uid", UID, "--timeout", "60s"]).finish();
    let answer = of_type(&lines, "diagnosis").last().copied().unwrap();
    let found = &answer["causes"][0];
    assert_eq!(
        (&found["id"], &found["certainty"], &found["actor"]["pid"]),
        (&"zombie-not-reaped".into(), &"firm".into(), &outside.id().into()),
        "{answer:#}"
    );
    let facts = found["evidence"].to_string();
    assert!(facts.contains(&format!("(pid {zombie})")), "{facts}");
    obey_nth(found, 0);
    until("the init process has ended", || waits_in(init).is_empty());
    runtimes.delete_ctr(&id);
}
