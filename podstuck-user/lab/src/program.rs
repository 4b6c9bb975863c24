//! Runs system programs that some cases need.

use std::{
    ffi::OsStr,
    io,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};

use super::Unsupported;

/// Runs a program to completion.
///
/// # Errors
/// [`Unsupported`], with the program's output, if it is missing or fails.
pub(super) fn run<'a>(program: &str, arguments: impl IntoIterator<Item = &'a OsStr>) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    let output = match command.output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Unsupported(format!("this case needs the program {program}")).into());
        }
        output => output.with_context(|| format!("cannot run {program}"))?,
    };
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Unsupported(format!("{program} does not work here: {}", said.trim())).into())
}
