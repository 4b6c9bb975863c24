//! What the packages say to `cargo binstall`: it names the archives as they are made, and the programs in them.

use std::process::Command;

use podstuck_tests::requires;
use serde_json::Value;

use super::made::{VERSION, architecture, done, made, unpacked};

#[test]
fn each_program_is_where_cargo_binstall_looks_for_it() {
    requires!(made());
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let known: Value = serde_json::from_str(&done(&mut cargo)).unwrap();
    let processors = if architecture() == "arm64" { "aarch64" } else { "x86_64" };
    for (package, program) in
        [("podstuck-user", "podstuck"), ("podstuck-cluster", "kubectl-podstuck")]
    {
        let packages = known["packages"].as_array().unwrap();
        let package = packages.iter().find(|it| it["name"] == package).unwrap();
        let target = format!("{processors}-unknown-linux-musl");
        let settings = &package["metadata"]["binstall"]["overrides"][target];
        let filled = |setting: &str| {
            let text = settings[setting].as_str().unwrap().replace("{ version }", VERSION);
            text.replace("{ bin }", program)
        };
        let url = filled("pkg-url");
        let (place, archive) = url.rsplit_once('/').unwrap();
        assert_eq!(place, format!("{{ repo }}/releases/download/v{VERSION}"));
        let said =
            done(Command::new(unpacked(archive).path().join(filled("bin-dir"))).arg("--version"));
        assert!(said.trim_end().ends_with(VERSION), "{program}: {said}");
    }
}
