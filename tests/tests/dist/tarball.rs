//! The tarball, and the checksums of all.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use podstuck_tests::requires;

use super::made::{PUBLIC_KEY, VERSION, architecture, done, made, tool, unpacked};

#[test]
fn the_tarballs_program_runs_and_the_licences_are_beside_it() {
    requires!(made());
    let name = format!("podstuck-{VERSION}-linux-{}", architecture());
    let folder = unpacked(&format!("{name}.tar.gz"));
    let top = folder.path().join(&name);
    let said = done(Command::new(top.join("podstuck")).arg("--version"));
    assert_eq!(said, format!("podstuck {VERSION}\n"));
    for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "LICENSE-GPL-2.0", "man/podstuck.8"]
    {
        let mode = fs::metadata(top.join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644, "{file}");
    }
}

#[test]
fn each_artefact_has_a_checksum_that_holds() {
    requires!(made());
    let folder = made().unwrap();
    let said =
        done(tool("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(folder));
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    // The provenance names the checksums' file, too.
    let without = ["SHA256SUMS", "podstuck.intoto.json", "podstuck.sigstore.json", PUBLIC_KEY];
    for file in files.filter(|name| !without.iter().any(|it| name == it)) {
        let line = format!("{}: OK", file.display());
        assert!(said.lines().any(|said| said == line), "{line}\n{said}");
    }
}
