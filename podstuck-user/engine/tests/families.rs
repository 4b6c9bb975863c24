//! Families of causes are rooms: one may use another, but none is used by one that it uses.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "the sources are files, and a test that cannot read them stops"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

const CAUSES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/causes");
/// What families have in common: it uses none of them.
const SHARED: &str = "shared";

/// The families whose names stand in a path below `causes`, by the family in whose files they do.
fn uses() -> BTreeMap<String, BTreeSet<String>> {
    let rooms: Vec<_> = fs::read_dir(CAUSES).unwrap().map(|entry| entry.unwrap().path()).collect();
    let rooms: Vec<_> = rooms.into_iter().filter(|path| path.is_dir()).collect();
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let names: BTreeSet<String> = rooms.iter().map(|path| name(path)).collect();
    let mut uses = BTreeMap::new();
    for room in &rooms {
        let mut text = String::new();
        gather(room, &mut text);
        let own = name(room);
        let used = names.iter().filter(|other| **other != own && names_it(&text, other));
        uses.insert(own.clone(), used.cloned().collect());
    }
    uses
}

/// The code of all files, without tests.
fn gather(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            gather(&path, text);
        } else if !path.to_str().unwrap().ends_with("tests.rs") {
            let file = fs::read_to_string(&path).unwrap();
            text.push_str(file.split("#[cfg(test)]").next().unwrap());
        }
    }
}

/// `causes::NAME`, or `NAME` within the braces of a `causes::{...}`.
fn names_it(text: &str, name: &str) -> bool {
    text.match_indices("causes::").any(|(at, start)| {
        let rest = &text[at + start.len()..];
        let Some(inner) = rest.strip_prefix('{') else {
            return is_first(rest, name);
        };
        let mut depth = 0;
        let mut begins = true;
        for (at, c) in inner.char_indices() {
            if begins && depth == 0 && is_first(inner[at..].trim_start(), name) {
                return true;
            }
            begins = c == ',' || (begins && c.is_whitespace());
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => return false,
                '}' => depth -= 1,
                _ => {}
            }
        }
        false
    })
}

fn is_first(text: &str, name: &str) -> bool {
    let rest = text.strip_prefix(name);
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

#[test]
fn no_family_is_used_by_one_that_it_uses() {
    let uses = uses();
    assert!(uses.len() > 15, "{uses:#?}");
    assert!(uses[SHARED].is_empty(), "shared uses {:?}", uses[SHARED]);
    for start in uses.keys() {
        let (mut seen, mut next) = (BTreeSet::new(), vec![start]);
        while let Some(room) = next.pop() {
            for used in &uses[room] {
                assert_ne!(used, start, "by way of {seen:?}");
                if seen.insert(used) {
                    next.push(used);
                }
            }
        }
    }
}

#[test]
fn this_sees_what_is_used() {
    let text = "use crate::{\n    causes::{\n        busy_mount::{self, nested},\n        device,\n    },\n};";
    for (name, is_there) in
        [("busy_mount", true), ("device", true), ("nested", false), ("de", false)]
    {
        assert_eq!(names_it(text, name), is_there, "{name}");
    }
    assert!(names_it("causes::orphan::x()", "orphan"));
}
