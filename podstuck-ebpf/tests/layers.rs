//! The files of the probes are in layers: no file uses one that uses it, however indirectly.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};

/// Each file with those that it uses.
type Uses = BTreeMap<PathBuf, BTreeSet<PathBuf>>;

fn source_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            source_files(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn is(token: Option<&TokenTree>, text: &str) -> bool {
    token.is_some_and(|token| token.to_string() == text)
}

fn begins_with_colons(tokens: &[TokenTree]) -> bool {
    is(tokens.first(), ":") && is(tokens.get(1), ":")
}

/// Adds the files that a path or a tree of paths leads to, which begins in a folder.
fn follow(folder: &Path, tokens: &[TokenTree], found: &mut BTreeSet<PathBuf>) {
    match tokens.first() {
        Some(TokenTree::Ident(name)) => {
            let file = folder.join(format!("{name}.rs"));
            if file.is_file() {
                found.insert(file);
            } else if begins_with_colons(&tokens[1..]) {
                let up = folder.parent().filter(|_| name == "super");
                let next = up.map_or_else(|| folder.join(name.to_string()), Path::to_path_buf);
                follow(&next, &tokens[3..], found);
            }
        }
        Some(TokenTree::Group(group)) => {
            let inside: Vec<TokenTree> = group.stream().into_iter().collect();
            for branch in inside.split(|token| is(Some(token), ",")) {
                follow(folder, branch, found);
            }
        }
        _ => {}
    }
}

/// Adds the files that are named anywhere, from the root of the crate or relative to this folder.
fn search(tokens: TokenStream, root: &Path, folder: &Path, found: &mut BTreeSet<PathBuf>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        if let TokenTree::Group(group) = token {
            search(group.stream(), root, folder, found);
        }
        let begins_a_path = at == 0 || !is(tokens.get(at - 1), ":");
        if begins_a_path && begins_with_colons(&tokens[at + 1..]) {
            match token.to_string().as_str() {
                "crate" => follow(root, &tokens[at + 3..], found),
                "super" => follow(folder, &tokens[at + 3..], found),
                _ => {}
            }
        }
    }
}

fn uses(root: &Path) -> Result<Uses, Box<dyn Error>> {
    let mut files = Vec::new();
    source_files(root, &mut files)?;
    let mut uses = Uses::new();
    for file in files {
        let tokens = fs::read_to_string(&file)?.parse()?;
        let mut found = BTreeSet::new();
        search(tokens, root, file.parent().unwrap_or(root), &mut found);
        // A macro names its own file for the sake of those who use it.
        found.remove(&file);
        uses.insert(file, found);
    }
    Ok(uses)
}

/// What is left when, again and again, all that use nothing else are taken away: the cycles, and what
/// leads to them.
fn unordered(mut uses: Uses) -> Uses {
    loop {
        let lowest: BTreeSet<PathBuf> =
            uses.iter().filter(|(_, used)| used.is_empty()).map(|(file, _)| file.clone()).collect();
        if lowest.is_empty() {
            return uses;
        }
        uses.retain(|file, _| !lowest.contains(file));
        for used in uses.values_mut() {
            used.retain(|file| !lowest.contains(file));
        }
    }
}

#[test]
fn no_file_of_the_probes_uses_one_that_uses_it() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let uses = uses(&root)?;
    let highest = &uses[&root.join("probes/hook/function.rs")];
    assert!(highest.contains(&root.join("probes/exit.rs")), "the reader is blind: {highest:?}");
    let cycles = unordered(uses);
    assert!(cycles.is_empty(), "these files use each other: {cycles:#?}");
    Ok(())
}

#[test]
fn a_cycle_and_all_that_leads_to_it_are_found() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text);
    fs::create_dir(folder.path().join("upper"))?;
    write("lowest.rs", "//! Not `crate::middle`.\nfn f() {}")?;
    write("middle.rs", "use super::{lowest::f, upper::{self, one::{g}}};")?;
    write("upper/one.rs", "macro_rules! m { () => { crate::other::h() } }")?;
    write("upper/two.rs", "use super::one; use super::super::middle::k;")?;
    write("other.rs", "use crate::{middle, lowest};")?;
    let names: Vec<PathBuf> = unordered(uses(folder.path())?).into_keys().collect();
    let expected = ["middle.rs", "other.rs", "upper/one.rs", "upper/two.rs"];
    assert_eq!(names, expected.map(|name| folder.path().join(name)));
    Ok(())
}
