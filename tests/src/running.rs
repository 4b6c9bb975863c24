//! The tool and its labs as processes that go on beside a test.

use std::{
    ffi::OsStr,
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::{backend, podstuck, schema::read, slowdown};

/// Longer than anything takes; a test that waits this long has failed. In a guest it says what it has seen before its
/// time is up.
fn longest_wait() -> Duration {
    Duration::from_secs(60) * slowdown().min(3)
}

/// How often the other process is checked.
const OTHER_ENDS: Duration = Duration::from_secs(5);

/// Longer than anything takes that was asked to end.
const SUMMED_UP: Duration = Duration::from_secs(20);

/// A process whose lines arrive as they are printed. Ended when dropped.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    said: Receiver<String>,
    /// All lines so far.
    pub seen: Vec<Value>,
}

impl Running {
    fn start(program: &Path, args: &[&OsStr], environment: &[(&str, &Path)]) -> Self {
        let mut command = Command::new(program);
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs(environment.iter().copied());
        let mut child = command.spawn().expect("starting podstuck");
        let lines = lines_of(child.stdout.take().unwrap());
        let said = lines_of(child.stderr.take().unwrap());
        Self { child, lines, said, seen: Vec::new() }
    }

    /// Waits for a line that fits, and returns it.
    pub fn wait_for(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        self.wait_beside(None, what, fits)
    }

    /// The same while another one goes on, without which there is nothing to wait for.
    pub fn wait_beside(
        &mut self,
        mut other: Option<&mut Self>,
        what: &str,
        fits: impl Fn(&Value) -> bool,
    ) -> Value {
        let end = Instant::now() + longest_wait();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left.min(OTHER_ENDS)) {
                Ok(line) => {
                    let value: Value = serde_json::from_str(&line)
                        .unwrap_or_else(|e| panic!("not JSON ({e}): {line}"));
                    self.seen.push(value.clone());
                    if fits(&value) {
                        return value;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("ended without {what}: {}", self.state())
                }
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    panic!("no {what}; seen: {}", self.state())
                }
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(other) = &mut other
                        && other.has_ended()
                    {
                        panic!(
                            "no {what}: {}\nand the other one has ended: {}",
                            self.state(),
                            other.state()
                        );
                    }
                }
            }
        }
    }

    /// As Ctrl-C does, unless it has ended: whether it had to be asked.
    fn ask_to_end(&mut self) -> bool {
        let goes_on = self.child.try_wait().is_ok_and(|status| status.is_none());
        if goes_on {
            self.signal(Signal::SIGINT);
            // One that is paused would not notice.
            self.resume();
        }
        goes_on
    }

    /// What it has printed, its summary included, and what it waits for, for the message of a test that fails.
    fn state(&mut self) -> String {
        let waits = waits(self.pid());
        self.ask_to_end();
        while let Ok(line) = self.lines.recv_timeout(SUMMED_UP) {
            self.seen.push(serde_json::from_str(&line).unwrap_or(Value::String(line)));
        }
        let said: Vec<String> = self.said.try_iter().collect();
        let said = said.join("\n");
        format!("{:#?}\nstandard error:\n{said}\nwaits in:\n{waits}", self.seen)
    }

    /// All lines that have come so far, without waiting for more.
    pub fn so_far(&mut self) -> &[Value] {
        while let Ok(line) = self.lines.try_recv() {
            self.seen.push(read(&line));
        }
        &self.seen
    }

    /// Its first line; `None` when it ends without one.
    fn first(&mut self) -> Option<Value> {
        match self.lines.recv_timeout(longest_wait()) {
            Ok(line) => {
                let value: Value = read(&line);
                self.seen.push(value.clone());
                Some(value)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no line"),
        }
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
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
        while let Ok(line) = self.lines.recv_timeout(longest_wait()) {
            self.seen.push(read(&line));
        }
        let status = self.child.wait().unwrap();
        (std::mem::take(&mut self.seen), status)
    }

    /// Waits for its end; the exit status, and what it and those that it started complained about.
    pub fn finish_complaining(mut self) -> (ExitStatus, String) {
        let said = self.said.iter().collect::<Vec<_>>().join("\n");
        (self.child.wait().unwrap(), said)
    }

    /// Asks it to stop as Ctrl-C does, and waits for its end, and that its probes are out of the kernel.
    pub fn stop(self) -> (Vec<Value>, ExitStatus) {
        let holder = holder_of(self.pid());
        self.signal(Signal::SIGINT);
        let ended = self.finish();
        if let Some(holder) = holder {
            wait_until_gone(holder);
        }
        ended
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SIGINT, so that a lab cleans up even when its test fails.
        if self.ask_to_end() {
            let _ = self.child.wait();
        }
    }
}

/// All that was started by a process, with their names.
pub fn started_by(pid: u32) -> Vec<(u32, String)> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().map(|child| child.parse::<u32>().unwrap());
    let named = |pid| (pid, fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default());
    children.flat_map(|pid| [vec![named(pid)], started_by(pid)].concat()).collect()
}

/// Where each thread of a process and of those that it started is in the kernel. One that only waits for something
/// to happen is left out.
fn waits(pid: u32) -> String {
    let own = (pid, String::new());
    let processes = [own].into_iter().chain(started_by(pid));
    let threads = processes.flat_map(|(pid, _)| fs::read_dir(format!("/proc/{pid}/task")));
    let mut waits = String::new();
    for thread in threads.flatten().flatten() {
        let read = |name: &str| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
        let (stack, status) = (read("stack"), read("status"));
        if !status.contains("State:\tS") {
            writeln!(waits, "{} {}{stack}", thread.path().display(), read("comm")).unwrap();
        }
    }
    waits
}

/// The process that holds a tool's probes in their hooks.
pub fn holder_of(tool: u32) -> Option<u32> {
    let all = started_by(tool);
    all.into_iter().find(|(_, name)| name == "holder\n").map(|(pid, _)| pid)
}

/// Waits until a process is gone that is no child of the test.
pub fn wait_until_gone(pid: u32) {
    let end = Instant::now() + longest_wait();
    let goes_on = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status"));
        status.is_ok_and(|status| !status.contains("State:\tZ"))
    };
    while goes_on() {
        assert!(Instant::now() < end, "pid {pid} goes on");
        thread::sleep(Duration::from_millis(5));
    }
}

fn lines_of(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Starts `podstuck watch --output json` and waits until it watches.
pub fn watch(args: &[&str]) -> Running {
    trace(&podstuck(), "watch", args)
}

/// Starts `podstuck diagnose --output json` and waits until it watches.
pub fn diagnose(args: &[&str]) -> Running {
    trace(&podstuck(), "diagnose", args)
}

/// The same with `watch` or `diagnose` of a program of one's own.
pub fn trace(program: &Path, command: &str, args: &[&str]) -> Running {
    let backend = backend();
    let attach = backend.iter().flat_map(|name| ["--backend", name.as_str()]);
    let all = [command, "--output", "json"].into_iter().chain(attach).chain(args.iter().copied());
    let all = all.map(OsStr::new);
    let mut running = Running::start(program, &all.collect::<Vec<_>>(), &[]);
    running.wait_for("start line", |line| line["type"] == "start");
    running
}

/// Starts a lab that has built its case, and pauses it before the removal: it goes on when it is
/// resumed. Temporary files lie in memory, unless the case needs attributes that only a disk has.
pub fn lab(case: &str, args: &[&str]) -> (Running, Value) {
    lab_if_possible(case, args).expect("a lab that can be played here")
}

/// The same; `None` where the lab says that this machine lacks what it needs. A user need not hold it: `first_command.rs`
/// plays labs as they are typed. Here the watch of this one pod must count each call from the first on, and the pod's
/// UID is known only when the lab runs.
pub fn lab_if_possible(case: &str, args: &[&str]) -> Option<(Running, Value)> {
    lab_with(case, &[&["--hold", "2s"], args].concat())
}

/// The same, as an hour into the incident: it was tried before, and the next attempt is far away.
pub fn late_lab_if_possible(case: &str, args: &[&str]) -> Option<(Running, Value)> {
    lab_with(case, &[&["--late"], args].concat())
}

fn lab_with(case: &str, args: &[&str]) -> Option<(Running, Value)> {
    let (running, ready) = lab_as_typed(case, args)?;
    running.pause();
    Some((running, ready))
}

/// Starts a lab as a user does: it goes on as soon as its case is built. `None` where this machine lacks what it needs.
pub fn lab_as_typed(case: &str, args: &[&str]) -> Option<(Running, Value)> {
    let all = ["lab", case].into_iter().chain(args.iter().copied()).map(OsStr::new);
    let attribute = case.ends_with("-attribute");
    let environment: &[_] = if attribute { &[] } else { &[("TMPDIR", Path::new("/dev/shm"))] };
    let mut running = Running::start(&podstuck(), &all.collect::<Vec<_>>(), environment);
    let Some(ready) = running.first() else {
        let status = running.child.wait().expect("waiting for podstuck");
        assert_eq!(status.code(), Some(3), "lab {case} ended before it was ready: {status}");
        return None;
    };
    assert_eq!(ready["state"], "ready", "{ready:#}");
    Some((running, ready))
}
