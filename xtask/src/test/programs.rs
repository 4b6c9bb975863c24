//! The test programs that cargo builds, started one by one: so the failed ones and the duration of each are known
//! exactly, not derived from cargo's output.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use podstuck_process as process;
use serde_json::Value;

use crate::workspace::Workspace;

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The name of its target, such as `labs`
    pub(crate) name: String,
    /// Whether it has the unit tests of a library or of a program
    pub(crate) is_of_a_crate: bool,
    executable: PathBuf,
    /// The folder of its package, in which cargo runs tests
    folder: PathBuf,
}

impl Program {
    /// The command with these options, as `cargo test` would run it.
    pub(crate) fn command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(&self.executable);
        command.args(options).current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

#[cfg(test)]
impl Program {
    /// A shell script in place of a test program, for tests of this crate.
    pub(super) fn of_script(folder: &Path, name: &str, script: &str) -> Self {
        let executable = folder.join(format!("{name}.sh"));
        // Written by a child, because another test's child could inherit an open descriptor while this is executed
        // (ETXTBSY).
        let write = r#"printf %s "$1" >"$2" && chmod +x "$2""#;
        process::run(Command::new("sh").args(["-c", write, "sh", script]).arg(&executable))
            .unwrap();
        let folder = folder.to_owned();
        Self { name: name.to_owned(), is_of_a_crate: false, executable, folder }
    }
}

/// Builds the selection, given as arguments of `cargo test`.
pub(crate) fn build(workspace: &Workspace, selection: &[&str]) -> Result<Vec<Program>> {
    let mut cargo = workspace.cargo(["test", "--no-run"]);
    cargo.args(selection).arg("--message-format=json-render-diagnostics");
    // Its progress remains visible.
    let output = cargo.stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start `{}`", process::show(&cargo)))?;
    if !output.status.success() {
        bail!("`{}` failed: {}", process::show(&cargo), output.status);
    }
    listed(&String::from_utf8_lossy(&output.stdout))
}

/// The test programs in cargo's messages, one per line, sorted by name; the messages are in build order.
fn listed(messages: &str) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    for message in messages.lines() {
        let message: Value =
            serde_json::from_str(message).with_context(|| format!("not cargo's: {message}"))?;
        let (Some(executable), Some(true)) =
            (message["executable"].as_str(), message["profile"]["test"].as_bool())
        else {
            continue;
        };
        let name = message["target"]["name"].as_str().context("cargo names no target")?;
        let manifest = message["manifest_path"].as_str().context("cargo names no manifest")?;
        let folder = Path::new(manifest).parent().context("a manifest lies in a folder")?;
        programs.push(Program {
            name: name.to_owned(),
            is_of_a_crate: message["target"]["kind"][0] != "test",
            executable: executable.into(),
            folder: folder.into(),
        });
    }
    programs.sort_by(|one, other| (&one.folder, &one.name).cmp(&(&other.folder, &other.name)));
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_separated_from_what_else_cargo_builds() {
        let messages = r#"
{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml","target":{"name":"tool"},"profile":{"test":false},"executable":"/w/target/debug/tool"}
{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml","target":{"kind":["test"],"name":"two"},"profile":{"test":true},"executable":"/w/target/debug/deps/two-1"}
{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml","target":{"kind":["lib"],"name":"one"},"profile":{"test":true},"executable":"/w/target/debug/deps/one-1"}
{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml","target":{"name":"library"},"profile":{"test":false},"executable":null}
{"reason":"build-finished","success":true}"#;
        let program = |name: &str, is_of_a_crate: bool| Program {
            name: name.into(),
            is_of_a_crate,
            executable: format!("/w/target/debug/deps/{name}-1").into(),
            folder: "/w/a".into(),
        };
        assert_eq!(listed(messages.trim()).unwrap(), [program("one", true), program("two", false)]);
        assert!(listed("no JSON").is_err());
    }
}
