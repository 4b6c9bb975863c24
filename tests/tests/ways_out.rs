//! Of each cause that gives a command: that a test runs it as printed, or why none does. Of each that gives
//! advice: what follows it, if anything does. What a cause gives is read from what was told of it, in the
//! snapshots of the engine's scenarios and of the labs.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "common/obeyed.rs"]
mod obeyed;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use obeyed::{CURED, FOLLOWED, RELEASED};
use podstuck_engine::{catalogue::ALL, cause::CauseId};
use podstuck_lab::find;
use serde_json::Value;

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const TOLD: [&str; 2] = ["podstuck-user/engine/src/scenarios/snapshots", "tests/tests/snapshots"];

/// Causes whose commands no test runs.
const NOT_RUN: &[(&str, &str)] = &[
    ("apparmor-signal-denied", "takes a kernel with AppArmor, which no test has"),
    ("csi-driver-error", "only its last resort: the unmount of csi-driver-lost-publish-state"),
    ("disk-full-runtime", "removes images and journals of the machine that the tests run on"),
    ("dockerd-hang", "restarts a service of the machine that the tests run on"),
    ("nfs-server-unreachable", "takes an NFS server that is gone"),
    ("nfs-stale-handle", "takes an NFS server that has forgotten a file"),
    ("shim-or-containerd-state-lost", "restarts a service of the machine that the tests run on"),
    ("subpath-busy", "the unmount of subpath-source-deleted, held by somebody who is not found"),
];

/// Causes whose advice nothing follows.
const NOT_FOLLOWED: &[&str] = &[
    "csi-not-idempotent-after-reboot",
    "gpu-driver-dstate",
    "nfs-server-unreachable",
    "pod-finalizer",
    "vol-data-missing-or-corrupt",
];

/// In what is said in the place of a command that would not be safe.
const WITHHELD: &str = "no command is given, because";

#[derive(Default)]
struct Given {
    /// A command that does not only show something.
    command: bool,
    advice: bool,
}

#[test]
fn each_command_is_run_by_a_test_or_it_is_said_why_not() {
    let given = given();
    let run = run();
    let commands = given.iter().filter(|(_, given)| given.command).map(|(id, _)| id.as_str());
    let left: BTreeSet<&str> = commands.filter(|id| !run.contains(id)).collect();
    assert_eq!(left, NOT_RUN.iter().map(|(id, _)| *id).collect());
    assert!(NOT_RUN.iter().all(|(_, why)| !why.is_empty()));
}

#[test]
fn each_advice_is_followed_by_a_fixture_or_it_is_listed() {
    let given = given();
    let labs = FOLLOWED.iter().filter_map(|lab| cause(lab));
    let followed: BTreeSet<&str> = labs.chain(on_node(|case| case.contains("advised: "))).collect();
    let advice = given.iter().filter(|(_, given)| given.advice).map(|(id, _)| id.as_str());
    let left: BTreeSet<&str> = advice.filter(|id| !followed.contains(id)).collect();
    assert_eq!(left, NOT_FOLLOWED.iter().copied().collect());
}

/// A cause of which nothing is told here could give anything.
#[test]
fn all_causes_are_told_somewhere() {
    let given = given();
    let silent: Vec<CauseId> = ALL.iter().map(|cause| cause.id).collect();
    let silent: Vec<_> = silent.iter().filter(|id| !given.contains_key(id.as_str())).collect();
    assert!(silent.is_empty(), "{silent:?}");
}

/// By cause.
fn given() -> BTreeMap<String, Given> {
    let mut given = BTreeMap::<String, Given>::new();
    for finding in TOLD.iter().flat_map(|folder| findings(&Path::new(WORKSPACE).join(folder))) {
        let id = finding["id"].as_str().unwrap();
        let of_cause = given.entry(id.to_owned()).or_default();
        for remedy in finding["remedies"].as_array().into_iter().flatten() {
            let acts = !remedy["risk"].as_str().unwrap().starts_with("none");
            of_cause.command |= remedy["kind"] == "command" && acts;
            // One that only says why there is no command is not there to be followed.
            let withheld = remedy["advice"].as_str().is_some_and(|text| text.contains(WITHHELD));
            of_cause.advice |= remedy["kind"] == "advice" && !withheld;
        }
    }
    given
}

/// A scenario's snapshot has one on a line, a lab's is a list.
fn findings(folder: &Path) -> Vec<Value> {
    let mut findings = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let text = text.splitn(3, "---\n").nth(2).unwrap();
        if text.starts_with('[') {
            findings.extend(serde_json::from_str::<Vec<Value>>(text).unwrap());
        } else {
            let lines = text.lines().filter(|line| line.starts_with('{'));
            findings.extend(lines.map(|line| serde_json::from_str::<Value>(line).unwrap()));
        }
    }
    findings
}

/// Of a lab.
fn cause(lab: &str) -> Option<&'static str> {
    find(lab).unwrap().cause.map(CauseId::as_str)
}

/// Causes whose command a test runs as printed: in a lab, with a runtime, or on a node.
fn run() -> BTreeSet<&'static str> {
    let labs = RELEASED.iter().chain(CURED).filter_map(|lab| cause(lab));
    // A test that obeys its finding.
    let tests = include_str!("runtimes.rs").split("#[test]").filter(|test| test.contains("obey(&"));
    let runtimes = tests.filter_map(|test| named(test, "finding(&mut watch, \""));
    // A case that no other end is given for.
    let node = on_node(|case| !case.contains("end: "));
    let run: BTreeSet<&str> = labs.chain(runtimes).chain(node).collect();
    assert!(
        ["removal-crosses-mount", "emptydir-bidirectional-submount"]
            .iter()
            .all(|id| run.contains(id))
    );
    run
}

/// Of those cases on a node.
fn on_node(which: impl Fn(&&str) -> bool) -> impl Iterator<Item = &'static str> {
    let cases = include_str!("on_node/cases.rs").split("    Case {").skip(1);
    cases.filter(which).filter_map(|case| named(case, "cause: \""))
}

/// The word after another one.
fn named<'a>(text: &'a str, before: &str) -> Option<&'a str> {
    text.split_once(before)?.1.split('"').next()
}
