//! The edits for a new cause, as texts.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use super::FAMILIES;

/// Compiled with the engine's tests.
const CAUSE: &str = include_str!("../../../podstuck-user/engine/src/causes/skeleton.rs");
const OF_THE_FORM: &str = "//! The form of a new cause, which `cargo xtask cause new` copies.";
const CASE: &str = include_str!("case.txt");
const IDS: &str = "podstuck-user/engine/src/ids.rs";
/// The folder of the labs.
pub(super) const LABS: &str = "podstuck-user/lab/src/cases";

/// The new content of a file.
#[derive(Debug)]
pub(super) struct Edit {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// All edits for a cause of this name in this family, with a lab in this file of cases.
pub(super) fn edits(root: &Path, id: &str, family: &str, lab: &str) -> Result<Vec<Edit>> {
    let module = id.replace('-', "_");
    let value = module.to_uppercase();
    let folder = root.join(FAMILIES).join(family);
    if !folder.join("mod.rs").exists() {
        bail!("there is no family {family:?}: the families are {}", families(root)?.join(", "));
    }
    let labs = root.join(LABS);
    let cases = labs.join(format!("{lab}.rs"));
    if !cases.exists() {
        bail!("there is no file of labs {lab:?}: take one of {}, without `.rs`", labs.display());
    }
    let file = folder.join(format!("{module}.rs"));
    if file.exists() {
        bail!("{} is there already", file.display());
    }
    let mut tracker = String::new();
    let declared = changed(folder.join("mod.rs"), |text| {
        tracker = text.split_once("id: TrackerId::")?.1.split_once(',')?.0.to_owned();
        let line = format!("pub(crate) mod {module};\n");
        // A small family is a single file, which has no modules yet.
        let text = with_line(&text, "pub(crate) mod ", &line)
            .or_else(|| Some(text.replacen("\nuse ", &format!("\n{line}\nuse "), 1)))?;
        let (before, after) = text.split_once("causes: &[")?;
        let row = match after.starts_with('\n') {
            true => format!("\n        &{module}::{value},"),
            false => format!("&{module}::{value}, "),
        };
        Some(format!("{before}causes: &[{row}{after}"))
    })?;
    let of_cause = CAUSE
        .replace(OF_THE_FORM, "//! FILL IN: what fails how, and what that means.")
        .replace("CauseId::new(\"made-up-cause\")", &format!("ids::{value}"))
        .replace("CauseId, ", "")
        .replace("MADE_UP_CAUSE", &value)
        .replace("made-up-cause", id)
        .replace("TrackerId::Busy", &format!("TrackerId::{tracker}"))
        .replace("    #[ignore = \"it is filled in where it is copied to\"]\n", "");
    let ids = changed(root.join(IDS), |text| {
        let (head, rows) = text.split_once("\nids! {\n")?;
        let rows = with_line(rows, "    ", &format!("    {value} = \"{id}\",\n"))?;
        Some(format!("{head}\nids! {{\n{rows}"))
    })?;
    let cases = changed(cases, |text| {
        let (before, after) = text.rsplit_once("\n];\n")?;
        let case = CASE.replace("@ID@", id).replace("@STATIC@", &value);
        Some(format!("{before}\n{case}];\n{after}"))
    })?;
    Ok(vec![Edit { path: file, text: of_cause }, declared, ids, cases])
}

/// The names of all families.
fn families(root: &Path) -> Result<Vec<String>> {
    let folder = root.join(FAMILIES);
    let listing = || format!("listing {}", folder.display());
    let mut families = Vec::new();
    for entry in fs::read_dir(&folder).with_context(listing)? {
        let entry = entry?;
        // The families' shared code has no causes.
        if fs::read_to_string(entry.path().join("mod.rs")).is_ok_and(|it| it.contains("causes: &["))
        {
            families.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    families.sort_unstable();
    Ok(families)
}

fn changed(path: PathBuf, change: impl FnOnce(String) -> Option<String>) -> Result<Edit> {
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let text = change(text)
        .with_context(|| format!("{} does not look as it is expected to", path.display()))?;
    Ok(Edit { path, text })
}

/// Inserts a line in order among the lines that begin with `start`.
fn with_line(text: &str, start: &str, line: &str) -> Option<String> {
    let first = text.find(start)?;
    let (head, rest) = text.split_at(first);
    let mut lines: Vec<&str> = rest.split_inclusive('\n').collect();
    let goes_before = |other: &&str| !other.starts_with(start) || *other > line;
    let at = lines.iter().position(goes_before).unwrap_or(lines.len());
    lines.insert(at, line);
    Some(head.to_owned() + &lines.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    #[test]
    fn everything_that_a_cause_needs_is_written() {
        let root = Workspace::locate().unwrap().root;
        let all = edits(&root, "another-cause", "permission", "busy").unwrap();
        let of = |end: &str| {
            let found = all.iter().find(|edit| edit.path.ends_with(end));
            found.map(|edit| edit.text.as_str()).unwrap()
        };
        let cause = of("permission/another_cause.rs");
        assert!(cause.contains("id: ids::ANOTHER_CAUSE,"), "{cause}");
        assert!(cause.contains("TrackerId::Refused, &ANOTHER_CAUSE"), "{cause}");
        let family = of("permission/mod.rs");
        assert!(family.starts_with("//! ") && family.contains("pub(crate) mod another_cause;\n"));
        let row = "    causes: &[\n        &another_cause::ANOTHER_CAUSE,\n        &";
        assert!(family.contains(row), "{family}");
        assert!(of("src/ids.rs").contains("    ANOTHER_CAUSE = \"another-cause\",\n    APP"));
        let lab = of("cases/busy.rs");
        assert!(lab.contains("cause: Some(ids::ANOTHER_CAUSE)") && lab.ends_with("];\n"), "{lab}");
        let small = edits(&root, "another-cause", "orphan", "busy").unwrap();
        let family = &small[1].text;
        assert!(
            family.starts_with("//! ")
                && family.contains("\npub(crate) mod another_cause;\n\nuse ")
        );
        assert!(family.contains("causes: &[&another_cause::ANOTHER_CAUSE, "), "{family}");
        let form = ["made-up", "MADE_UP", "CauseId", "ignore", OF_THE_FORM, "@"];
        assert!(form.iter().all(|word| !cause.contains(word) && !lab.contains('@')), "{cause}");
    }

    #[test]
    fn what_does_not_fit_is_an_error_and_writes_nothing() {
        let root = Workspace::locate().unwrap().root;
        assert!(edits(&root, "made-up-cause", "permission", "no-such-labs").is_err());
        let no_family = edits(&root, "made-up-cause", "no-such-family", "busy").unwrap_err();
        let says = no_family.to_string();
        assert!(says.contains(", permission, ") && !says.contains("shared"), "{says}");
        assert!(edits(&root, "protected", "permission", "busy").is_err(), "the file is there");
    }

    #[test]
    fn lines_stay_in_order() {
        let text = "//! x\n\npub(crate) mod a;\npub(crate) mod c;\n\nuse x;\n";
        let with = |line: &str| with_line(text, "pub(crate) mod ", line).unwrap();
        assert_eq!(
            with("pub(crate) mod b;\n"),
            text.replace(" mod c", " mod b;\npub(crate) mod c")
        );
        assert_eq!(
            with("pub(crate) mod d;\n"),
            text.replace(" mod c;", " mod c;\npub(crate) mod d;")
        );
    }
}
