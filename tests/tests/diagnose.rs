//! One question, one answer: every lab is diagnosed with its own cause first, also while another
//! one's conditions are present. The tool gets the pod's name, as on call, and no UID. The table of
//! labs against answers, right or wrong, stands in docs/labs.md. Each is asked about twice: while its removal is tried,
//! and late, when the next attempt is two minutes away, so that only state and kubelet's log can tell.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use podstuck_engine::cause::CauseId;
use podstuck_lab::{cases, find};
use podstuck_tests::{
    Running, add_up, diagnose, lab_if_possible, late_lab_if_possible, of_type, requires,
    root_and_btf, skip, summary,
};
use serde_json::Value;

/// Where the table stands; `PODSTUCK_BLESS=1` writes it there.
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/labs.md");
const BEGIN: &str = "<!-- table: written by tests/tests/diagnose.rs -->\n";

/// How many pairs of labs are played at a time. They mostly wait.
const AT_ONCE: usize = 3;

/// Its fault is that of a whole mount namespace with a kubelet in it, so that a question about any pod meanwhile
/// rightly has it in its answer. `labs.rs` plays it alone.
const OF_THE_NODE: &str = "mount-table-storm";

/// When it is late, these pods are gone: what is left of the first belongs to no pod, and the flush of the second ends by
/// itself, after as many seconds as a busy machine takes to ask.
const GONE_WHEN_LATE: [&str; 2] = ["leaked-superblock-blocks-device", "umount-flush-slow"];

/// Whose removal goes on when it is late, or is tried again every two or ten seconds.
const GOES_ON: &[&str] = &[
    "healthy",
    "held-for-a-moment",
    "emptydir-mass-files",
    "umount-flush-slow",
    "orphaned-pod-dir",
    // Its removal is slow, so that another process can write in between.
    "writer-still-alive",
    "cgroup-v1-frozen",
    "dstate-process",
    "csi-driver-lost-publish-state-silent",
];

/// What state and logs cannot tell from another cause with the same remedy: of two mounts one is left, and a driver
/// that has published once and forgot has left one, too; what was deleted through a mount is gone, and the mount is in
/// the way still.
const ANOTHER_WHEN_LATE: &[(&str, &str)] = &[
    ("stacked-mounts", "csi-driver-lost-publish-state"),
    ("removal-crosses-mount", "emptydir-bidirectional-submount"),
];

/// When one comes to a case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    Live,
    Late,
}

/// Those that are distinguished from each other.
fn compared() -> impl Iterator<Item = &'static str> {
    cases().map(|case| case.id).filter(|id| *id != OF_THE_NODE)
}

/// Options that make a case short, and how long an answer may take.
fn options(case: &str) -> (&'static [&'static str], &'static str) {
    match case {
        "emptydir-mass-files" => (&["--entries", "60000", "--rate", "4000"], "40s"),
        "healthy" | "held-for-a-moment" => (&[], "12s"),
        _ => (&[], "60s"),
    }
}

struct Played {
    asked: Asked,
    lab: Running,
    ready: Value,
    answer: Running,
}

/// `None` where the lab cannot be played. The tool finds the pod by its name. The root is an option:
/// as no kubelet runs with the lab's root, nothing else says so. About the whole node nothing is asked: what other labs
/// leave in control groups would rightly be an answer, too.
fn start(case: &str, asked: Asked) -> Option<Played> {
    let (args, timeout) = options(case);
    let (lab, ready) = match asked {
        Asked::Live => lab_if_possible(case, args),
        Asked::Late => late_lab_if_possible(case, args),
    }?;
    let root = ready["kubelet_root"].as_str().unwrap();
    let name = format!("podstuck-lab/{case}");
    let answer = diagnose(&[
        "--pod",
        &name,
        "--kubelet-root",
        root,
        "--timeout",
        timeout,
        "--not-attempted-after",
        "4s",
        "--hung-after",
        "200ms",
    ]);
    Some(Played { asked, lab, ready, answer })
}

/// The first cause, the answer, and how many calls were seen. A cause that is not about the lab's pod, or not at a path of it, is a wrong one.
fn finish(played: Played) -> (String, Value, u64) {
    let (lines, _) = played.answer.finish();
    let answer = of_type(&lines, "diagnosis").last().copied().cloned().unwrap();
    let counted = summary(&lines);
    assert_eq!(answer["window_s"], counted["window_s"], "one run has one window");
    let calls = add_up(&[&counted["by_outcome"]]).values().sum();
    drop(played.lab);
    let first = &answer["causes"][0];
    let Some(id) = first["id"].as_str() else { return ("nothing".into(), answer, calls) };
    let path = first["call"]["path"].as_str().unwrap_or_default();
    let [root, uid] = ["root", "pod_uid"].map(|name| played.ready[name].as_str().unwrap());
    // A full disk is the node's, and no pod's in particular.
    let is_of_pod = first["pod"]["uid"] == uid || id == "disk-full-runtime";
    let is_own = is_of_pod && (path.starts_with(root) || path.contains(uid));
    let of_another = if is_own { "" } else { " of something else" };
    (format!("{id}{of_another}"), answer, calls)
}

/// What one lab was called, and the whole answer if that was wrong.
struct Diagnosed {
    case: &'static str,
    asked: Asked,
    first: String,
    wrong: Option<String>,
}

fn expected(case: &str, asked: Asked) -> &'static str {
    let own = find(case).unwrap().cause.map_or("nothing", CauseId::as_str);
    let another = ANOTHER_WHEN_LATE.iter().find(|(id, _)| *id == case && asked == Asked::Late);
    another.map_or(own, |(_, cause)| cause)
}

/// Plays two labs at the same time, and asks about both, about the second one late.
fn pair(case: &'static str, beside: &'static str) -> Result<[Diagnosed; 2], String> {
    let late = if GONE_WHEN_LATE.contains(&beside) { Asked::Live } else { Asked::Late };
    let (Some(one), Some(other)) = (start(case, Asked::Live), start(beside, late)) else {
        return Err(format!("in part: {case} beside {beside} cannot be played here"));
    };
    one.lab.resume();
    other.lab.resume();
    Ok([(case, beside, one), (beside, case, other)].map(|(case, beside, played)| {
        let asked = played.asked;
        let (first, answer, calls) = finish(played);
        let is_wrong = first != expected(case, asked);
        let was_tried = asked == Asked::Late && !GOES_ON.contains(&case) && calls > 0;
        let wrong = (is_wrong || was_tried).then(|| {
            format!("{case} beside {beside} was called {first}, {calls} calls: {answer:#}")
        });
        Diagnosed { case, asked, first, wrong }
    }))
}

#[test]
fn each_lab_is_distinguished_from_another_at_the_same_time() {
    requires!(root_and_btf());
    let ids: Vec<&'static str> = compared().collect();
    let next = AtomicUsize::new(0);
    let play = || {
        let mut played = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = ids.get(number) else { return played };
            played.push(pair(case, ids[(number + 1) % ids.len()]));
        }
    };
    let pairs: Vec<Result<[Diagnosed; 2], String>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(play)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let mut table = Table::new();
    let mut wrong = Vec::new();
    for pair in pairs {
        match pair {
            Err(reason) => skip(reason),
            Ok(pair) => {
                for diagnosed in pair {
                    wrong.extend(diagnosed.wrong);
                    table
                        .entry(diagnosed.case)
                        .or_default()
                        .push((diagnosed.asked, diagnosed.first));
                }
            }
        }
    }
    let text = rows(&table);
    println!("{text}");
    bless(&text);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The document is of a machine that can play all.
    if compared().all(|id| table.get(id).is_some_and(|answers| answers.len() == 2)) {
        assert_eq!(document().1, text, "docs/labs.md; PODSTUCK_BLESS=1 writes it");
    }
}

/// What each lab was called, and when it was asked about.
type Table = BTreeMap<&'static str, Vec<(Asked, String)>>;

/// Rows: labs. Columns: what they were called live and late.
fn rows(table: &Table) -> String {
    let mut text = String::from("| lab | live | late |\n|---|---|---|\n");
    for (case, answers) in table {
        let first = |asked| {
            let all = answers.iter().filter(|(when, _)| *when == asked).map(|(_, id)| id.as_str());
            let mut all: Vec<&str> = all.collect();
            all.dedup();
            if all.is_empty() { "gone".into() } else { all.join(", ") }
        };
        writeln!(text, "| {case} | {} | {} |", first(Asked::Live), first(Asked::Late)).unwrap();
    }
    text
}

/// Writes the table, if that is wanted: right or wrong.
fn bless(table: &str) {
    if std::env::var_os("PODSTUCK_BLESS").is_some() {
        fs::write(DOCUMENT, format!("{}{BEGIN}{table}", document().0)).unwrap();
    }
}

/// What stands before the table, and the table.
fn document() -> (String, String) {
    let document = fs::read_to_string(DOCUMENT).unwrap();
    let (before, table) = document.split_once(BEGIN).unwrap();
    (before.into(), table.into())
}
