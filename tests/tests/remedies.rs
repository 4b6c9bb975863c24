//! The printed remedies, each tried as printed: it ends what keeps the pod, the finding is over, and what shows that
//! it worked says so.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[path = "common/obeyed.rs"]
mod obeyed;

use std::process::Command;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use obeyed::{AFTER_THE_FIRST, CURED, FOLLOWED, RELEASED, SECOND_CURES, SECOND_RELEASES};
use podstuck_lab::find;
use podstuck_tests::{lab_if_possible, root_and_btf, slowdown, watch};
use serde_json::Value;

/// How many are played at a time: they mostly wait.
const AT_A_TIME: usize = 4;

fn main() {
    let threads = if slowdown() == 1 { AT_A_TIME } else { 1 };
    let arguments = Arguments { test_threads: Some(threads), ..Arguments::from_args() };
    let first = RELEASED.iter().chain(CURED).chain(FOLLOWED).map(|case| (*case, 0));
    let second = SECOND_RELEASES.iter().chain(SECOND_CURES).chain(AFTER_THE_FIRST);
    let trials = first.chain(second.map(|case| (*case, 1))).map(|(case, nth)| {
        let name = case.replace('-', "_");
        let name = if nth == 0 { name } else { format!("{name}_by_its_second_command") };
        Trial::ignorable_test(name, move || obey(case, nth))
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

/// Plays a case until its remedy was tried, its finding is over, and the pod is gone, if it goes.
fn obey(case: &str, nth: usize) -> Result<Completion, Failed> {
    if let Err(reason) = root_and_btf() {
        return Ok(Completion::ignored_with(reason));
    }
    let Some((mut lab, ready)) = lab_if_possible(case, &[]) else {
        return Ok(Completion::ignored_with("this machine lacks what it needs"));
    };
    let (uid, root) = (ready["pod_uid"].as_str().unwrap(), ready["kubelet_root"].as_str().unwrap());
    let options = find(case).unwrap().watch_options;
    let mut pod = watch(&[&["--pod-uid", uid, "--kubelet-root", root], options].concat());
    lab.resume();
    let is_way = |line: &Value| line["state"] == "new" || line["state"] == "update";
    let is_way =
        |line: &Value| is_way(line) && (FOLLOWED.contains(&case) || remedies(line).count() > nth);
    let found = pod.wait_for("finding with a way out", is_way);
    let mut remedies = remedies(&found);
    if nth > 0 && AFTER_THE_FIRST.contains(&case) {
        let first = remedies.clone().next().unwrap()["command"].as_str().unwrap();
        // What it also unmounts at once is the second's here: its part of the script goes, and the names stay.
        run(&match first.split_once(" && sleep 1 && ") {
            Some((abort, rest)) => format!("{abort}' sh {}", rest.split_once("' sh ").unwrap().1),
            None => first.to_owned(),
        })?;
    }
    let done = match remedies.nth(nth) {
        Some(remedy) => {
            let command = remedy["command"].as_str().unwrap();
            run(command)?;
            let verify = remedy["verify"].as_str();
            verify.filter(|command| !command.starts_with("kubectl")).map_or(Ok(()), run)?;
            command.to_owned()
        }
        None => follow(&found, &ready)?,
    };
    // What was reported before of the same call, and is not reported any more, is over, too.
    let cleared =
        pod.wait_for("cleared", |line| line["state"] == "cleared" && line["id"] == found["id"]);
    assert_eq!(cleared["pod"]["uid"], uid, "{case}");
    let cures = if nth == 0 { CURED } else { SECOND_CURES };
    if cures.contains(&case) {
        return Ok(Completion::Completed);
    }
    let tally: Value = lab.wait_for("tally", |line| line["calls"].is_object());
    assert_eq!(tally["pods_removed"], 1, "{tally:#} after {done}");
    Ok(Completion::Completed)
}

/// Does what is advised where a process waits for a frozen file system: to thaw it. The lab's is not seen from here.
fn follow(found: &Value, ready: &Value) -> Result<String, String> {
    assert!(found["remedies"].to_string().contains("thaw it (`fsfreeze --unfreeze"), "{found:#}");
    let (pid, root) = (&found["actor"]["pid"], ready["root"].as_str().unwrap());
    let command = format!("fsfreeze --unfreeze /proc/{pid}/root{root}/frozen");
    run(&command)?;
    Ok(command)
}

/// Those that do not only show something.
fn remedies(line: &Value) -> impl Iterator<Item = &Value> + Clone {
    line["remedies"].as_array().into_iter().flatten().filter(|remedy| {
        remedy["kind"] == "command" && !remedy["risk"].as_str().unwrap().starts_with("none")
    })
}

fn run(command: &str) -> Result<(), String> {
    let status = Command::new("sh").args(["-c", command]).status().unwrap();
    if status.success() { Ok(()) } else { Err(format!("{status} of {command}")) }
}
