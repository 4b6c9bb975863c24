//! Recordings of labs that were played once: each replay still finds what the lab's snapshot says, in
//! milliseconds, without privileges and without a kernel. `labs.rs` says how they are made.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[path = "common/masked.rs"]
mod masked;

use std::{fs, path::Path, process::Command};

use libtest_mimic::{Arguments, Failed, Trial};
use podstuck_engine::cause::CauseId;
use podstuck_lab::{Case, FAMILIES};
use podstuck_tests::{of_type, podstuck, replay};
use serde_json::Value;

const RECORDINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recordings");

fn main() {
    let cases = FAMILIES.iter().flat_map(|(_, cases)| cases.iter());
    let recorded = cases.filter(|case| file(case, "zst").exists());
    let trials = recorded.map(|case| Trial::test(case.id.replace('-', "_"), || play(case)));
    let mut trials: Vec<Trial> = trials.collect();
    // None would be a test that cannot fail.
    trials.push(Trial::test("there_are_recordings", || {
        let files = fs::read_dir(RECORDINGS).map_err(|error| error.to_string())?;
        if files.count() < 20 { Err("recordings are missing".into()) } else { Ok(()) }
    }));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn file(case: &Case, ending: &str) -> std::path::PathBuf {
    Path::new(RECORDINGS).join(format!("{}.{ending}", case.id))
}

fn play(case: &Case) -> Result<(), Failed> {
    let ready: Value = serde_json::from_str(&fs::read_to_string(file(case, "json"))?)?;
    let (lines, status) = replay(&file(case, "zst"), &[]);
    assert_eq!(status, Some(i32::from(case.expected.is_some())), "{lines:#?}");
    let mine = |line: &&Value| !case.aftermath.is_some_and(|id| line["id"] == id.as_str());
    let findings: Vec<Value> =
        of_type(&lines, "finding").into_iter().filter(mine).cloned().collect();
    for finding in &findings {
        assert_eq!(finding["id"].as_str(), case.cause.map(CauseId::as_str), "{finding:#}");
    }
    masked::compare(case.id, &masked::findings(case, &ready, &findings));
    // Word for word: of a recording, nothing differs from run to run.
    let mut program = Command::new(podstuck());
    let printed = program.args(["replay", "--output", "text"]).arg(file(case, "zst")).output()?;
    let text = String::from_utf8(printed.stdout)?;
    insta::with_settings!({
        snapshot_path => "answers", prepend_module_to_snapshot => false, omit_expression => true
    }, { insta::assert_snapshot!(case.id, text) });
    Ok(())
}
