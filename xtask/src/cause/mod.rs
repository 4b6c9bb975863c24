//! `cargo xtask cause`: the files of a new cause, and the tests of one.

mod edit;

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use podstuck_engine::catalogue;
use podstuck_process as process;

use self::edit::{Edit, LABS, edits};
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
    /// Run the engine's tests, its lab, and the tests of what was tried
    Test {
        /// The name of the cause
        id: String,
    },
}

/// The folder of the families.
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
    // All edits are computed before any is written.
    let edits = edits(&workspace.root, id, family, lab)?;
    println!("Written:");
    let mut left = Vec::new();
    for Edit { path, text } in &edits {
        fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
        let path = path.strip_prefix(&workspace.root).unwrap_or(path);
        println!("  {}", path.display());
        left.extend(not_filled_in(path, text));
    }
    println!("\nTo fill in:\n{}", left.join("\n"));
    println!("{}", next_steps(id));
    Ok(())
}

/// The user's next steps.
fn next_steps(id: &str) -> String {
    let value = value_of(id);
    format!(
        "
Then, in this order:
1. Call `draft` from the family's tracker or verdict, with the facts that it needs.
2. Name this cause in `look_alikes` of each of its look-alikes. Every finding of a look-alike then needs
   `draft.rule_out(ids::{value}, ...)` or `draft.suffices_beside(ids::{value})`:
   without one it is less certain than before. `grep -rn 'ids::LOOK_ALIKE' {FAMILIES}` shows what its findings rule out now.
3. Add a scenario to podstuck-user/engine/src/scenarios, or a line to one that is there.
4. Add the lab to tests/tests/common/obeyed.rs, or the reason to tests/tests/ways_out.rs, and a line to CHANGELOG.md.
5. cargo xtask cause test {id}
   With INSTA_UPDATE=always it records what scenarios and the lab tell: read the difference.
6. cargo xtask docs"
    )
}

/// Each place in a file that has to be filled in.
fn not_filled_in(path: &Path, text: &str) -> Vec<String> {
    let lines = text.lines().enumerate().filter(|(_, line)| line.contains("FILL IN"));
    let place =
        |(at, line): (usize, &str)| format!("  {}:{}: {}", path.display(), at + 1, line.trim());
    lines.map(place).collect()
}

/// The name of a cause's constants.
fn value_of(id: &str) -> String {
    id.replace('-', "_").to_uppercase()
}

fn is_kebab_case(id: &str) -> bool {
    let word = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    id.split('-').all(word) && id.starts_with(|c: char| c.is_ascii_lowercase())
}

fn check(workspace: &Workspace, id: &str) -> Result<()> {
    let root = &workspace.root;
    let family = family_of(root, id)?;
    let mut left = Vec::new();
    for folder in [Path::new(FAMILIES).join(&family), LABS.into()] {
        let listing = || format!("listing {}", folder.display());
        for file in fs::read_dir(root.join(&folder)).with_context(listing)? {
            let file = folder.join(file?.file_name());
            if let Ok(text) = fs::read_to_string(root.join(&file)) {
                left.extend(not_filled_in(&file, &text));
            }
        }
    }
    if !left.is_empty() {
        bail!("{} places are to be filled in:\n{}", left.len(), left.join("\n"));
    }
    println!("the engine's tests: its family, {family}, is confused with causes of others");
    let engine = ["test", "--package", "podstuck-engine", "--lib"];
    process::run(&mut workspace.cargo(engine)).with_context(|| {
        format!(
            "where a finding of another cause is less certain than before, it lacks `rule_out` or `suffices_beside` of \
             ids::{}; where a scenario tells something else, read the difference, and record it by \
             `INSTA_UPDATE=always cargo test -p podstuck-engine --lib scenarios::`",
            value_of(id)
        )
    })?;
    setup::run(workspace)?;
    println!("its lab");
    let filter = Some(format!("::{}", id.replace('-', "_")));
    let its_lab = test::Options { filter, test: vec!["labs".to_owned()], ..Default::default() };
    test::run(workspace, &its_lab).context(
        "where the lab has no snapshot yet, or another one, read the difference, and record it: the same command \
         with INSTA_UPDATE=always",
    )?;
    println!("what it was tried with, and who follows its remedies");
    test::programs(workspace, &["catalogue", "ways_out"])
}

/// The family that defines a cause.
fn family_of(root: &Path, id: &str) -> Result<String> {
    let needle = format!(" id: ids::{},", value_of(id));
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
    fn a_place_to_fill_in_is_named_by_its_line() {
        let text = "a\n  // FILL IN: b\nc\n";
        assert_eq!(not_filled_in(Path::new("d/e.rs"), text), ["  d/e.rs:2: // FILL IN: b"]);
        assert!(next_steps("another-cause").contains("rule_out(ids::ANOTHER_CAUSE, "));
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
