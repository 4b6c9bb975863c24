//! The printed way out, tried as printed: it ends what keeps the pod, the finding is over, and what shows that
//! it worked says so.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[path = "common/obeyed.rs"]
mod obeyed;

use std::process::Command;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use obeyed::{CURED, FOLLOWED, RELEASED};
use podstuck_lab::find;
use podstuck_tests::{lab_if_possible, root_and_btf, slowdown, watch};
use serde_json::Value;

/// How many are played at a time: they mostly wait.
const AT_A_TIME: usize = 3;

fn main() {
    let threads = if slowdown() == 1 { AT_A_TIME } else { 1 };
    let arguments = Arguments { test_threads: Some(threads), ..Arguments::from_args() };
    let all = RELEASED.iter().chain(CURED).chain(FOLLOWED);
    let trials = all.map(|case| Trial::ignorable_test(case.replace('-', "_"), || obey(case)));
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

/// Plays a case until its remedy was tried, its finding is over, and the pod is gone, if it goes.
fn obey(case: &str) -> Result<Completion, Failed> {
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
        |line: &Value| is_way(line) && (FOLLOWED.contains(&case) || remedy(line).is_some());
    let found = pod.wait_for("finding with a way out", is_way);
    let done = match remedy(&found) {
        Some(remedy) => {
            let command = remedy["command"].as_str().unwrap();
            run(command)?;
            let verify = remedy["verify"].as_str();
            verify.filter(|command| !command.starts_with("kubectl")).map_or(Ok(()), run)?;
            command.to_owned()
        }
        None => follow(&found, &ready)?,
    };
    let cleared = pod.wait_for("cleared", |line| line["state"] == "cleared");
    assert_eq!((&cleared["id"], &cleared["pod"]["uid"]), (&found["id"], &uid.into()), "{case}");
    if CURED.contains(&case) {
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

/// The first that does not only show something.
fn remedy(line: &Value) -> Option<&Value> {
    let mut remedies = line["remedies"].as_array()?.iter();
    remedies.find(|remedy| {
        remedy["kind"] == "command" && !remedy["risk"].as_str().unwrap().starts_with("none")
    })
}

fn run(command: &str) -> Result<(), String> {
    let status = Command::new("sh").args(["-c", command]).status().unwrap();
    if status.success() { Ok(()) } else { Err(format!("{status} of {command}")) }
}
