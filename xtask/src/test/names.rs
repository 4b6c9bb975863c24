//! Determines from its text whether a source file has a test whose name contains a filter.
//!
//! Only a build knows the names for certain. This decides what need not be built, so false positives are acceptable.

use std::path::Path;

/// Whether a filter may match a test of this file, whose path is relative to its crate's root.
pub(crate) fn may_have(filter: &str, file: &Path, text: &str) -> bool {
    let tests = tests_of(text);
    if tests.is_empty() {
        return false;
    }
    // A macro that generates tests may take their names from anywhere in the file.
    let made_up = tests.iter().any(|name| name.starts_with('$'));
    let modules: Vec<String> = modules_of(file).chain(inline_modules(text)).collect();
    let mut parts = filter.split("::").filter(|part| !part.is_empty());
    parts.all(|part| {
        let fits = |name: &str| name.contains(part);
        // A file may be included as a module of this name, whatever its own name is.
        "tests".contains(part)
            || tests.iter().any(|name| fits(name))
            || modules.iter().any(|name| fits(name))
            || (made_up && fits(text))
    })
}

/// Whether a test program generates its tests at run time, so that no function is marked as a test.
pub(crate) fn are_made_up(root: &str) -> bool {
    tests_of(root).is_empty() && root.contains("fn main")
}

/// Whether the last part of a filter appears in a string literal, from which generated names come. A hyphen and an
/// underscore are equivalent.
pub(crate) fn quotes(filter: &str, text: &str) -> bool {
    let same = |text: &str| text.replace('_', "-");
    let part = same(filter.rsplit("::").next().unwrap_or(filter));
    text.lines().any(|line| line.split('"').skip(1).step_by(2).any(|q| same(q).contains(&part)))
}

/// The names of the functions that are marked as tests.
fn tests_of(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut marked = false;
    for line in text.lines().map(str::trim) {
        if line.contains("#[test]") || (line.starts_with("#[") && line.contains("::test")) {
            marked = true;
        }
        let Some((_, rest)) = line.split_once("fn ").filter(|_| marked && !line.starts_with("//"))
        else {
            continue;
        };
        let end = |c: char| !(c.is_alphanumeric() || c == '_' || c == '$');
        names.extend(rest.split(end).next());
        marked = false;
    }
    names
}

fn modules_of(file: &Path) -> impl Iterator<Item = String> {
    let without_ending = file.with_extension("");
    let names = without_ending.iter().map(|name| name.to_string_lossy().into_owned());
    names.collect::<Vec<_>>().into_iter()
}

fn inline_modules(text: &str) -> impl Iterator<Item = String> {
    let opened = |line: &str| {
        let (_, rest) = line.trim().split_once("mod ")?;
        rest.strip_suffix('{').map(|name| name.trim().to_owned())
    };
    text.lines().filter_map(opened)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
fn helper() {}
mod inner {
    #[test]
    #[cfg(unix)]
    fn opens_the_door() {}
}
#[tokio::test]
async fn closes_it() {}
";

    fn may(filter: &str) -> bool {
        may_have(filter, Path::new("state/stuck/mod.rs"), TEXT)
    }

    #[test]
    fn names_and_modules_are_found() {
        for filter in ["opens", "the_door", "closes_it", "stuck", "stuck::inner", "inner::opens"] {
            assert!(may(filter), "{filter}");
        }
        for filter in ["helper", "window", "stuck::window", "hinner"] {
            assert!(!may(filter), "{filter}");
        }
    }

    #[test]
    fn a_file_without_tests_has_none() {
        assert!(!may_have("door", Path::new("door.rs"), "fn door() {}"));
    }

    #[test]
    fn names_that_are_made_up_stand_in_quotes() {
        assert!(are_made_up("fn main() { run(all()) }") && !are_made_up(TEXT));
        let text = r#"Case { id: "door-closed", cause: None }"#;
        for filter in ["door_closed", "door-closed", "closed", "family::door_closed"] {
            assert!(quotes(filter, text), "{filter}");
        }
        assert!(!quotes("cause", text));
    }

    #[test]
    fn a_file_that_is_included_under_another_name_is_not_missed() {
        assert!(may("stuck::tests::opens"));
    }

    #[test]
    fn names_that_a_macro_makes_come_from_the_whole_file() {
        let text = "macro_rules! t { ($n:ident) => { #[test] fn $n() {} } }\nt!(made_here);";
        assert!(may_have("made_here", Path::new("x.rs"), text));
        assert!(!may_have("elsewhere", Path::new("x.rs"), text));
    }
}
