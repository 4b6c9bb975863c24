//! The catalogue of causes against what else names one: each cause has one home, and each lab its
//! cause.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use podstuck_engine::{
    catalogue::ALL,
    cause::{CauseId, TriedWith},
};
use podstuck_lab::cases;

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Where a cause has its row.
const CATALOGUE: &str = "podstuck-user/engine/src/catalogue.rs";
const RULES: &str = "podstuck-user/engine/src/rules/";
/// Plays one of the labs, and would play another.
const DEMO: &str = "xtask/src/demo.rs";
const LAB: &str = "podstuck-user/lab/";
/// What is played on a real node.
const ON_NODE: [&str; 2] = ["tests/tests/on_node/cases.rs", "tests/tests/on_node/troubles.rs"];
/// What is played with real runtimes.
const RUNTIMES: [&str; 2] = ["tests/tests/runtimes.rs", "tests/tests/runtimes"];
/// What tests make that no lab does.
const MADE: [&str; 4] = [
    "tests/tests/made.rs",
    "tests/tests/api.rs",
    "tests/tests/late/sandbox.rs",
    "tests/tests/paths/linked_root.rs",
];
/// What was captured, and what is concluded of it.
const CAPTURED: &str = "podstuck-user/src/captures_tests.rs";
const CAPTURES: &str = "podstuck-user/src/captures";

#[test]
fn a_lab_has_its_cause_and_a_cause_that_was_tried_with_a_lab_has_one() {
    let labs: BTreeSet<&str> = cases().filter_map(|case| case.cause.map(CauseId::as_str)).collect();
    let tried: BTreeSet<&str> = ALL
        .iter()
        .filter(|cause| cause.tried.contains(&TriedWith::Lab))
        .map(|cause| cause.id.as_str())
        .collect();
    assert_eq!(labs, tried);
}

/// What would have to be touched to delete a cause, apart from the tests of it: the file of its rule,
/// its row in the catalogue and its lab. That another cause looks like it stays true without it.
#[test]
fn each_cause_has_one_home_one_row_and_at_most_one_lab() {
    let statics = statics();
    let sources = sources();
    let on_node = ON_NODE.map(|file| fs::read_to_string(Path::new(WORKSPACE).join(file)).unwrap());
    let on_node = on_node.concat();
    for (cause, name) in ALL.iter().zip(&statics) {
        let literal = format!("\"{}\"", cause.id);
        let mut homes = BTreeMap::<String, Vec<&Path>>::new();
        for (path, text) in &sources {
            if text.contains(&literal) || has_word(text, name) {
                homes.entry(home(path)).or_default().push(path);
            }
        }
        let mut places: Vec<&str> = homes.keys().map(String::as_str).collect();
        places.retain(|place| ![CATALOGUE, LAB, DEMO].contains(place));
        assert_eq!(places.len(), 1, "{} ({name}) is at home in {homes:#?}", cause.id);
        assert!(places[0].starts_with(RULES), "{}: {places:?}", cause.id);
        assert!(homes.contains_key(CATALOGUE), "{}", cause.id);
        let has_lab = cause.tried.contains(&TriedWith::Lab);
        assert_eq!(homes.contains_key(LAB), has_lab, "{}: {homes:#?}", cause.id);
        let on_node = on_node.contains(&format!("cause: {literal},"));
        let claimed = cause.tried.contains(&TriedWith::RealKubelet);
        assert_eq!(on_node, claimed, "{}: tried with a real kubelet", cause.id);
    }
}

/// What a cause is said to have been tried with is there: the test names it. Labs and the real kubelet are compared
/// above.
#[test]
fn each_evidence_that_is_claimed_is_there() {
    let read = |path: &str| fs::read_to_string(Path::new(WORKSPACE).join(path)).unwrap();
    let mut of_runtimes = read(RUNTIMES[0]);
    for entry in fs::read_dir(Path::new(WORKSPACE).join(RUNTIMES[1])).unwrap() {
        of_runtimes.push_str(&fs::read_to_string(entry.unwrap().path()).unwrap());
    }
    let (made, captured) = (MADE.map(read).concat(), read(CAPTURED));
    for cause in ALL {
        let literal = format!("\"{}\"", cause.id);
        let claims = |tried| cause.tried.contains(&tried);
        if claims(TriedWith::RealRuntime) {
            assert!(of_runtimes.contains(&literal), "{}: tried with a real runtime", cause.id);
        }
        if claims(TriedWith::Test) {
            assert!(made.contains(&literal), "{}: tried by a test", cause.id);
        }
        // `("CASE", "CAUSE", "firm"),`
        let answers = captured.lines().filter_map(|line| {
            let (case, rest) = line.trim().strip_prefix("(\"")?.split_once("\", ")?;
            rest.starts_with(&literal).then_some(case)
        });
        let mut cases = answers.peekable();
        assert_eq!(cases.peek().is_some(), claims(TriedWith::Recording), "{}: captured", cause.id);
        for case in cases {
            let file = Path::new(WORKSPACE).join(CAPTURES).join(format!("{case}.txt"));
            assert!(file.exists(), "{}: {}", cause.id, file.display());
        }
    }
}

/// The names of the values in the catalogue, in its order.
fn statics() -> Vec<String> {
    let text = fs::read_to_string(Path::new(WORKSPACE).join(CATALOGUE)).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("    &")?.strip_suffix(','));
    let names: Vec<String> = rows.map(|row| row.rsplit("::").next().unwrap().to_owned()).collect();
    assert_eq!(names.len(), ALL.len(), "{names:?}");
    names
}

/// The source that is no test, with what says of causes only that they look alike left out.
fn sources() -> Vec<(PathBuf, String)> {
    let mut sources = Vec::new();
    for folder in ["podstuck-user", "xtask"] {
        gather(Path::new(folder), &mut sources);
    }
    assert!(sources.len() > 100, "{} files", sources.len());
    sources
}

fn gather(folder: &Path, sources: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(Path::new(WORKSPACE).join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = folder.join(entry.file_name());
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            if name != "target" && name != "tests" {
                gather(&path, sources);
            }
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") && name != "sample.rs" {
            let text = fs::read_to_string(entry.path()).unwrap();
            let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
            sources.push((path, without_look_alikes(code)));
        }
    }
}

/// Leaves out the names in `like("...", ...)` and `id!("...")`.
fn without_look_alikes(code: &str) -> String {
    let mut rest = code;
    let mut kept = String::new();
    while let Some((at, start)) = ["like(", "id!("]
        .iter()
        .filter_map(|word| rest.find(word).map(|at| (at, at + word.len())))
        .min()
    {
        kept.push_str(&rest[..at]);
        let name = rest[start..].trim_start();
        rest = match name.strip_prefix('"').and_then(|name| name.split_once('"')) {
            Some((_, after)) => after,
            None => name,
        };
    }
    kept + rest
}

/// A rule is one file, or one with a folder of the same name; the labs are one place.
fn home(path: &Path) -> String {
    let text = path.to_str().unwrap();
    if text.starts_with(LAB) {
        return LAB.into();
    }
    match text.strip_prefix(RULES) {
        Some(rule) => {
            let rule = rule.split('/').next().unwrap();
            format!("{RULES}{}", rule.strip_suffix(".rs").unwrap_or(rule))
        }
        None => text.into(),
    }
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        !is_part(before.chars().next_back()) && !is_part(after.chars().next())
    })
}
