//! The program's dependencies, as CycloneDX lists.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::architecture::Architecture;
use crate::cargo_tool::CargoTool;
use crate::copy::copy_to;
use crate::workspace::Workspace;
use podstuck_process as process;

const CARGO_CYCLONEDX: CargoTool =
    CargoTool { name: "cargo-cyclonedx", version: "0.5.9", features: &[] };

/// The program and its embedded probes, each with its compilation target.
const PARTS: [(&str, Option<&str>); 2] =
    [("podstuck-user", None), ("podstuck-ebpf", Some("bpfel-unknown-none"))];

/// Writes a list for each part into a folder, `PART.cdx.json`; returns the files.
pub(crate) fn write(
    workspace: &Workspace,
    folder: &Path,
    architecture: Architecture,
) -> Result<Vec<PathBuf>> {
    CARGO_CYCLONEDX.ensure(workspace)?;
    let own = architecture.target();
    // The tool writes next to every manifest of a workspace.
    let copy = tempfile::tempdir().context("creating a folder for a copy")?;
    copy_to(workspace, copy.path())?;
    // The list's time is the commit's, so that the same source yields the same list.
    let commit = process::output(
        Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(&workspace.root),
    )?;
    let mut written = Vec::new();
    for (part, target) in PARTS {
        let manifest = copy.path().join(part).join("Cargo.toml");
        let mut list = workspace.cargo(["cyclonedx", "--format", "json", "--spec-version", "1.5"]);
        list.arg("--manifest-path").arg(&manifest);
        list.args(["--target", target.unwrap_or(&own), "--override-filename", "list"]);
        // Without build dependencies and tests, which are not part of the program.
        list.args(["--no-build-deps", "--quiet"]);
        list.env("SOURCE_DATE_EPOCH", commit.trim());
        process::run(list.current_dir(copy.path()))?;
        let (from, to) =
            (manifest.with_file_name("list.json"), folder.join(format!("{part}.cdx.json")));
        fs::copy(&from, &to)
            .with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
        written.push(to);
    }
    Ok(written)
}
