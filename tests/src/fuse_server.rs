//! The tests' FUSE server as a process.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{ChildStdout, Command, Stdio},
    sync::Mutex,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{Ending, Mounted, beside_the_tests};

/// `podstuck-fuse`, which serves a file system. When this is dropped, requests that wait get an error.
pub struct FuseServer {
    server: Ending,
    said: Mutex<BufReader<ChildStdout>>,
    mounted: Mounted,
}

/// What tests with a FUSE server need.
///
/// # Errors
///
/// When this machine has no FUSE.
pub fn has_fuse() -> Result<(), &'static str> {
    let there = Path::new("/dev/fuse").exists();
    if there { Ok(()) } else { Err("no /dev/fuse") }
}

impl FuseServer {
    /// Starts it, and waits until its file system is mounted.
    pub fn mount(at: impl Into<PathBuf>) -> Self {
        let at = at.into();
        let mut command = Command::new(beside_the_tests("podstuck-fuse"));
        let mut server = Ending::start(command.arg(&at).stdout(Stdio::piped()));
        let said = Mutex::new(BufReader::new(server.stdout.take().unwrap()));
        let this = Self { server, said, mounted: Mounted(at) };
        this.has_said("ready\n");
        this
    }

    /// Where it is mounted.
    pub fn at(&self) -> &Path {
        &self.mounted
    }

    /// Waits for its next line.
    pub fn has_said(&self, what: &str) {
        let mut line = String::new();
        self.said.lock().unwrap().read_line(&mut line).unwrap();
        assert_eq!(line, what);
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.server.id().cast_signed()), signal).unwrap();
    }
}
