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
    /// Write a rule, its row in the catalogue, its test and its lab, to be filled in
    New {
        /// The name of the cause, in kebab-case
        id: String,
        /// The file of labs that it belongs to, as in `busy`
        #[arg(long, default_value = "entries")]
        lab: String,
    },
    /// Run the tests of its rule and of the catalogue, and its lab
    Test {
        /// The name of the cause
        id: String,
    },
}

/// Where rules are.
const RULES: &str = "podstuck-user/engine/src/rules";

/// Runs the command.
pub(crate) fn run(workspace: &Workspace, command: &Command) -> Result<()> {
    match command {
        Command::New { id, lab } => new(workspace, id, lab),
        Command::Test { id } => check(workspace, id),
    }
}

fn new(workspace: &Workspace, id: &str, lab: &str) -> Result<()> {
    if !is_kebab_case(id) {
        bail!("{id:?} is no name for a cause: take words of small letters, joined by dashes");
    }
    if catalogue::find(id).is_some() {
        bail!("there is a cause {id} already: `podstuck explain {id}` says what it means");
    }
    // All or nothing: nothing is written before everything is known to fit.
    let edits = edits(&workspace.root, id, lab)?;
    for Edit { path, text } in &edits {
        fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
        println!("{}", path.strip_prefix(&workspace.root).unwrap_or(path).display());
    }
    println!("\nFill in what is marked FILL IN, and call the rule from a tracker. Then:");
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
    let rule = rule_of(&workspace.root, id)?;
    println!("the rule {rule} and the catalogue");
    let filter = format!("rules::{rule}::");
    process::run(&mut workspace.cargo([
        "test",
        "--package",
        "podstuck-engine",
        "--lib",
        "--",
        &filter,
        "catalogue::",
    ]))?;
    setup::run(workspace)?;
    println!("where it is named, and its lab");
    test::run(workspace, Some("each_cause_has_one_home"))?;
    test::run(workspace, Some(&format!("::{}", id.replace('-', "_"))))
}

/// The rule whose file, or whose folder, has the value of a cause.
fn rule_of(root: &Path, id: &str) -> Result<String> {
    let needle = format!("CauseId::new(\"{id}\")");
    let folder = root.join(RULES);
    for entry in fs::read_dir(&folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry?.path();
        let file = if path.is_dir() { path.join("causes.rs") } else { path.clone() };
        if fs::read_to_string(&file).is_ok_and(|text| text.contains(&needle)) {
            let name = path.file_stem().unwrap_or_default();
            return Ok(name.to_string_lossy().into_owned());
        }
    }
    bail!("no rule in {RULES} has a cause {id}; `cargo xtask cause new {id}` makes one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_found_by_its_cause() {
        let workspace = Workspace::locate().unwrap();
        for (id, rule) in [("orphaned-pod-dir", "orphan"), ("dstate-process", "unkillable")] {
            assert_eq!(rule_of(&workspace.root, id).unwrap(), rule);
        }
        assert!(rule_of(&workspace.root, "no-such-cause").is_err());
    }

    #[test]
    fn only_a_new_name_is_taken() {
        let workspace = Workspace::locate().unwrap();
        for bad in ["", "A-b", "a--b", "-a", "1-a", "a b", "../x"] {
            assert!(new(&workspace, bad, "busy").is_err(), "{bad}");
        }
        assert!(new(&workspace, "orphaned-pod-dir", "busy").is_err());
    }
}
