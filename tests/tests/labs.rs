//! Every lab beside a watch of its pod and one of the node: what its case expects and nothing else,
//! the removal's own count equal to the probes', all as held in `snapshots/`, and nothing left. Each watch
//! is recorded, and its replay gives the same lines, files and exit status.
//!
//! `INSTA_UPDATE=always` writes new snapshots, and `PODSTUCK_KEEP_RECORDINGS=tests/tests/recordings` keeps the
//! recordings for `replays.rs`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[path = "common/left.rs"]
mod left;
#[path = "common/masked.rs"]
mod masked;

use std::{
    fs,
    path::Path,
    sync::{PoisonError, RwLock},
    thread,
    time::Duration,
};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use nix::sys::signal::Signal;
use podstuck_engine::cause::CauseId;
use podstuck_lab::{Case, Expected, FAMILIES};
use podstuck_tests::{
    Recorded, Running, add_up, lab_if_possible, root_and_btf, slowdown, summary, watch,
};
use procfs::process::Process;
use serde_json::Value;

/// Longer than a finding changes after its first report, by reads of the node.
const LAST_FORM: Duration = Duration::from_secs(8);

/// Longer than from one read of the node to the next, so that what is over is reported as over.
const LAST_LOOK: Duration = Duration::from_secs(3);

/// How many cases are played at a time: each waits most of the time, and watches its own pod.
const AT_A_TIME: usize = 4;

/// Makes each read of the whole node so slow that the next one comes after minutes (a read's thread rests for 49
/// times as long as it works), so that nothing else is played beside it.
const SLOWS_LOOKS: &str = "mount-table-storm";
static NODE: RwLock<()> = RwLock::new(());

fn main() {
    // It all depends on time, which a busy machine must not take away. Without the right to it, it goes
    // on as it is.
    let _ = rustix::process::nice(-15);
    let threads = if slowdown() == 1 { AT_A_TIME } else { 1 };
    let arguments = Arguments { test_threads: Some(threads), ..Arguments::from_args() };
    let mut trials = Vec::new();
    for (family, cases) in FAMILIES {
        for case in *cases {
            let name = format!("{family}::{}", case.id.replace('-', "_"));
            trials.push(Trial::ignorable_test(name, || play(case)));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn play(case: &Case) -> Result<Completion, Failed> {
    if let Err(reason) = root_and_btf() {
        return Ok(Completion::ignored_with(reason));
    }
    // One that failed has left the node to the others, too.
    let _alone =
        (case.id == SLOWS_LOOKS).then(|| NODE.write().unwrap_or_else(PoisonError::into_inner));
    let _beside =
        (case.id != SLOWS_LOOKS).then(|| NODE.read().unwrap_or_else(PoisonError::into_inner));
    // How long a read of an object takes on an emulated machine is not known: there, a case that ended at
    // its time would now and then be over before.
    let until_found = slowdown() > 1 && case.expected.is_some();
    let times = if until_found { slowdown() } else { slowdown().min(2) };
    let options: Vec<String> = case.options.iter().map(|option| lasting(option, times)).collect();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let Some((mut lab, ready)) = lab_if_possible(case.id, &options) else {
        let needs = case.needs.unwrap_or_else(|| panic!("{} can be played everywhere", case.id));
        return Ok(Completion::ignored_with(format!("this machine lacks what it needs: {needs}")));
    };
    let (uid, root) = (ready["pod_uid"].as_str().unwrap(), ready["kubelet_root"].as_str().unwrap());
    let recorded = Recorded::new();
    let recording = recorded.options();
    let recording: Vec<&str> = recording.iter().map(String::as_str).collect();
    let of_pod = [&["--pod-uid", uid, "--kubelet-root", root], case.watch_options, &recording];
    let of_pod = of_pod.concat();
    // Starting a watch is what takes longest on an emulated machine; there, one does for both.
    let of_node = [&["--kubelet-root", root], case.watch_options].concat();
    let mut node = (slowdown() == 1).then(|| watch(&of_node));
    let mut pod = watch(&of_pod);
    lab.resume();
    if let Some(expected) = &case.expected {
        check_actor(expected, &mut pod, &mut lab, &ready);
        if expected.of_pod {
            let of_pod = |line: &Value| line["type"] == "finding" && line["pod"]["uid"] == uid;
            node.iter_mut().for_each(|node| drop(node.wait_for("finding on the node", of_pod)));
        }
    }
    if until_found || !options.contains(&"--duration") {
        thread::sleep(LAST_FORM);
        lab.signal(Signal::SIGINT);
    }
    let tally = lab.wait_for("tally", |line| line["calls"].is_object());
    let (_, status) = lab.finish();
    assert!(status.success(), "the lab: {status}");
    left::assert_nothing(&ready);
    if masked::is_over(case.id) {
        let cause = case.cause.map(CauseId::as_str);
        pod.wait_for("finding that is over", |line| {
            // The node's own fault is reported to every watch: another lab's, here.
            line["state"] == "cleared" && line["id"].as_str() == cause
        });
    }
    thread::sleep(LAST_LOOK * slowdown().min(2));

    let (of_pod, status) = pod.stop();
    recorded.assert_replayed(&of_pod, status.code());
    keep(case, &recorded, &ready)?;
    let of_node = node.map_or_else(|| of_pod.clone(), |node| node.stop().0);
    let counted = summary(&of_pod);
    assert_lossless(counted);
    let seen = &counted["completeness"];
    assert_eq!(add_up(&[&counted["by_outcome"]]), add_up(&[&tally["calls"]]), "counts; {seen:#}");
    assert_lossless(summary(&of_node));
    let [of_pod, of_node] = [of_pod, of_node].map(|lines| findings(case, &ready, lines));
    check(case, &of_pod, &ready, &tally);
    assert_eq!(status.code(), Some(i32::from(case.expected.is_some())));
    for finding in &of_node {
        assert_eq!(finding["id"].as_str(), case.cause.map(CauseId::as_str), "{finding:#}");
    }
    masked::compare(case.id, &masked::findings(case, &ready, &of_pod));
    Ok(Completion::Completed)
}

/// Keeps the recording as a fixture of `replays.rs`, where that is wanted.
fn keep(case: &Case, recorded: &Recorded, ready: &Value) -> std::io::Result<()> {
    let Some(folder) = std::env::var_os("PODSTUCK_KEEP_RECORDINGS") else { return Ok(()) };
    let to = |ending: &str| Path::new(&folder).join(format!("{}.{ending}", case.id));
    fs::copy(recorded.file(), to("zst"))?;
    let mut ready = ready.clone();
    ready["group"] = masked::own_group().into();
    fs::write(to("json"), format!("{ready:#}\n"))
}

/// A duration, multiplied by the slowdown of an emulated machine.
fn lasting(option: &str, times: u32) -> String {
    let number = option.trim_end_matches(char::is_alphabetic);
    let unit = &option[number.len()..];
    match number.parse::<u32>() {
        Ok(number) if !unit.is_empty() => format!("{}{unit}", number * times),
        _ => option.to_owned(),
    }
}

/// What was found of a pod or of none. On a node, other cases are played at the same time.
fn findings(case: &Case, ready: &Value, lines: Vec<Value>) -> Vec<Value> {
    let root = ready["root"].as_str().unwrap();
    // What is deleted in a root that the watch does not know belongs to no pod: another lab's, beside this one.
    let is_elsewhere =
        |line: &Value| line["call"]["path"].as_str().is_some_and(|path| !path.starts_with(root));
    let is_mine = |line: &Value| {
        line["type"] == "finding"
            && (line["pod"]["uid"] == ready["pod_uid"]
                || (line["pod"].is_null() && !is_elsewhere(line)))
            && !case.aftermath.is_some_and(|id| line["id"] == id.as_str())
    };
    lines.into_iter().filter(is_mine).collect()
}

/// The process that the first finding names, by the kernel's word.
fn check_actor(expected: &Expected, pod: &mut Running, lab: &mut Running, ready: &Value) {
    let found = pod.wait_beside(Some(lab), "finding", |line| {
        line["type"] == "finding" && !is_found_by_state(expected, line)
    });
    let actor = &found["actor"];
    assert_eq!(actor["comm"].as_str(), expected.actor, "{found:#}");
    if actor.is_null() {
        return;
    }
    if actor["component"] == "kubelet" {
        assert_eq!(actor["pid"], ready["pid"], "{found:#}");
        let pid = actor["pid"].as_i64().and_then(|pid| pid.try_into().ok()).unwrap();
        let started = Process::new(pid).and_then(|process| process.stat()).unwrap().starttime;
        assert_eq!(actor["started"], started, "{found:#}");
    } else {
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", actor["pid"])).unwrap();
        assert!(groups.contains(ready["pod_uid"].as_str().unwrap()), "{groups}: {found:#}");
    }
}

/// Whether it rests on what lies there, and not on a call: where the machine is emulated, a read may come before
/// the first call.
fn is_found_by_state(expected: &Expected, finding: &Value) -> bool {
    slowdown() > 1 && expected.syscall.is_some() && finding["call"]["syscall"].is_null()
}

fn check(case: &Case, findings: &[Value], ready: &Value, tally: &Value) {
    let Some(expected) = &case.expected else {
        assert!(findings.is_empty(), "{findings:#?}");
        assert!(tally["pods_removed"].as_u64() > Some(2), "{tally:#}");
        // Else nothing was there that could have been taken for a fault.
        let is_held = case.id == "held-for-a-moment";
        assert_eq!(tally["calls"]["umount2"]["EBUSY"].as_u64() > Some(0), is_held, "{tally:#}");
        return;
    };
    for finding in findings {
        assert_eq!(finding["id"].as_str(), case.cause.map(CauseId::as_str), "{finding:#}");
        if is_found_by_state(expected, finding) {
            continue;
        }
        assert_eq!(finding["severity"], serde_json::to_value(expected.severity).unwrap());
        assert_eq!(finding["blocks_deletion"].as_bool(), expected.blocks, "{finding:#}");
        assert_eq!(finding["pod"].is_object(), expected.of_pod, "{finding:#}");
        if expected.of_pod {
            assert_eq!(finding["pod"]["name"], case.id, "{finding:#}");
        }
        let call = &finding["call"];
        assert_eq!(call["syscall"].as_str(), expected.syscall, "{finding:#}");
        match call["errno_name"].as_str() {
            Some(outcome) => assert!(expected.outcomes.contains(&outcome), "{finding:#}"),
            None => assert!(expected.outcomes.is_empty(), "{finding:#}"),
        }
        let path = call["path"].as_str().unwrap();
        let root = ready["root"].as_str().unwrap();
        let uid = ready["pod_uid"].as_str().unwrap();
        assert!(path.starts_with(root) || path.contains(uid), "{path} is not in {root}");
        assert!(path.ends_with(expected.object), "{path} does not end in {}", expected.object);
        assert!(!finding["evidence"].as_array().unwrap().is_empty(), "{finding:#}");
    }
    let new = findings.iter().filter(|finding| finding["state"] == "new").count();
    assert_eq!(new, 1, "one finding, reported as new once: {findings:#?}");
    assert!(tally["attempts"].as_u64() >= Some(1), "{tally:#}");
}

/// What other cases and other programs do is counted, too: a call may have begun before the watch did, or
/// have an invalid path.
fn assert_lossless(summary: &Value) {
    let c = &summary["completeness"];
    for loss in ["events_lost", "map_full", "outcome_unknown"] {
        assert_eq!(c[loss], 0, "{summary:#}");
    }
    // Not every kernel counts it.
    assert_eq!(c["probes_skipped"].as_u64().unwrap_or(0), 0, "{summary:#}");
}
