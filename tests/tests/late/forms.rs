//! The same log of kubelet's in the forms in which it is found on nodes.

use std::{fs, path::Path, process::Command};

use jiff::{SignedDuration, Timestamp};
use podstuck_tests::{diagnose, podstuck, requires, root_and_btf, summary};
use serde_json::{Value, json};

use super::{Node, answer, chattr, log_of};

/// What `--logging-format=json` writes where klog's text is this: the entries of [`log_of`].
fn as_json(log: &str) -> String {
    let mut ago = [3600, 344, 222, 100].into_iter();
    let line = |line: &str| {
        let at = Timestamp::now().checked_sub(SignedDuration::from_secs(ago.next().unwrap()));
        let ts = at.unwrap().as_microsecond() as f64 / 1000.0;
        let (_, message) = line.split_once("] ").unwrap();
        let caller = "kubelet/source.go:1";
        let entry = match message
            .strip_prefix("\"Killing container with a grace period\" pod=\"shop/")
        {
            Some(rest) => {
                let (name, rest) = rest.split_once("\" podUID=\"").unwrap();
                let (uid, _) = rest.split_once('"').unwrap();
                let pod = json!({ "name": name, "namespace": "shop" });
                json!({
                    "ts": ts, "caller": caller, "msg": "Killing container with a grace period", "v": 2, "pod": pod,
                    "podUID": uid, "gracePeriod": 30
                })
            }
            // As `klog.Error` writes it.
            None => json!({ "ts": ts, "caller": caller, "msg": format!("{message}\n") }),
        };
        format!("{entry}\n")
    };
    log.lines().map(line).collect()
}

/// What stands before each line.
fn behind(prefix: &str, log: &str) -> String {
    log.lines().map(|line| format!("{prefix}{line}\n")).collect()
}

/// The cause, how certain it is, and what was said.
fn essence(answer: &Value) -> Value {
    let cause = &answer["causes"][0];
    let said = answer["said"].as_array().unwrap().iter();
    let said: Vec<Value> =
        said.map(|said| json!([said["component"], said["complaint"], said["times"]])).collect();
    json!([cause["id"], cause["certainty"], said])
}

#[test]
fn the_answer_is_the_same_in_every_form_of_the_log() {
    requires!(root_and_btf());
    type Form = fn(&str) -> String;
    let forms: [(&str, Form); 7] = [
        ("text", str::to_owned),
        ("JSON", as_json),
        ("journalctl", |log| behind("Nov 28 00:31:22 node-1 kubelet[77]: ", log)),
        ("syslog", |log| behind("<30>1 2026-11-28T00:31:22.1Z node-1 kubelet 77 - - ", log)),
        ("MicroShift", |log| behind("Nov 28 00:31:22 node-1 microshift[77]: kubelet ", log)),
        ("CRI", |log| behind("2026-11-28T00:31:22.1Z stderr F ", log)),
        ("k3s", |log| {
            let line =
                |line: &str| format!("time=\"2026-11-28T00:31:22Z\" level=info msg={line:?}\n");
            log.lines().map(line).collect()
        }),
    ];
    let mut plain = None;
    for (number, (form, write)) in (60..).zip(forms) {
        let node = Node::new(number, "unlinkat {}/kept: operation not permitted");
        let file = node.volume().join("kept");
        chattr("+i", &file);
        let log = Path::new(node.directory.path()).join("kubelet.log");
        let error = format!("unlinkat {}: operation not permitted", file.display());
        let text = log_of(&node.uid, &node.name(), &node.unique_name(), &error);
        fs::write(log, write(&text)).unwrap();
        let (lines, _) = node.diagnose("100s");
        let found = essence(answer(&lines));
        assert_eq!(found[0], "immutable-attribute", "{form}: {found}");
        let plain = plain.get_or_insert_with(|| found.clone());
        assert_eq!(*plain, found, "{form}");
    }
}

#[test]
fn a_log_in_an_unknown_form_is_said_to_be_one() {
    requires!(root_and_btf());
    let node = Node::new(69, "unlinkat {}/kept: operation not permitted");
    let log = node.directory.path().join("kubelet.log");
    fs::write(&log, behind("~ ", &fs::read_to_string(&log).unwrap())).unwrap();
    let root = node.root();
    let root = root.to_str().unwrap();
    let (lines, status) =
        diagnose(&["--pod-uid", &node.uid, "--kubelet-root", root, "--timeout", "5s"]).finish();
    let lacks = summary(&lines)["completeness"]["degraded"].to_string();
    let sentence = format!("no line of the log of kubelet (pid {})", node.kubelet.id());
    assert!(lacks.contains(&sentence), "{lacks}");
    assert_ne!(status.code(), Some(0), "it is no pod that nothing holds");
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
