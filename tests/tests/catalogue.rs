//! The catalogue of causes against what else names one: each cause has one home, and each lab its
//! cause.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{collections::BTreeSet, fs, path::Path};

use podstuck_engine::{
    catalogue,
    cause::{CauseId, TriedWith},
};
use podstuck_lab::cases;

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// What is played on a real node.
const ON_NODE: [&str; 3] = [
    "tests/tests/on_node/cases.rs",
    "tests/tests/on_node/troubles.rs",
    "tests/tests/on_node/missed.rs",
];
/// What is played with real runtimes.
const RUNTIMES: [&str; 2] = ["tests/tests/runtimes.rs", "tests/tests/runtimes"];
/// What tests make that no lab does.
const MADE: [&str; 12] = [
    "tests/tests/faults/silent_volume.rs",
    "tests/tests/hung/kernel_lock.rs",
    "tests/tests/made.rs",
    "tests/tests/api.rs",
    "tests/tests/late/apparmor.rs",
    "tests/tests/late/kubelets_part.rs",
    "tests/tests/late/living.rs",
    "tests/tests/late/nfs.rs",
    "tests/tests/late/reports.rs",
    "tests/tests/late/sandbox.rs",
    "tests/tests/late/waits.rs",
    "tests/tests/paths/linked_root.rs",
];
/// What is made stuck on a real API server.
const API_SERVER: [&str; 2] =
    ["podstuck-user/cluster/tests/cluster.rs", "podstuck-user/cluster/tests/cluster"];
/// What is decided of constructed objects.
const OBJECTS: [&str; 1] = ["podstuck-user/engine/src/causes/cluster/tests"];
/// What was captured, and what is concluded of it.
const CAPTURED: &str = "podstuck-user/src/captures_tests.rs";
const CAPTURES: &str = "podstuck-user/src/captures";

/// The text of a file, or of all files in a folder.
fn text(path: &str) -> String {
    let path = Path::new(WORKSPACE).join(path);
    if path.is_file() {
        return fs::read_to_string(path).unwrap();
    }
    let files = fs::read_dir(path).unwrap();
    files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect()
}

#[test]
fn a_lab_has_its_cause_and_a_cause_that_was_tried_with_a_lab_has_one() {
    let labs: BTreeSet<&str> = cases().filter_map(|case| case.cause.map(CauseId::as_str)).collect();
    let tried: BTreeSet<&str> = catalogue::all()
        .filter(|cause| cause.tried.contains(&TriedWith::Lab))
        .map(|cause| cause.id.as_str())
        .collect();
    let (unmarked, unplayed): (Vec<_>, Vec<_>) =
        (labs.difference(&tried).collect(), tried.difference(&labs).collect());
    assert!(
        unmarked.is_empty(),
        "a lab plays these causes; their `tried` lacks TriedWith::Lab: {unmarked:?}"
    );
    assert!(
        unplayed.is_empty(),
        "no lab plays these causes; their `tried` has TriedWith::Lab: {unplayed:?}"
    );
}

#[test]
fn what_was_tried_with_a_real_kubelet_is_a_case_on_the_node() {
    let on_node = ON_NODE.map(text).concat();
    for cause in catalogue::all() {
        let forms =
            [format!("cause: \"{}\",", cause.id), format!("CAUSE: &str = \"{}\";", cause.id)];
        let is_case = forms.iter().any(|form| on_node.contains(form));
        let claimed = cause.tried.contains(&TriedWith::RealKubelet);
        assert_eq!(
            is_case, claimed,
            "{}: its `tried` and {ON_NODE:?} differ about a real kubelet",
            cause.id
        );
    }
}

/// What a cause is said to have been tried with is there: the test names it. Labs and the real kubelet are compared
/// above.
#[test]
fn each_evidence_that_is_claimed_is_there() {
    let [of_runtimes, on_server] = [RUNTIMES, API_SERVER].map(|all| all.map(text).concat());
    let of_objects = OBJECTS.map(text).concat();
    let (made, captured) = (MADE.map(text).concat(), text(CAPTURED));
    for cause in catalogue::all() {
        let literal = format!("\"{}\"", cause.id);
        let claims = |tried| cause.tried.contains(&tried);
        if claims(TriedWith::RealRuntime) {
            assert!(
                of_runtimes.contains(&literal),
                "{}: tried with a real runtime, and {RUNTIMES:?} do not name it",
                cause.id
            );
        }
        if claims(TriedWith::Test) {
            assert!(
                made.contains(&literal),
                "{}: tried by a test, and {MADE:?} do not name it",
                cause.id
            );
        }
        for (tried, texts, place) in [
            (TriedWith::ApiServer, &on_server, &API_SERVER[..]),
            (TriedWith::Objects, &of_objects, &OBJECTS),
        ] {
            // A cause of a node is named there, too, where the API server shows it as well.
            let is_named = texts.contains(&literal);
            assert!(
                is_named || !claims(tried),
                "{}: its `tried` has {tried:?}, and {place:?} do not name it",
                cause.id
            );
        }
        // `("CASE", "CAUSE", "firm"),`
        let answers = captured.lines().filter_map(|line| {
            let (case, rest) = line.trim().strip_prefix("(\"")?.split_once("\", ")?;
            rest.starts_with(&literal).then_some(case)
        });
        let mut cases = answers.peekable();
        assert_eq!(
            cases.peek().is_some(),
            claims(TriedWith::Recording),
            "{}: its `tried` and {CAPTURED} differ about a recording",
            cause.id
        );
        for case in cases {
            let file = Path::new(WORKSPACE).join(CAPTURES).join(format!("{case}.txt"));
            assert!(file.exists(), "{}: {}", cause.id, file.display());
        }
    }
}
