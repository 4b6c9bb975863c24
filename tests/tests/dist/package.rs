//! The Debian package, installed and removed in a root directory of its own.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use podstuck_tests::requires;

use super::made::{VERSION, architecture, artefact, done, has, made, tool};

fn package() -> PathBuf {
    artefact(&format!("podstuck_{VERSION}_{}.deb", architecture()))
}

#[test]
fn the_package_says_what_it_is() {
    requires!(made());
    let field = |name: &str| {
        let said = done(tool("dpkg-deb").arg("--field").arg(package()).arg(name));
        said.trim_end().to_owned()
    };
    assert_eq!([field("Package"), field("Version")], ["podstuck", VERSION]);
    assert_eq!(field("Architecture"), architecture());
    let size: u64 = field("Installed-Size").parse().unwrap();
    assert!(size > 1024, "{size}");
    let listed = done(tool("dpkg-deb").arg("--contents").arg(package()));
    for line in listed.lines() {
        assert!(line.split_whitespace().nth(1) == Some("root/root"), "{line}");
    }
    let pages = listed.lines().filter(|line| line.contains("/man8/podstuck")).count();
    assert!(pages > 8, "{listed}");
}

#[test]
fn the_package_is_installed_and_removed_and_leaves_nothing() {
    let root = if nix::unistd::geteuid().is_root() { Ok(()) } else { Err("not root") };
    requires!(made(), has("dpkg"), root);
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path();
    for part in ["info", "updates"] {
        fs::create_dir_all(top.join("var/lib/dpkg").join(part)).unwrap();
    }
    fs::write(top.join("var/lib/dpkg/status"), "").unwrap();
    let before = files(top);
    let dpkg = |args: &[&str]| {
        let mut dpkg = tool("dpkg");
        // A development build needs libraries, which this root has not.
        dpkg.arg("--force-depends").arg(format!("--root={}", top.display())).args(args);
        done(&mut dpkg)
    };
    dpkg(&["--install", package().to_str().unwrap()]);
    assert!(dpkg(&["--status", "podstuck"]).contains("Status: install ok installed"));
    let program = top.join("usr/bin/podstuck");
    let said = done(Command::new(program).arg("--version"));
    assert_eq!(said, format!("podstuck {VERSION}\n"));
    for file in ["man/man8/podstuck-diagnose.8.gz", "bash-completion/completions/podstuck"] {
        assert!(top.join("usr/share").join(file).is_file(), "{file}");
    }
    dpkg(&["--purge", "podstuck"]);
    let left: Vec<_> = files(top).difference(&before).cloned().collect();
    let of_dpkg = |path: &PathBuf| {
        path.starts_with(top.join("var/lib/dpkg")) || path.starts_with(top.join("var/log"))
    };
    let left: Vec<_> = left.into_iter().filter(|path| !of_dpkg(path)).collect();
    assert!(left.is_empty(), "{left:?}");
}

fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(files(&path));
        } else {
            found.insert(path);
        }
    }
    found
}
