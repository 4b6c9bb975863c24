//! One question, one answer: every lab is diagnosed with its own cause first, also while another
//! one's conditions are present. The table of labs against answers stands in docs/labs.md.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use podstuck_engine::cause::CauseId;
use podstuck_lab::{cases, find};
use podstuck_tests::{
    Running, diagnose, lab_if_possible, of_type, requires, root_and_btf, skip, summary,
};
use serde_json::Value;

/// Where the table stands; `PODSTUCK_BLESS=1` writes it there.
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/labs.md");
const BEGIN: &str = "<!-- table: written by tests/tests/diagnose.rs -->\n";

/// How many pairs of labs are played at a time. They mostly wait.
const AT_ONCE: usize = 3;

/// Options that make a case short, and how long an answer may take.
fn options(case: &str) -> (&'static [&'static str], &'static str) {
    match case {
        "emptydir-mass-files" => (&["--entries", "60000", "--rate", "4000"], "40s"),
        "healthy" => (&[], "12s"),
        _ => (&[], "60s"),
    }
}

struct Played {
    lab: Running,
    ready: Value,
    answer: Running,
}

/// `None` where the lab cannot be played.
fn start(case: &str) -> Option<Played> {
    let (args, timeout) = options(case);
    let (lab, ready) = lab_if_possible(case, args)?;
    let (uid, root) = (ready["pod_uid"].as_str().unwrap(), ready["kubelet_root"].as_str().unwrap());
    let answer = diagnose(&[
        "--pod-uid",
        uid,
        "--kubelet-root",
        root,
        "--timeout",
        timeout,
        "--untried-after",
        "4s",
        "--hung-after",
        "200ms",
    ]);
    Some(Played { lab, ready, answer })
}

/// The first cause, and whether path and pod are the lab's.
fn finish(played: Played) -> (Option<String>, Value) {
    let (lines, _) = played.answer.finish();
    let answer = of_type(&lines, "diagnosis").last().copied().cloned().unwrap();
    assert_eq!(answer["window_s"], summary(&lines)["window_s"], "one run has one window");
    drop(played.lab);
    let first = &answer["causes"][0];
    if !first.is_null() {
        // A full disk is the node's, and no pod's in particular.
        if first["id"] != "disk-full-runtime" {
            assert_eq!(first["pod"]["uid"], played.ready["pod_uid"], "{first:#}");
        }
        let path = first["call"]["path"].as_str().unwrap();
        let root = played.ready["root"].as_str().unwrap();
        let uid = played.ready["pod_uid"].as_str().unwrap();
        assert!(path.starts_with(root) || path.contains(uid), "{path} is not in {root}");
    }
    (first["id"].as_str().map(str::to_owned), answer)
}

/// What one lab was called, and the whole answer if that was wrong.
struct Told {
    case: &'static str,
    first: String,
    wrong: Option<String>,
}

/// Plays two labs at the same time, and asks about both.
fn pair(case: &'static str, beside: &'static str) -> Result<[Told; 2], String> {
    let (Some(one), Some(other)) = (start(case), start(beside)) else {
        return Err(format!("in part: {case} beside {beside} cannot be played here"));
    };
    one.lab.resume();
    other.lab.resume();
    Ok([(case, beside, one), (beside, case, other)].map(|(case, beside, played)| {
        let (first, answer) = finish(played);
        let first = first.unwrap_or_else(|| "nothing".into());
        let is_wrong = first != find(case).unwrap().cause.map_or("nothing", CauseId::as_str);
        let wrong =
            is_wrong.then(|| format!("{case} beside {beside} was called {first}: {answer:#}"));
        Told { case, first, wrong }
    }))
}

#[test]
fn each_lab_is_told_from_another_at_the_same_time() {
    requires!(root_and_btf());
    let cases: Vec<&'static str> = cases().map(|case| case.id).collect();
    let next = AtomicUsize::new(0);
    let play = || {
        let mut played = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(number) else { return played };
            played.push(pair(case, cases[(number + 1) % cases.len()]));
        }
    };
    let pairs: Vec<Result<[Told; 2], String>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(play)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let mut table: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for pair in pairs {
        match pair {
            Err(reason) => skip(reason),
            Ok(pair) => {
                for told in pair {
                    wrong.extend(told.wrong);
                    table.entry(told.case).or_default().push(told.first);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    compare(&table);
}

/// Rows: labs. Columns: what they were called, how often. The document is of a machine that can play all.
fn compare(table: &BTreeMap<&str, Vec<String>>) {
    let mut text = String::from("| lab | first cause of the answer | answers |\n|---|---|---|\n");
    for (case, told) in table {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        told.iter().for_each(|id| *counts.entry(id).or_default() += 1);
        for (id, times) in counts {
            writeln!(text, "| {case} | {id} | {times} of {} |", told.len()).unwrap();
        }
    }
    let document = fs::read_to_string(Path::new(DOCUMENT)).unwrap();
    let (before, old) = document.split_once(BEGIN).unwrap();
    if std::env::var_os("PODSTUCK_BLESS").is_some() {
        fs::write(DOCUMENT, format!("{before}{BEGIN}{text}")).unwrap();
    } else if cases().all(|case| table.get(case.id).is_some_and(|told| told.len() == 2)) {
        assert_eq!(old, text, "docs/labs.md; PODSTUCK_BLESS=1 writes it");
    }
}
