//! The documents as a book: each page is in its table of contents, and each link and anchor leads somewhere, in the
//! book as well as on a forge.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Beside those of the book.
const OTHERS: [&str; 3] = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"];

/// All documents, by their paths below the workspace.
fn documents() -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    gather(Path::new("docs"), &mut found);
    for name in OTHERS {
        found.insert(name.into(), fs::read_to_string(Path::new(WORKSPACE).join(name)).unwrap());
    }
    found
}

fn gather(folder: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(Path::new(WORKSPACE).join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = folder.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            gather(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "md") {
            found.insert(path, fs::read_to_string(entry.path()).unwrap());
        }
    }
}

/// Lines that are text: outside blocks of code.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Without code of any kind.
fn bare(text: &str) -> String {
    let text: String = lines(text).map(|line| format!("{line}\n")).collect();
    // Every other part is code; what a link is called may be, and what it leads to is not.
    let parts = text.split('`').enumerate();
    parts.map(|(nth, part)| if nth % 2 == 0 { part } else { "" }).collect()
}

/// Words that a browser takes for tags, and does not show.
fn tags(text: &str) -> Vec<String> {
    let bare = bare(text);
    let tags = bare.split('<').skip(1).filter_map(|part| part.split_once('>'));
    let tags = tags.map(|(tag, _)| tag.to_owned());
    tags.filter(|tag| tag.starts_with(|c: char| c.is_alphabetic() || c == '/')).collect()
}

/// What links and pictures lead to: `](TARGET)`, outside code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in bare(text).split("](").skip(1) {
        let target = part.split(')').next().unwrap();
        found.push(target.split_whitespace().next().unwrap_or_default().to_owned());
    }
    found
}

/// The anchors of headings, as mdBook and forges name them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeMap::<String, usize>::new();
    let mut anchors = BTreeSet::new();
    for line in lines(text).filter(|line| line.starts_with('#')) {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let before = found.entry(name.clone()).or_default();
        anchors.insert(if *before == 0 { name } else { format!("{name}-{before}") });
        *before += 1;
    }
    anchors
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(plain.pop(), "{} leaves the workspace", path.display()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// What is wrong with the links of a document.
fn broken(from: &Path, text: &str, all: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let mut wrong = Vec::new();
    for link in links(text) {
        if link.starts_with("https://") {
            continue;
        }
        let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
        let to =
            if file.is_empty() { from.into() } else { plain(&from.with_file_name("").join(file)) };
        let there = Path::new(WORKSPACE).join(&to).exists();
        let known =
            anchor.is_empty() || all.get(&to).is_some_and(|text| anchors(text).contains(anchor));
        // A site has what is below docs, and nothing else.
        let leaves = from.starts_with("docs") && !to.starts_with("docs");
        if !there || !known || leaves {
            wrong.push(format!("{}: {link}", from.display()));
        }
    }
    wrong
}

#[test]
fn no_page_uses_words_of_our_own() {
    for (path, text) in documents() {
        if path.starts_with("docs") || path == Path::new("README.md") {
            assert_eq!(podstuck_testing::own_words(&text), [""; 0], "{}", path.display());
        }
    }
}

#[test]
fn each_page_is_in_the_table_of_contents_once() {
    let all = documents();
    let summary = links(&all[Path::new("docs/SUMMARY.md")]);
    let mut listed: Vec<PathBuf> =
        summary.iter().map(|link| Path::new("docs").join(link)).collect();
    listed.sort();
    let is_page = |path: &&PathBuf| path.starts_with("docs") && !path.ends_with("SUMMARY.md");
    let pages: Vec<PathBuf> = all.keys().filter(is_page).cloned().collect();
    assert_eq!(listed, pages);
}

#[test]
fn each_page_has_one_title() {
    for (path, text) in documents().iter().filter(|(path, _)| path.starts_with("docs")) {
        let titles = lines(text).filter(|line| line.starts_with("# ")).count();
        // The table of contents has a title for each of its parts.
        assert!(titles == 1 || path.ends_with("SUMMARY.md"), "{}: {titles}", path.display());
    }
}

#[test]
fn each_link_leads_somewhere() {
    let all = documents();
    let wrong: Vec<String> = all.iter().flat_map(|(path, text)| broken(path, text, &all)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_word_is_taken_for_a_tag() {
    for (path, text) in documents() {
        assert_eq!(tags(&text), [""; 0], "{}", path.display());
    }
    assert_eq!(tags("below `<a>`, <volume> is\n```\n<b>\n```\n<!-- a comment -->"), ["volume"]);
}

#[test]
fn what_is_wrong_is_found() {
    let text = "# One, two: `three`\n\n[a](#one-two-three) `[no](link)`\n```\n[no](code)\n```\n";
    let all = BTreeMap::from([(PathBuf::from("docs/labs.md"), text.to_owned())]);
    assert_eq!(broken(Path::new("docs/labs.md"), text, &all), [""; 0]);
    for wrong in ["[b](missing.md)", "![b](missing.svg)", "[b](#nothing)", "[b](../Cargo.toml)"] {
        assert_eq!(broken(Path::new("docs/labs.md"), wrong, &all).len(), 1, "{wrong}");
    }
}

/// What a first look at the project shows before the first result: two screens of 45 lines.
#[test]
fn the_readme_comes_to_a_result_within_two_screens() {
    let text = &documents()[Path::new("README.md")];
    let result = text.lines().position(|line| line.starts_with("![")).unwrap();
    assert!(result < 90, "line {result}");
    let picture = &links(text)[..].iter().find(|link| link.ends_with(".svg")).unwrap().clone();
    let picture = fs::read_to_string(Path::new(WORKSPACE).join(picture)).unwrap();
    assert!(picture.contains("<svg") && !picture.contains("<script"), "{picture}");
}
