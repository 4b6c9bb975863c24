//! A removal that has stopped in the middle, and the tool's own read of what it left.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use nix::{
    sys::wait::{WaitPidFlag, WaitStatus, waitpid},
    unistd::Pid,
};
use podstuck_engine::model::remaining::Remaining;
use podstuck_tests::{Ending, podstuck, podstuck_call};
use serde::Serialize;
use serde_json::{Value, json};

/// What a read may cost, in the helper's form.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct Budget {
    pub(crate) milliseconds: u64,
    pub(crate) directories: u64,
    pub(crate) entries: u64,
    pub(crate) seed: Option<u64>,
}

impl Default for Budget {
    fn default() -> Self {
        Self { milliseconds: 700, directories: 1 << 40, entries: 1 << 40, seed: Some(1) }
    }
}

/// A removal in Go's order. Ended when dropped.
pub(crate) struct Stopped(Ending);

impl Stopped {
    /// Starts it and waits until it has stopped after `entries` entries.
    pub(crate) fn after(top: &Path, entries: u64) -> Self {
        let mut command = Command::new(podstuck_call().with_file_name("podstuck-workload"));
        command.args(["pause", "--calls", &entries.to_string(), "--dir"]).arg(top);
        let child = Self(Ending::start(command.stdout(Stdio::null())));
        let pid = Pid::from_raw(child.0.id().cast_signed());
        let status = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
        assert!(matches!(status, WaitStatus::Stopped(..)), "{status:?}");
        child
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

/// Asks the helper, as the tool does.
pub(crate) fn look(pid: u32, top: &Path, budget: Budget) -> Remaining {
    let request = json!({"Remaining": {"pid": pid, "directory": top, "budget": budget}});
    let mut helper = Command::new(podstuck());
    helper.arg("look").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut helper = helper.spawn().unwrap();
    writeln!(helper.stdin.take().unwrap(), "{request}").unwrap();
    let output = helper.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let left = answer["Answer"]["Ok"].clone();
    serde_json::from_value(left).unwrap_or_else(|error| panic!("{answer}: {error}"))
}
