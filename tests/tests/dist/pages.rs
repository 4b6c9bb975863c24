//! The manual pages, as `man` shows them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use clap::CommandFactory;
use podstuck::cli::Cli;
use podstuck_tests::requires;

use super::made::{VERSION, architecture, done, has, made, tool, unpacked};

fn pages(folder: &Path) -> Vec<PathBuf> {
    let man = folder.join(format!("podstuck-{VERSION}-linux-{}/man", architecture()));
    fs::read_dir(man).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn tarball() -> tempfile::TempDir {
    unpacked(&format!("podstuck-{VERSION}-linux-{}.tar.gz", architecture()))
}

#[test]
fn each_command_has_a_page() {
    requires!(made());
    let folder = tarball();
    let names: BTreeSet<String> = pages(folder.path())
        .iter()
        .map(|page| page.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let cli = Cli::command();
    let commands = cli.get_subcommands().filter(|command| !command.is_hide_set());
    let mut expected: BTreeSet<String> =
        commands.map(|command| format!("podstuck-{}", command.get_name())).collect();
    expected.insert("podstuck".into());
    assert_eq!(names, expected);
}

#[test]
fn pages_render_without_a_warning() {
    requires!(made(), has("man"), has("groff"));
    let folder = tarball();
    for page in pages(folder.path()) {
        let mut man = tool("man");
        // A terminal's width, whatever the tests run in; words longer than that cannot be broken.
        man.args(["--warnings", "-E", "UTF-8", "-l", "-P", "cat"]).arg(&page);
        man.env("MANWIDTH", "100").env("MAN_KEEP_FORMATTING", "1").env("MANROFFOPT", "-rHY=0");
        let output = man.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{}: {said}", page.display());
    }
    // What is on it stands on it: an option, and what it is for.
    let watch = pages(folder.path()).into_iter().find(|page| page.ends_with("podstuck-watch.8"));
    let mut man = tool("man");
    let shown = done(man.args(["-l", "-P", "cat"]).arg(watch.unwrap()).env("MANWIDTH", "100"));
    for part in ["podstuck-watch", "--duration", "--kubelet-root", "Trace live"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}
