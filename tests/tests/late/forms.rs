//! A log of kubelet's in a form that is not known. Those in which logs are found on nodes say the same:
//! `captures_tests.rs` of podstuck-node.

use std::{fs, process::Command};

use podstuck_tests::{podstuck, requires, root_and_btf, summary};
use serde_json::Value;

use super::Node;

#[test]
fn a_log_in_an_unknown_form_is_said_to_be_one() {
    requires!(root_and_btf());
    let node = Node::new(69, "unlinkat {}/kept: operation not permitted");
    let log = node.directory.path().join("kubelet.log");
    let unknown = |line: &str| format!("~ {line}\n");
    let text: String = fs::read_to_string(&log).unwrap().lines().map(unknown).collect();
    fs::write(&log, text).unwrap();
    let root = node.root();
    let root = root.to_str().unwrap();
    let (lines, status) = node.ask("5s");
    let lacks = summary(&lines)["completeness"]["degraded"].to_string();
    let sentence = format!("no line of the log of kubelet (pid {})", node.kubelet.id());
    assert!(lacks.contains(&sentence), "{lacks}");
    assert_ne!(status, Some(0), "it is no pod that nothing holds");
    let doctor = Command::new(podstuck())
        .args(["doctor", "--output", "json", "--kubelet-root", root])
        .output()
        .unwrap();
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    let check: Value = doctor
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .find(|check: &Value| check.to_string().contains(log.to_str().unwrap()))
        .unwrap();
    assert!(check.to_string().contains("0 of 4 lines parsed"), "{check}");
    assert_eq!(check["ok"], false, "{check}");
}
