//! What the whole-program tests share: the tool, its labs, and callers with a truth of their own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, geteuid},
};
use podstuck::kernel::hooks::Form;
use serde_json::Value;

/// Longer than anything takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// How much slower than a real machine this one is: an emulated one gets smaller workloads.
pub fn slowdown() -> u32 {
    let told = std::env::var("PODSTUCK_TEST_SLOWDOWN").ok();
    told.map_or(1, |text| text.parse().expect("PODSTUCK_TEST_SLOWDOWN is a number")).max(1)
}

/// How the tests are to attach, if that is not left to the tool.
pub fn backend() -> Option<String> {
    std::env::var("PODSTUCK_TEST_BACKEND").ok().filter(|name| !name.is_empty())
}

/// Time for what was asked about the last call: it is answered within a second.
pub fn settle() {
    thread::sleep(Duration::from_millis(1500) * slowdown().min(2));
}

/// Whether this test can run; says why if not.
pub fn root_and_btf() -> bool {
    let reason = if !geteuid().is_root() {
        "not root"
    } else if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        "no /sys/kernel/btf/vmlinux"
    } else {
        return true;
    };
    eprintln!("skipped: {reason}");
    false
}

/// Whether this machine has loop devices and ext4; says why a test is skipped if not.
pub fn has_loop_devices() -> bool {
    let there = Path::new("/dev/loop-control").exists()
        && std::fs::read_to_string("/proc/filesystems").is_ok_and(|all| all.contains("\text4\n"));
    if !there {
        eprintln!("skipped: no loop devices or no ext4");
    }
    there
}

/// Whether it can swap to a file, too.
pub fn can_swap() -> bool {
    let there = Path::new("/proc/swaps").exists();
    if !there {
        eprintln!("skipped: a kernel without swap");
    }
    there && has_loop_devices()
}

/// The forms of hooks that the tests use: what `PODSTUCK_TEST_BACKEND` says, as `--backend` does,
/// else the best that works.
pub fn forms() -> &'static [Form] {
    match backend().as_deref() {
        None => &[Form::Function, Form::Tracepoint],
        Some("fentry") => &[Form::Function],
        Some("tracepoint") => &[Form::Tracepoint],
        Some(other) => panic!("PODSTUCK_TEST_BACKEND={other}"),
    }
}

/// The tool: where `PODSTUCK_BIN` says, else where cargo builds it.
pub fn podstuck() -> PathBuf {
    if let Some(path) = std::env::var_os("PODSTUCK_BIN") {
        return path.into();
    }
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("podstuck")
}

/// Runs the tool to its end.
pub fn run(args: &[&str]) -> Output {
    Command::new(podstuck()).args(args).output().expect("running podstuck")
}

/// A process whose lines arrive as they are printed. Ended when dropped.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    /// All lines so far.
    pub seen: Vec<Value>,
}

impl Running {
    fn start(args: &[&OsStr], environment: &[(&str, &Path)]) -> Self {
        let mut command = Command::new(podstuck());
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::null());
        command.envs(environment.iter().copied());
        let mut child = command.spawn().expect("starting podstuck");
        let lines = lines_of(child.stdout.take().unwrap());
        Self { child, lines, seen: Vec::new() }
    }

    /// Waits for a line that fits, and returns it.
    pub fn wait_for(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE * slowdown();
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let value: Value = serde_json::from_str(&line)
                        .unwrap_or_else(|e| panic!("not JSON ({e}): {line}"));
                    self.seen.push(value.clone());
                    if fits(&value) {
                        return value;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("no {what}; seen: {:#?}", self.seen),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("ended without {what}: {:#?}", self.seen)
                }
            }
        }
    }

    /// Its first line; `None` when it ends without one.
    fn first(&mut self) -> Option<Value> {
        match self.lines.recv_timeout(PATIENCE * slowdown()) {
            Ok(line) => {
                let value: Value = serde_json::from_str(&line).expect("a line of JSON");
                self.seen.push(value.clone());
                Some(value)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no line"),
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Stops its clock, so that whatever is started next is ready before it goes on.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Waits for its end; all lines and the exit status.
    pub fn finish(mut self) -> (Vec<Value>, ExitStatus) {
        while let Ok(line) = self.lines.recv_timeout(PATIENCE * slowdown()) {
            self.seen.push(serde_json::from_str(&line).expect("a line of JSON"));
        }
        let status = self.child.wait().unwrap();
        (std::mem::take(&mut self.seen), status)
    }

    /// Asks it to stop as Ctrl-C does, and waits for its end.
    pub fn stop(self) -> (Vec<Value>, ExitStatus) {
        self.signal(Signal::SIGINT);
        self.finish()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SIGINT, so that a lab cleans up even when its test fails.
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            self.signal(Signal::SIGINT);
            // One that is paused would not notice.
            self.resume();
            let _ = self.child.wait();
        }
    }
}

fn lines_of(stdout: ChildStdout) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Starts `podstuck watch --output json` and waits until it watches.
pub fn watch(args: &[&str]) -> Running {
    trace("watch", args)
}

/// Starts `podstuck diagnose --output json` and waits until it watches.
pub fn diagnose(args: &[&str]) -> Running {
    trace("diagnose", args)
}

fn trace(command: &str, args: &[&str]) -> Running {
    let backend = backend();
    let attach = backend.iter().flat_map(|name| ["--backend", name.as_str()]);
    let all = [command, "--output", "json"].into_iter().chain(attach).chain(args.iter().copied());
    let all = all.map(OsStr::new);
    let mut running = Running::start(&all.collect::<Vec<_>>(), &[]);
    running.wait_for("start line", |line| line["type"] == "start");
    running
}

/// Starts a lab that has built its case, and pauses it before the removal: it goes on when it is
/// resumed. Temporary files lie in memory, unless the case needs attributes that only a disk has.
pub fn lab(case: &str, args: &[&str]) -> (Running, Value) {
    lab_if_possible(case, args).expect("a lab that can be played here")
}

/// The same; `None` where the lab says that this machine lacks what it needs.
pub fn lab_if_possible(case: &str, args: &[&str]) -> Option<(Running, Value)> {
    let all = ["lab", case, "--hold", "2s"].into_iter().chain(args.iter().copied()).map(OsStr::new);
    let attribute = case.ends_with("-attribute");
    let environment: &[_] = if attribute { &[] } else { &[("TMPDIR", Path::new("/dev/shm"))] };
    let mut running = Running::start(&all.collect::<Vec<_>>(), environment);
    let Some(ready) = running.first() else {
        let status = running.child.wait().expect("waiting for podstuck");
        assert_eq!(status.code(), Some(3), "lab {case} ended before it was ready: {status}");
        return None;
    };
    assert_eq!(ready["state"], "ready", "{ready:#}");
    running.pause();
    Some((running, ready))
}

/// Lines of one type.
pub fn of_type<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == kind).collect()
}

/// The summary of a run.
pub fn summary(lines: &[Value]) -> &Value {
    of_type(lines, "summary").last().expect("a summary")
}

/// Makes calls in a process of its own; its own tally of them.
pub fn call(args: &[&OsStr]) -> Value {
    let program = podstuck_call();
    let output = Command::new(&program).args(args).output().expect("running podstuck-call");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    serde_json::from_slice(&output.stdout).expect("a tally")
}

/// Where cargo puts the caller: beside the tests.
pub fn podstuck_call() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("podstuck-call")
}

/// A UID as the API gives them.
pub const UID: &str = "7b0c6a52-95b0-4a57-9f43-0d6f1f9a2c11";

/// An emptyDir of a made-up pod below a directory.
pub fn empty_dir(top: &Path) -> PathBuf {
    let volume = top.join("pods").join(UID).join("volumes/kubernetes.io~empty-dir/data");
    std::fs::create_dir_all(&volume).unwrap();
    volume
}

/// Adds up tallies of the form `{call: {outcome: count}}`; empty calls count as absent.
pub fn add_up(tallies: &[&Value]) -> std::collections::BTreeMap<String, u64> {
    let mut sum = std::collections::BTreeMap::new();
    for tally in tallies {
        for (call, outcomes) in tally.as_object().unwrap() {
            for (outcome, count) in outcomes.as_object().unwrap() {
                *sum.entry(format!("{call} {outcome}")).or_default() += count.as_u64().unwrap();
            }
        }
    }
    sum
}

/// That what was counted is the truth, to the last call. Where the kernel itself ran no probes now
/// and then (Linux 7 under tracepoints, in an emulated machine), that what is missing was told.
pub fn assert_counted(summary: &Value, tallies: &[&Value]) {
    let (counted, truth) = (add_up(&[&summary["by_outcome"]]), add_up(tallies));
    let lost = &summary["completeness"];
    let told = ["probes_skipped", "unmatched_exits"].map(|name| lost[name].as_u64().unwrap());
    let told: u64 = told.iter().sum();
    if told == 0 || slowdown() == 1 {
        assert_eq!(counted, truth, "{lost:#}");
        return;
    }
    let missing = truth.iter().map(|(what, calls)| {
        let seen = counted.get(what).copied().unwrap_or(0);
        calls.checked_sub(seen).unwrap_or_else(|| panic!("{what}: {seen} of {calls} calls"))
    });
    let missing: u64 = missing.sum();
    assert!(missing <= told, "{missing} calls are missing: {lost:#}");
    println!("measured: {missing} calls missing, {told} told, of {}", truth.values().sum::<u64>());
}
