//! The engine reads no clock, no file and no environment, and queries no process: its input is events. Clippy
//! forbids the calls by name (`clippy.toml`); this test searches for every way to reach such a call, including ways
//! that are not on that list.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "the sources are files, and a test that cannot read them stops"
)]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Modules of `std` with external effects, and types of other crates that have them.
const OUTSIDE: [&str; 10] =
    ["fs", "env", "process", "thread", "net", "io", "Instant", "SystemTime", "File", "OpenOptions"];
/// The same as full paths, without a `use`.
const CALLS: [&str; 13] = [
    "std::fs",
    "std::env",
    "std::process",
    "std::thread",
    "std::net",
    "std::io",
    "std::os::unix::net",
    "Instant",
    "SystemTime",
    "Timestamp::now",
    "Zoned::now",
    "File::",
    "libc::",
];
/// Dependencies without external effects.
const PURE: [&str; 11] = [
    // The error type of failed commands (`exit.rs`).
    "anyhow",
    "base64",
    "jiff",
    "lru",
    "podstuck-common",
    "podstuck-model",
    // Derives the JSON schema of the output.
    "schemars",
    "serde",
    "serde_json",
    "thiserror",
    "unicode-properties",
];

/// The model crate and the engine crate.
const CRATES: [&str; 2] = ["../model", "."];

fn manifests() -> impl Iterator<Item = PathBuf> {
    CRATES.into_iter().map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join(name))
}

/// All source files of both crates without tests, by their path below `src`.
fn sources() -> Vec<(String, String)> {
    let all: Vec<_> = manifests().flat_map(|manifest| sources_of(&manifest.join("src"))).collect();
    assert!(all.len() > 100, "only {} files", all.len());
    all
}

fn sources_of(root: &Path) -> Vec<(String, String)> {
    let (mut found, mut directories) = (Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                directories.push(path);
            } else if name.ends_with(".rs")
                && !name.contains("tests")
                && name != "testing.rs"
                && !name.starts_with("scenarios")
            {
                found.push((name, code(&fs::read_to_string(&path).unwrap())));
            }
        }
    }
    found
}

/// The code of a file without comments and tests, which come last.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = text.lines().map(|line| match line.trim_start().starts_with("//") {
        true => "",
        false => line.split(" // ").next().unwrap_or_default(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The `use` declarations of `std`, split into words.
fn imports(code: &str) -> Vec<Vec<&str>> {
    let declarations = code.split("use std::").skip(1);
    let until_end = declarations.map(|rest| rest.split(';').next().unwrap_or_default());
    until_end.map(words).collect()
}

fn words(code: &str) -> Vec<&str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty()).collect()
}

#[test]
fn nothing_reaches_outside() {
    for (name, code) in sources() {
        for call in CALLS {
            assert!(!code.contains(call), "{name}: {call}");
        }
        for import in imports(&code) {
            let bad = import.iter().find(|word| OUTSIDE.contains(word));
            assert!(bad.is_none(), "{name}: use std::...{bad:?}");
        }
    }
}

#[test]
fn proc_and_sys_are_only_in_what_people_read() {
    for (name, code) in sources() {
        let is_of_cause = name.starts_with("causes/") && !name.ends_with("tracker.rs");
        let in_words = is_of_cause
            || name.starts_with("chain/")
            || ["cause.rs", "command.rs", "waits.rs"].contains(&name.as_str());
        for tree in ["\"/proc", "\"/sys", "\"/dev"] {
            for opened in ["Path::new(", "PathBuf::from("] {
                assert!(!code.contains(&format!("{opened}{tree}")), "{name}: {opened}{tree}");
            }
        }
        let tree = ["/proc", "/sys/"].into_iter().find(|tree| code.contains(tree));
        assert!(in_words || tree.is_none(), "{name}: {tree:?}");
    }
}

#[test]
fn it_depends_on_nothing_that_reaches_outside() {
    for manifest in manifests() {
        let manifest = fs::read_to_string(manifest.join("Cargo.toml")).unwrap();
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next();
        let names = dependencies.unwrap().lines().filter_map(|line| line.split(['.', ' ']).next());
        let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
        assert!(!names.is_empty());
        for name in names {
            assert!(PURE.contains(&name), "{name}: does it read a clock, a file or a process?");
        }
    }
}

#[test]
fn this_looks_at_what_it_says() {
    let text = "use std::{\n    fs,\n    time::Duration,\n};\n// std::env\nlet a = 1; // File::\n#[cfg(test)]\nmod tests";
    let code = code(text);
    assert_eq!(imports(&code), [["fs", "time", "Duration"]]);
    assert!(!code.contains("std::env") && !code.contains("File::") && !code.contains("cfg"));
}
