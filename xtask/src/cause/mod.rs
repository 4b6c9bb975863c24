//! `cargo xtask cause`: the files of a new cause, and the tests of one.

mod edit;

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use podstuck_engine::catalogue;
use podstuck_process as process;

use self::edit::{Edit, edits};
use crate::{setup, test, workspace::Workspace};

/// What to do with it.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Write a cause of a family, its rows, its test and its lab, to be filled in
    New {
        /// The name of the cause, in kebab-case
        id: String,
        /// The family that it belongs to: a folder of podstuck-user/engine/src/causes, as in `permission`
        #[arg(long)]
        family: String,
        /// The file of labs that it belongs to, as in `busy`
        #[arg(long, default_value = "entries")]
        lab: String,
    },
    /// Run the tests of its family and of the catalogue, and its lab
    Test {
        /// The name of the cause
        id: String,
    },
}

/// Where families are.
const FAMILIES: &str = "podstuck-user/engine/src/causes";

/// Runs the command.
pub(crate) fn run(workspace: &Workspace, command: &Command) -> Result<()> {
    match command {
        Command::New { id, family, lab } => new(workspace, id, family, lab),
        Command::Test { id } => check(workspace, id),
    }
}

fn new(workspace: &Workspace, id: &str, family: &str, lab: &str) -> Result<()> {
    if !is_kebab_case(id) {
        bail!("{id:?} is no name for a cause: take words of small letters, joined by dashes");
    }
    if catalogue::find(id).is_some() {
        bail!("there is a cause {id} already: `podstuck explain {id}` says what it means");
    }
    // All or nothing: nothing is written before everything is known to fit.
    let edits = edits(&workspace.root, id, family, lab)?;
    for Edit { path, text } in &edits {
        fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
        println!("{}", path.strip_prefix(&workspace.root).unwrap_or(path).display());
    }
    println!(
        "\nFill in what is marked FILL IN, and call `draft` from the family's tracker. Each look-alike in another"
    );
    println!("family names this cause in turn: a test says which do not yet. Then:");
    println!("  cargo xtask cause test {id}\n  cargo xtask docs");
    Ok(())
}

fn is_kebab_case(id: &str) -> bool {
    let word = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    id.split('-').all(word) && id.starts_with(|c: char| c.is_ascii_lowercase())
}

fn check(workspace: &Workspace, id: &str) -> Result<()> {
    let family = family_of(&workspace.root, id)?;
    println!("its family, {family}, and the catalogue");
    let filter = format!("causes::{family}::");
    process::run(&mut workspace.cargo([
        "test",
        "--package",
        "podstuck-engine",
        "--lib",
        "--",
        &filter,
        "catalogue::",
        "causes::tests::",
    ]))?;
    setup::run(workspace)?;
    println!("what it was tried with, and its lab");
    test::run(workspace, Some("what_was_tried"))?;
    test::run(workspace, Some(&format!("::{}", id.replace('-', "_"))))
}

/// The family that has the value of a cause.
fn family_of(root: &Path, id: &str) -> Result<String> {
    let value = id.replace('-', "_").to_uppercase();
    let needle = format!(" id: ids::{value},");
    let folder = root.join(FAMILIES);
    let listing = || format!("listing {}", folder.display());
    for family in fs::read_dir(&folder).with_context(listing)? {
        let family = family?.path();
        let Ok(files) = fs::read_dir(&family) else { continue };
        for file in files {
            if fs::read_to_string(file?.path()).is_ok_and(|text| text.contains(&needle)) {
                let name = family.file_name().unwrap_or_default();
                return Ok(name.to_string_lossy().into_owned());
            }
        }
    }
    bail!("no family in {FAMILIES} has a cause {id}; `cargo xtask cause new {id}` makes one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_found_by_its_cause() {
        let workspace = Workspace::locate().unwrap();
        for (id, family) in [("orphaned-pod-dir", "orphan"), ("dstate-process", "unkillable")] {
            assert_eq!(family_of(&workspace.root, id).unwrap(), family);
        }
        assert!(family_of(&workspace.root, "no-such-cause").is_err());
    }

    #[test]
    fn only_a_new_name_is_taken() {
        let workspace = Workspace::locate().unwrap();
        for bad in ["", "A-b", "a--b", "-a", "1-a", "a b", "../x"] {
            assert!(new(&workspace, bad, "orphan", "busy").is_err(), "{bad}");
        }
        assert!(new(&workspace, "orphaned-pod-dir", "orphan", "busy").is_err());
    }
}
