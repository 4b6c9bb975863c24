//! The signed provenance of a release: verified by `cargo xtask dist --verify`, and by the documented commands.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
};

use podstuck_tests::{beside_the_tests, requires};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::made::{PUBLIC_KEY, artefact, done, has, made, new_key, tool};

const BUNDLE: &str = "podstuck.sigstore.json";

/// The artefacts in a folder of the test's own, with another content of one of them.
fn with(name: &str, content: &[u8]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(made().unwrap()).unwrap().map(Result::unwrap) {
        symlink(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    fs::remove_file(folder.path().join(name)).unwrap();
    fs::write(folder.path().join(name), content).unwrap();
    folder
}

/// Whether `cargo xtask dist --verify` accepts them, and what it prints.
fn verified(folder: &Path, key: &Path) -> (bool, String) {
    let mut verify = Command::new(beside_the_tests("xtask"));
    verify.args(["dist", "--verify"]).arg(key).arg("--out").arg(folder);
    let Output { status, stdout, stderr } = verify.output().unwrap();
    (status.success(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

fn changed(of: &str, change: impl Fn(&mut Value)) -> TempDir {
    let mut document = serde_json::from_slice(&fs::read(artefact(of)).unwrap()).unwrap();
    change(&mut document);
    with(of, document.to_string().as_bytes())
}

#[test]
fn a_changed_artefact_or_signature_is_refused() {
    requires!(made());
    let key = artefact(PUBLIC_KEY);
    let (accepts, text) = verified(made().unwrap(), &key);
    assert!(accepts && text.contains("SHA256SUMS: as signed"), "{text}");
    let refuses = |folder: &TempDir, key: &Path, why: &str| {
        let (accepts, text) = verified(folder.path(), key);
        assert!(!accepts && text.contains(why), "{text}");
    };
    let other = with("causes.json", b"{}");
    refuses(&other, &key, "causes.json has the SHA-256");
    let unsigned = "the signature is not by the key";
    let envelope =
        |change: fn(&mut Value)| changed(BUNDLE, move |bundle| change(&mut bundle["dsseEnvelope"]));
    // The statement of another release, with this one's signature; the signature of another statement; none.
    refuses(&envelope(|it| it["payload"] = json!("e30=")), &key, unsigned);
    refuses(&envelope(|it| it["signatures"][0]["sig"] = json!("MAYCAQECAQE=")), &key, unsigned);
    refuses(&envelope(|it| it["signatures"] = json!([])), &key, "no signed envelope");
    let stranger = tempfile::tempdir().unwrap();
    let public = stranger.path().join("public");
    new_key(&stranger.path().join("private"), &public);
    refuses(&changed(BUNDLE, |_| {}), &public, unsigned);
}

#[test]
fn the_statement_says_what_was_packed() {
    requires!(made());
    let statement: Value =
        serde_json::from_slice(&fs::read(artefact("podstuck.intoto.json")).unwrap()).unwrap();
    let dependencies = &statement["predicate"]["buildDefinition"]["resolvedDependencies"];
    let head =
        done(tool("git").args(["rev-parse", "HEAD"]).current_dir(env!("CARGO_MANIFEST_DIR")));
    assert_eq!(dependencies[0]["digest"]["gitCommit"], head.trim());
    // The programs were given, so it names no compiler.
    let names: Vec<_> = dependencies.as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["source", "podstuck", "kubectl-podstuck", "podstuck-agent"]);
}

/// The commands of docs/install.md, in a folder with the public key under the name that they have for it.
#[test]
fn the_documented_commands_verify() {
    requires!(made());
    requires!(has("jq"));
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/install.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("## Verify a release").unwrap();
    let commands = section.split("```bash\n").nth(1).unwrap().split("```").next().unwrap();
    let run = |folder: &Path| {
        let mut bash = tool("bash");
        bash.args(["-euo", "pipefail", "-c", commands]).current_dir(folder).output().unwrap()
    };
    let Output { status, stdout, stderr } = run(made().unwrap());
    let text = String::from_utf8([stdout, stderr].concat()).unwrap();
    assert!(
        status.success() && text.contains("Verified OK") && text.contains("SHA256SUMS: OK"),
        "{text}"
    );
    assert!(!run(with("causes.json", b"{}").path()).status.success());
    let statement = changed("podstuck.intoto.json", |it| it["subject"] = json!([]));
    assert!(!run(statement.path()).status.success());
}
