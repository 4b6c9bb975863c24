//! A shell that puts something in place, says so, and takes it away again when its standard input
//! ends: also when the lab is killed.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result};

use super::Staged;
use crate::lab::Unsupported;

/// Runs until it is dropped.
#[derive(Debug)]
struct Script(Child);

/// Starts a script in a mount namespace of its own, and waits for its line. Without one it could not
/// do its work; why stands on standard error.
pub(super) fn stage<A: AsRef<OsStr>>(text: &str, arguments: &[A]) -> Result<Staged> {
    let mut child = Command::new("unshare")
        .args(["--mount", "sh", "-c", text, "podstuck-lab"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // Ctrl-C is for the lab.
        .process_group(0)
        .spawn()
        .context("cannot start `unshare`")?;
    let output = child.stdout.take().context("the script has no output")?;
    let script = Script(child);
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).context("cannot read what the script says")?;
    if line.is_empty() {
        let message = "this case cannot be played on this machine; what is missing stands above";
        return Err(Unsupported(message.into()).into());
    }
    Ok(Box::new(script))
}

impl Drop for Script {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
