//! Where the artefacts come from: an in-toto Statement v1 with the predicate SLSA Provenance v1. It names the SHA-256 of
//! each artefact, the commit, the compiler and the command. It has no times, so that the same source yields the same
//! statement.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use podstuck_process as process;
use serde_json::{Value, json};

use super::{Options, Release, read, signature, write};
use crate::cargo_tool::CargoTool;
use crate::checksum::sha256;
use crate::setup::Rustc;

const STATEMENT: &str = "https://in-toto.io/Statement/v1";
const PREDICATE: &str = "https://slsa.dev/provenance/v1";
const NAME: &str = "podstuck.intoto.json";
const BUNDLE: &str = "podstuck.sigstore.json";

/// Writes the statement about the artefacts, and with a key also the signed one; returns the files.
pub(super) fn make(
    release: &Release<'_>,
    options: &Options,
    artefacts: &[PathBuf],
) -> Result<Vec<PathBuf>> {
    let subjects = artefacts.iter().map(|file| {
        let name = file.file_name().context("an artefact has a name")?.to_string_lossy();
        Ok(json!({"name": name, "digest": {"sha256": sha256(file)?}}))
    });
    let subjects: Vec<Value> = subjects.collect::<Result<_>>()?;
    let url = release.release_url.trim_end_matches('/');
    let statement = json!({
        "_type": STATEMENT,
        "subject": subjects,
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": format!("{url}/cargo-xtask-dist/v1"),
                "externalParameters": {
                    "command": "cargo xtask dist",
                    "version": release.version,
                    "own": options.own,
                    "image": release.image,
                    "releaseUrl": release.release_url,
                },
                "resolvedDependencies": dependencies(release, options)?,
            },
            "runDetails": {"builder": {"id": format!("{url}/maintainer")}},
        },
    });
    let statement = format!("{statement:#}\n");
    let mut made = vec![release.out.join(NAME)];
    write(&made[0], statement.as_bytes())?;
    match &options.sign {
        Some(key) => {
            let bundle = signature::bundle(key, statement.as_bytes())?;
            made.push(release.out.join(BUNDLE));
            write(&made[1], format!("{bundle:#}\n").as_bytes())?;
        }
        None => eprintln!("note: {NAME} is not signed; --sign KEY signs it"),
    }
    Ok(made)
}

/// What the artefacts are made of.
fn dependencies(release: &Release<'_>, options: &Options) -> Result<Vec<Value>> {
    let root = &release.workspace.root;
    let git = |words: &[&str]| process::output(Command::new("git").args(words).current_dir(root));
    let mut source =
        json!({"name": "source", "digest": {"gitCommit": git(&["rev-parse", "HEAD"])?.trim()}});
    if !git(&["status", "--porcelain"])?.is_empty() {
        source["annotations"] = json!({"uncommittedChanges": true});
    }
    let mut all = vec![source];
    let given = [&options.program, &options.plugin, &options.agent];
    if options.program.is_some() {
        for program in given.into_iter().flatten() {
            let name = program.file_name().context("a program has a name")?.to_string_lossy();
            all.push(json!({"name": name, "digest": {"sha256": sha256(program)?}}));
        }
        return Ok(all);
    }
    all.push(
        json!({"name": "Cargo.lock", "digest": {"sha256": sha256(&root.join("Cargo.lock"))?}}),
    );
    let rustc = Rustc::locate(release.workspace)?;
    let mut compiler =
        json!({"name": "rustc", "uri": format!("pkg:generic/rustc@{}", rustc.version)});
    if let Some(commit) = rustc.commit {
        compiler["digest"] = json!({"gitCommit": commit});
    }
    all.push(compiler);
    if let Some(linker) = CargoTool::installed_version("bpf-linker") {
        all.push(json!({"name": "bpf-linker", "uri": format!("pkg:cargo/bpf-linker@{linker}")}));
    }
    Ok(all)
}

/// Checks the signed statement in a folder by a public key, and each artefact that it names.
pub(super) fn verify(folder: &Path, key: &Path) -> Result<()> {
    let file = folder.join(BUNDLE);
    let of_file = || file.display().to_string();
    let bundle: Value = serde_json::from_slice(&read(&file)?).with_context(of_file)?;
    let payload = signature::verified(key, &bundle).with_context(of_file)?;
    let statement: Value = serde_json::from_slice(&payload).with_context(of_file)?;
    if statement["_type"] != STATEMENT || statement["predicateType"] != PREDICATE {
        bail!("{} is signed, but is no statement about the provenance of artefacts", of_file());
    }
    let subjects = statement["subject"].as_array().filter(|it| !it.is_empty());
    for subject in subjects.with_context(|| format!("{} names no artefact", of_file()))? {
        let name = subject["name"].as_str().unwrap_or_default();
        // A name with a slash would be a file elsewhere.
        if name.is_empty() || name.contains('/') {
            bail!("{} names {name:?}, which is no file beside it", of_file());
        }
        let (found, signed) = (sha256(&folder.join(name))?, &subject["digest"]["sha256"]);
        if *signed != found {
            bail!("{name} has the SHA-256 {found}, not the signed one, {signed}: do not use it");
        }
        println!("{name}: as signed");
    }
    Ok(())
}
