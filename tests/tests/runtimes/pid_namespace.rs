//! A container whose first process was killed and cannot end, because of a process outside: one that does not reap a
//! zombie in the container's PID namespace (moby#38005), or a tracer that does not continue the process.

use std::process::Command;

use nix::sys::signal::Signal;
use podstuck_tests::{diagnose, of_type};
use serde_json::Value;

use super::{Ending, Runtimes, by_daemon::signal, daemons::until, obey_nth, output};

const UID: &str = "5e0c8a1e-7a35-4c52-8a5b-2f4f0b1d9c03";
/// Traces a process, is to be notified of its exit (`PTRACE_SEIZE` with `PTRACE_O_TRACEEXIT`), and never looks.
const TRACER: &str = "
import ctypes, sys, time
word = ctypes.c_long
seized = ctypes.CDLL(None).ptrace(word(0x4206), word(int(sys.argv[1])), word(0), word(0x40))
assert seized == 0
time.sleep(3600)
";

/// A container in a pod.
struct Container<'a> {
    runtimes: &'a Runtimes,
    id: String,
    /// Its first process.
    init: u32,
}

impl<'a> Container<'a> {
    fn run(runtimes: &'a Runtimes, id: &str) -> Self {
        let id = id.repeat(32);
        runtimes.run_ctr_in_pod(UID, &id);
        let list = output(runtimes.ctr(&["task", "list"]));
        let line = list.lines().find(|line| line.starts_with(&id)).unwrap();
        let init = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        Self { runtimes, id, init }
    }

    /// The kernel function in which the first process waits after SIGKILL.
    fn waits_in(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/wchan", self.init)).unwrap_or_default()
    }

    fn kill(&self, until_it_waits_in: &str) {
        output(self.runtimes.ctr(&["task", "kill", "--signal", "SIGKILL", &self.id]));
        until("the first process waits", || self.waits_in() == until_it_waits_in);
    }

    /// What is found, firm, about this process outside.
    fn finding(&self, id: &str, outside: &Ending) -> Value {
        let (lines, _) = diagnose(&["--pod-uid", UID, "--timeout", "60s"]).finish();
        let answer = of_type(&lines, "diagnosis").last().copied().unwrap();
        let found = &answer["causes"][0];
        assert_eq!(
            (&found["id"], &found["certainty"], &found["actor"]["pid"]),
            (&id.into(), &"firm".into(), &outside.id().into()),
            "{answer:#}"
        );
        found.clone()
    }

    fn ends_by(self, found: &Value) {
        obey_nth(found, 0);
        until("the first process has ended", || self.waits_in().is_empty());
        self.runtimes.delete_ctr(&self.id);
    }
}

/// The only child of a process.
fn child(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.trim().parse().ok()
}

#[test]
fn a_zombie_whose_parent_outside_is_stopped_is_found() {
    let Some(runtimes) = Runtimes::start() else { return };
    let container = Container::run(&runtimes, "c3");
    let mut command = Command::new("nsenter");
    command.args(["--target", &container.init.to_string(), "--pid", "sleep", "3600"]);
    let outside = Ending::start(&mut command);
    until("its child is in the container", || child(outside.id()).is_some());
    let zombie = child(outside.id()).unwrap();
    signal(outside.id(), Signal::SIGSTOP);
    container.kill("zap_pid_ns_processes");
    let found = container.finding("zombie-not-reaped", &outside);
    let facts = found["evidence"].to_string();
    assert!(facts.contains(&format!("(pid {zombie})")), "{facts}");
    container.ends_by(&found);
}

#[test]
fn a_tracer_that_does_not_continue_a_killed_process_is_found() {
    let Some(runtimes) = Runtimes::start() else { return };
    let container = Container::run(&runtimes, "c4");
    let mut command = Command::new("python3");
    command.args(["-c", TRACER, &container.init.to_string()]);
    let outside = Ending::start(&mut command);
    let status = format!("/proc/{}/status", container.init);
    let traced = format!("TracerPid:\t{}\n", outside.id());
    until("it is traced", || std::fs::read_to_string(&status).unwrap().contains(&traced));
    container.kill("ptrace_stop");
    let found = container.finding("tracer-keeps-process", &outside);
    container.ends_by(&found);
}
