//! `cargo xtask freeze`: checks that podstuck's answers are unchanged after a refactoring.
//!
//! Compared byte for byte: the replays of each stored recording (findings, text and report), each scenario of the
//! engine, and each capture of a node. With `--live` each lab is played again, and its causes are compared with their
//! order, their certainty and the exit status.

mod difference;
mod live;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use podstuck_process as process;

use self::difference::difference;
use crate::workspace::Workspace;
use crate::{build, setup};

/// The stored answers.
const BEFORE: &str = "tests/freeze/before.tar.gz";
/// Recordings of the labs, made before the change.
const LABS: &str = "tests/freeze/labs";
/// Recordings that the tests replay.
const RECORDINGS: &str = "tests/tests/recordings";
/// The same name as in the crate podstuck-testing, on which the commands do not depend.
const FOLDER: &str = "PODSTUCK_FREEZE";
/// Tests of libraries that store their answers, by a part of their names.
const KEPT_BY_TESTS: [&str; 2] =
    ["scenarios::each_incident_keeps_its_findings", "captures_tests::"];

/// What to compare.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Hold what is answered now, in place of what was answered before
    #[arg(long)]
    take: bool,
    /// Play each lab, too: compare its causes and exit status, or record it with --take
    #[arg(long)]
    live: bool,
}

/// Answers by name.
type Answers = BTreeMap<String, Vec<u8>>;

/// Compares the answers, or stores them.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    setup::run(workspace)?;
    let program = build::beside_tests(workspace)?;
    let labs = workspace.root.join(LABS);
    if options.live {
        let played = if options.take { labs.clone() } else { workspace.target.join("freeze/live") };
        live::play(workspace, &program, &played)?;
        if !options.take {
            live::compare(&program, &labs, &played)?;
        }
    }
    let mut now = kept_by_tests(workspace)?;
    now.extend(replayed(&program, &workspace.root.join(RECORDINGS), "recording")?);
    now.extend(replayed(&program, &labs, "lab")?);
    let before = workspace.root.join(BEFORE);
    if options.take {
        hold(&before, &now)?;
        println!("{} answers are held in {BEFORE}", now.len());
        return Ok(());
    }
    let differences = compare(&held(&before)?, &now);
    for difference in &differences {
        println!("{difference}");
    }
    if !differences.is_empty() {
        bail!(
            "{} of {} answers differ from those before; where each of them is meant, `cargo xtask freeze --take` holds \
             the present ones",
            differences.len(),
            now.len()
        );
    }
    println!("{} answers are the same as before", now.len());
    Ok(())
}

/// The answers of the libraries' tests.
fn kept_by_tests(workspace: &Workspace) -> Result<Answers> {
    let folder = tempfile::tempdir().context("cannot create a folder for answers")?;
    let mut cargo = workspace.cargo(["test", "--quiet", "--workspace", "--lib", "--"]);
    cargo.args(KEPT_BY_TESTS).env(FOLDER, folder.path()).stdout(Stdio::null());
    process::run(&mut cargo)?;
    let mut answers = Answers::new();
    for file in files(folder.path())? {
        let name = file.file_name().context("a file has a name")?.to_string_lossy().into_owned();
        answers.insert(name, read(&file)?);
    }
    Ok(answers)
}

/// The answers to each recording in a folder.
fn replayed(program: &Path, folder: &Path, kind: &str) -> Result<Answers> {
    let mut answers = Answers::new();
    for file in files(folder)?.into_iter().filter(|file| is_recording(file)) {
        let stem = file.file_stem().context("a file has a name")?.to_string_lossy().into_owned();
        for (form, arguments) in [
            ("json", &["replay", "--output", "json"][..]),
            ("text", &["replay", "--output", "text"]),
            ("report", &["report", "--format", "markdown"]),
        ] {
            let output = Command::new(program).args(arguments).arg(&file).output();
            let output = output.with_context(|| format!("cannot run {}", program.display()))?;
            let mut answer = output.stdout;
            answer.extend(format!("exit status: {:?}\n", output.status.code()).bytes());
            answers.insert(format!("{kind}-{stem}.{form}"), answer);
        }
    }
    if answers.is_empty() {
        bail!("{} has no recordings", folder.display());
    }
    Ok(answers)
}

fn is_recording(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "zst")
}

/// The files of a folder, sorted by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let shown = || format!("cannot read {}", folder.display());
    let entries: Result<Vec<_>, _> = fs::read_dir(folder).with_context(shown)?.collect();
    let mut files: Vec<_> = entries.with_context(shown)?.iter().map(fs::DirEntry::path).collect();
    files.sort();
    Ok(files)
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

fn hold(file: &Path, answers: &Answers) -> Result<()> {
    let to = fs::File::create(file).with_context(|| format!("cannot create {}", file.display()))?;
    let mut archive = tar::Builder::new(GzEncoder::new(to, Compression::best()));
    for (name, answer) in answers {
        let mut header = tar::Header::new_gnu();
        header.set_size(answer.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, &answer[..]).context("packing answers")?;
    }
    archive.into_inner().and_then(GzEncoder::finish).context("packing answers")?;
    Ok(())
}

fn held(file: &Path) -> Result<Answers> {
    let packed = read(file)?;
    let mut archive = tar::Archive::new(GzDecoder::new(&packed[..]));
    let mut answers = Answers::new();
    for entry in archive.entries().context("unpacking answers")? {
        let mut entry = entry.context("unpacking answers")?;
        let name = entry.path().context("unpacking answers")?.to_string_lossy().into_owned();
        let mut answer = Vec::new();
        std::io::copy(&mut entry, &mut answer).context("unpacking answers")?;
        answers.insert(name, answer);
    }
    Ok(answers)
}

/// One or two lines for each answer that differs, is new, or is missing.
fn compare(before: &Answers, now: &Answers) -> Vec<String> {
    let names: std::collections::BTreeSet<_> = before.keys().chain(now.keys()).collect();
    let of = |name: &String| match (before.get(name), now.get(name)) {
        (Some(before), Some(now)) => difference(before, now).map(|it| format!("{name}: {it}")),
        (Some(_), None) => Some(format!("{name}: was there before")),
        _ => Some(format!("{name}: was not there before")),
    };
    names.into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_compared_by_name_and_byte() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("before.tar.gz");
        let answers = |of: &[(&str, &str)]| -> Answers {
            of.iter().map(|(name, it)| ((*name).to_owned(), it.as_bytes().to_vec())).collect()
        };
        let before = answers(&[("a", "1\n2\n"), ("b", "3\n"), ("c", "4\n")]);
        hold(&file, &before).unwrap();
        assert_eq!(held(&file).unwrap(), before);
        assert_eq!(compare(&before, &before), Vec::<String>::new());
        let now = answers(&[("a", "1\n5\n"), ("c", "4\n"), ("d", "")]);
        assert_eq!(
            compare(&before, &now),
            [
                "a: line 2\n  before: 2\n  now:    5",
                "b: was there before",
                "d: was not there before"
            ]
        );
    }
}
