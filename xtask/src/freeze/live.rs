//! Plays labs: the test of each records it, and those parts of the recordings are compared that do not vary between
//! runs.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{files, is_recording};
use crate::test;
use crate::workspace::Workspace;

/// Runs the test of each lab, which stores a recording in the folder.
pub(super) fn play(workspace: &Workspace, program: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    test::recording_labs(workspace, program.to_owned(), folder.to_owned())
}

/// Compares the labs that both folders contain; a lab that was not played here is named.
pub(super) fn compare(program: &Path, before: &Path, now: &Path) -> Result<()> {
    let mut differences = 0;
    for file in files(before)?.into_iter().filter(|file| is_recording(file)) {
        let name = file.file_name().context("a file has a name")?;
        let played = now.join(name);
        let name = name.to_string_lossy();
        if !played.exists() {
            println!("{name}: was not played");
            continue;
        }
        let (before, now) = (verdict(program, &file)?, verdict(program, &played)?);
        if before != now {
            differences += 1;
            println!("{name}\n  before: {before}\n  now:    {now}");
        }
    }
    if differences > 0 {
        bail!("{differences} labs are answered by other causes than before");
    }
    Ok(())
}

/// The causes in the order of their first mention, each with its last certainty, and the exit status.
fn verdict(program: &Path, recording: &Path) -> Result<String> {
    let mut command = Command::new(program);
    command.args(["replay", "--output", "json"]).arg(recording);
    let output = command.output().with_context(|| format!("cannot run {}", program.display()))?;
    let mut causes: Vec<(String, String)> = Vec::new();
    for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line: Value = serde_json::from_slice(line).context("a line is not JSON")?;
        if line["type"] != "finding" {
            continue;
        }
        let [id, certainty] =
            ["id", "certainty"].map(|key| line[key].as_str().unwrap_or_default().to_owned());
        match causes.iter_mut().find(|(known, _)| *known == id) {
            Some(known) => known.1 = certainty,
            None => causes.push((id, certainty)),
        }
    }
    let causes: Vec<_> = causes.iter().map(|(id, certainty)| format!("{id} {certainty}")).collect();
    Ok(format!("{}; exit status {:?}", causes.join(", "), output.status.code()))
}
