//! What a new cause changes, as texts.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use super::RULES;

const RULE: &str = include_str!("rule.txt");
const CASE: &str = include_str!("case.txt");
const CATALOGUE: &str = "podstuck-user/engine/src/catalogue.rs";
/// Rows that end so only admit that no cause is known; all causes stand before them.
const ADMISSION: &str = "_UNEXPLAINED,";

/// A file as it is to be.
#[derive(Debug)]
pub(super) struct Edit {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// All of them for a cause of this name, with a lab in this file of cases.
pub(super) fn edits(root: &Path, id: &str, lab: &str) -> Result<Vec<Edit>> {
    let rule = id.replace('-', "_");
    let value = rule.to_uppercase();
    let fill = |template: &str| template.replace("@ID@", id).replace("@STATIC@", &value);
    let file = root.join(format!("{RULES}/{rule}.rs"));
    if file.exists() {
        bail!("{} is there already", file.display());
    }
    let modules = changed(root.join(format!("{RULES}/mod.rs")), |text| {
        with_module(&text, &format!("pub(crate) mod {rule};\n"))
    })?;
    let catalogue = changed(root.join(CATALOGUE), |text| with_row(&text, &rule, &value))?;
    let cases = format!("podstuck-user/lab/src/cases/{lab}.rs");
    let cases = changed(root.join(cases), |text| {
        let (before, after) = text.rsplit_once("\n];\n")?;
        Some(format!("{before}\n{}];\n{after}", fill(CASE)))
    })?;
    Ok(vec![Edit { path: file, text: fill(RULE) }, modules, catalogue, cases])
}

fn changed(path: PathBuf, change: impl FnOnce(String) -> Option<String>) -> Result<Edit> {
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let text = change(text)
        .with_context(|| format!("{} does not look as it is expected to", path.display()))?;
    Ok(Edit { path, text })
}

/// Modules are in the order of their names.
fn with_module(text: &str, line: &str) -> Option<String> {
    let first = text.find("pub(crate) mod ")?;
    let (head, rest) = text.split_at(first);
    let mut lines: Vec<&str> = rest.split_inclusive('\n').collect();
    let at = lines.iter().position(|other| *other > line).unwrap_or(lines.len());
    lines.insert(at, line);
    Some(head.to_owned() + &lines.concat())
}

/// A row, its module, and one more in the table's length.
fn with_row(text: &str, rule: &str, value: &str) -> Option<String> {
    let (before, length) = text.split_once("pub static ALL: [&Cause; ")?;
    let (length, after) = length.split_once(']')?;
    let length = length.parse::<usize>().ok()? + 1;
    let text = format!("{before}pub static ALL: [&Cause; {length}]{after}");
    let first = text.lines().find(|line| line.starts_with("    &") && line.ends_with(ADMISSION))?;
    let (before, after) = text.split_once(first)?;
    let text = format!("{before}    &{rule}::{value},\n{first}{after}");
    // `cargo fmt` puts it where it belongs.
    let (before, after) = text.split_once("    rules::{\n")?;
    Some(format!("{before}    rules::{{\n        {rule},\n{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    #[test]
    fn everything_that_a_cause_needs_is_written() {
        let root = Workspace::locate().unwrap().root;
        let all = edits(&root, "made-up-cause", "busy").unwrap();
        let of = |end: &str| {
            let found = all.iter().find(|edit| edit.path.ends_with(end));
            found.map(|edit| edit.text.as_str()).unwrap()
        };
        assert!(of("rules/made_up_cause.rs").contains("CauseId::new(\"made-up-cause\")"));
        assert!(of("rules/mod.rs").contains("pub(crate) mod made_up_cause;\n"));
        let catalogue = of("catalogue.rs");
        assert!(catalogue.contains("    &made_up_cause::MADE_UP_CAUSE,\n"));
        let length = podstuck_engine::catalogue::ALL.len() + 1;
        assert!(catalogue.contains(&format!("[&Cause; {length}]")));
        let lab = of("cases/busy.rs");
        assert!(
            lab.contains("cause: Some(CauseId::new(\"made-up-cause\"))") && lab.ends_with("];\n"),
            "{lab}"
        );
        assert!(all.iter().all(|edit| !edit.text.contains('@')));
    }

    #[test]
    fn what_does_not_fit_is_an_error_and_writes_nothing() {
        let root = Workspace::locate().unwrap().root;
        assert!(edits(&root, "made-up-cause", "no-such-labs").is_err());
        assert!(edits(&root, "orphan", "busy").is_err(), "a rule of that name is there");
    }

    #[test]
    fn modules_stay_in_order() {
        let text = "//! x\n\npub(crate) mod a;\npub(crate) mod c;\n";
        let expected = "//! x\n\npub(crate) mod a;\npub(crate) mod b;\npub(crate) mod c;\n";
        assert_eq!(with_module(text, "pub(crate) mod b;\n").unwrap(), expected);
    }
}
