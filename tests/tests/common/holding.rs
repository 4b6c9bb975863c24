//! Holders that a test makes itself.
#![allow(
    clippy::unwrap_used,
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "a test stops at the first surprise, and each uses a part of this"
)]

use std::{
    fs,
    os::linux::fs::MetadataExt,
    path::Path,
    process::{Command, Stdio},
};

use nix::mount::{MsFlags, mount};
use podstuck_tests::{Ending, Mounted, of_type, own_mounts, run};
use serde_json::Value;
use tempfile::TempDir;

/// A file system in memory, in a mount namespace of this test's thread and its children: another
/// test that copies the node's mounts does not become a holder.
pub struct Memory {
    mounted: Mounted,
    _directory: TempDir,
}

impl Memory {
    pub fn mount() -> Self {
        own_mounts();
        let directory =
            tempfile::Builder::new().prefix("podstuck-test-").tempdir_in("/tmp").unwrap();
        let mounted = Mounted::memory(directory.path(), "size=1m");
        let this = Self { mounted, _directory: directory };
        // As on most nodes, so that it may have copies that receive its unmount.
        mount(None::<&str>, this.path(), None::<&str>, MsFlags::MS_SHARED, None::<&str>).unwrap();
        this
    }

    pub fn path(&self) -> &Path {
        &self.mounted
    }

    pub fn device(&self) -> String {
        let device = fs::metadata(self.path()).unwrap().st_dev();
        format!("{}:{}", nix::sys::stat::major(device), nix::sys::stat::minor(device))
    }
}

/// A process that ends with the test.
pub struct Process(Ending);

impl Process {
    pub fn start(command: &mut Command) -> Self {
        Self(Ending::start(command.stdin(Stdio::null()).stdout(Stdio::null())))
    }

    pub fn sleep_in(directory: &Path) -> Self {
        Self::start(Command::new("sleep").arg("1000").current_dir(directory))
    }

    /// A shell in a mount namespace of its own that runs `script` and then sleeps.
    pub fn unshared(propagation: &str, script: &str) -> Self {
        let script = format!("{script}; echo; exec sleep 1000");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", propagation, "sh", "-c", &script]);
        let mut child = Ending::start(command.stdin(Stdio::null()).stdout(Stdio::piped()));
        // Its line says that the script is over.
        let mut line = [0; 1];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        Self(child)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

pub fn holders(args: &[&str]) -> (Vec<Value>, Option<i32>) {
    let output = run(&[&["holders", "--output", "json"], args].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (lines, output.status.code())
}

pub fn of_process(lines: &[Value], pid: u32) -> Vec<Value> {
    of_type(lines, "holder").into_iter().filter(|h| h["pid"] == pid).cloned().collect()
}
