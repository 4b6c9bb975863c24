//! Data flows one way: in no crate is a room used by one that it uses, however indirectly. A room is a folder with all that
//! is in it; files that stand beside each other are of one room, and may use each other.
#![allow(
    clippy::unwrap_used,
    reason = "the sources are files, and a test that cannot read them stops"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};

/// The crate in which not even files use each other.
const STRICT: &str = "podstuck-ebpf";

/// A module's path in its crate, such as `["causes", "orphan"]`.
type Module = Vec<String>;
/// In a folder, each room with those that it uses.
type Rooms = BTreeMap<Module, BTreeMap<String, BTreeSet<String>>>;

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The sources of a crate by their modules, without its tests: those may look at what comes later.
fn modules(source: &Path, at: &Module, found: &mut BTreeMap<Module, TokenStream>) {
    for entry in fs::read_dir(source).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if name == "bin" || name == "tests" || name.ends_with("_tests") {
            continue;
        }
        let inner: Module = at.iter().cloned().chain([name.clone()]).collect();
        if path.is_dir() {
            modules(&path, &inner, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let module = match name.as_str() {
                "mod" => at.clone(),
                "lib" | "main" if at.is_empty() => Module::new(),
                _ => inner,
            };
            let text = fs::read_to_string(&path).unwrap();
            found.insert(module, without_tests(text.parse().unwrap()));
        }
    }
}

/// Without what stands behind `#[cfg(test)]`.
fn without_tests(tokens: TokenStream) -> TokenStream {
    let mut kept = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        if let TokenTree::Group(attribute) = &token
            && attribute.to_string().replace(' ', "") == "[cfg(test)]"
        {
            // To the end of the item: its block, or a semicolon.
            for part in tokens.by_ref() {
                let is_block = matches!(&part, TokenTree::Group(group)
                    if group.delimiter() == proc_macro2::Delimiter::Brace);
                if is_block || part.to_string() == ";" {
                    break;
                }
            }
            continue;
        }
        kept.push(token);
    }
    kept.into_iter().collect()
}

fn is(token: Option<&TokenTree>, text: &str) -> bool {
    token.is_some_and(|token| token.to_string() == text)
}

fn begins_with_colons(tokens: &[TokenTree]) -> bool {
    is(tokens.first(), ":") && is(tokens.get(1), ":")
}

/// Adds the modules that a path, or a tree of paths, leads to from this one.
fn follow(
    at: &[String],
    tokens: &[TokenTree],
    all: &BTreeSet<&Module>,
    found: &mut BTreeSet<Module>,
) {
    match tokens.first() {
        Some(TokenTree::Ident(name)) if name == "super" && begins_with_colons(&tokens[1..]) => {
            if let Some((_, up)) = at.split_last() {
                follow(up, &tokens[3..], all, found);
            }
        }
        Some(TokenTree::Ident(name)) => {
            let inner: Module = at.iter().cloned().chain([name.to_string()]).collect();
            if !all.contains(&inner) {
                // Something of this module.
                found.insert(at.to_vec());
            } else if begins_with_colons(&tokens[1..]) {
                follow(&inner, &tokens[3..], all, found);
            } else {
                found.insert(inner);
            }
        }
        Some(TokenTree::Group(group)) => {
            let inside: Vec<TokenTree> = group.stream().into_iter().collect();
            for branch in inside.split(|token| is(Some(token), ",")) {
                follow(at, branch, all, found);
            }
        }
        _ => {}
    }
}

/// Adds the modules that are named anywhere in the tokens of this one.
fn search(
    module: &Module,
    tokens: TokenStream,
    all: &BTreeSet<&Module>,
    found: &mut BTreeSet<Module>,
) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        if let TokenTree::Group(group) = token {
            search(module, group.stream(), all, found);
        }
        let begins_a_path = at == 0 || !is(tokens.get(at - 1), ":");
        if !begins_a_path || !begins_with_colons(&tokens[at + 1..]) {
            continue;
        }
        match token.to_string().as_str() {
            "crate" => follow(&[], &tokens[at + 3..], all, found),
            "self" => follow(module, &tokens[at + 3..], all, found),
            "super" => follow(module, &tokens[at..], all, found),
            _ => {}
        }
    }
}

/// The rooms of each folder of a crate.
fn rooms(source: &Path) -> Rooms {
    let mut sources = BTreeMap::new();
    modules(source, &Module::new(), &mut sources);
    let all: BTreeSet<&Module> = sources.keys().collect();
    let mut rooms = Rooms::new();
    for (module, tokens) in &sources {
        let mut used = BTreeSet::new();
        search(module, tokens.clone(), &all, &mut used);
        for used in used {
            let common = module.iter().zip(&used).take_while(|(one, other)| one == other).count();
            // A room may use its own rooms, and these what it has for all of them.
            if let (Some(room), Some(other)) = (module.get(common), used.get(common)) {
                let folder = rooms.entry(module[..common].to_vec()).or_default();
                folder.entry(room.clone()).or_default().insert(other.clone());
                folder.entry(other.clone()).or_default();
            }
        }
    }
    rooms
}

/// The rooms that lead back to themselves.
fn in_cycles(uses: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&String> {
    let reaches_itself = |start: &&String| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![*start]);
        while let Some(room) = next.pop() {
            next.extend(uses[room].iter().filter(|used| seen.insert(*used)));
        }
        seen.contains(start)
    };
    uses.keys().filter(reaches_itself).collect()
}

/// The folders of all crates with their rooms.
fn all_rooms() -> Vec<(String, Rooms)> {
    let manifest = fs::read_to_string(format!("{WORKSPACE}/Cargo.toml")).unwrap();
    let members = manifest.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
    let members = members.split('"').skip(1).step_by(2);
    members
        .map(|member| (member.to_owned(), rooms(&Path::new(WORKSPACE).join(member).join("src"))))
        .collect()
}

#[test]
fn no_room_is_used_by_one_that_it_uses() {
    let all = all_rooms();
    let engine = &all.iter().find(|(name, _)| name == "podstuck-user/engine").unwrap().1;
    let families = &engine[&vec!["causes".to_owned()]];
    assert!(families["busy_mount"].contains("shared"), "the reader is blind: {families:#?}");
    assert!(families["shared"].is_empty(), "what families share uses {:?}", families["shared"]);
    let mut cycles = Vec::new();
    for (name, rooms) in all {
        let source = Path::new(WORKSPACE).join(&name).join("src");
        for (folder, uses) in rooms {
            let cycle = in_cycles(&uses);
            let at: PathBuf = folder.iter().collect();
            let is_room = |room: &&String| source.join(&at).join(room).is_dir();
            if cycle.iter().any(|room| name == STRICT || is_room(room)) {
                cycles.push(format!("{name}/src/{}: {cycle:?}", at.display()));
            }
        }
    }
    assert!(cycles.is_empty(), "these rooms use each other:\n{}", cycles.join("\n"));
}

#[test]
fn a_cycle_is_found_and_what_leads_to_it_is_not_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    fs::create_dir(folder.path().join("upper")).unwrap();
    write(
        "lowest.rs",
        "//! Not `crate::middle`.\nfn f() {}\n#[cfg(test)]\nmod tests { use crate::other; }",
    );
    write("middle.rs", "use super::{lowest::f, upper::{self, one::{g}}};");
    write("upper/mod.rs", "mod one; mod two; use self::one::x;");
    write("upper/one.rs", "macro_rules! m { () => { crate::other::h() } } use super::Common;");
    write("upper/two.rs", "use super::one; use super::super::middle::k;");
    write("other.rs", "use crate::lowest;");
    let rooms = rooms(folder.path());
    assert_eq!(Vec::from_iter(in_cycles(&rooms[&Module::new()])), ["middle", "upper"]);
    let upper = &rooms[&vec!["upper".to_owned()]];
    assert!(in_cycles(upper).is_empty() && upper["two"].contains("one"), "{upper:?}");
}
