//! A lab whose calls do not return, and what is reported about it.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    reason = "a test stops at the first surprise"
)]

#[path = "left.rs"]
mod left;

use podstuck_tests::{Running, add_up, lab, of_type, settle, summary, watch};
use serde_json::Value;

/// `--hung-after` of these watches, in seconds.
pub const THRESHOLD: f64 = 0.2;

/// A lab that goes on until it is stopped.
pub struct Lab {
    running: Running,
    pub ready: Value,
}

impl Lab {
    /// Built, mounted and held back.
    pub fn build(case: &str) -> Self {
        let (running, ready) = lab(case, &[]);
        Self { running, ready }
    }

    pub fn start(&self) {
        self.running.resume();
    }

    pub fn text(&self, field: &str) -> &str {
        self.ready[field].as_str().unwrap()
    }

    pub fn watch(&self, args: &[&str]) -> Running {
        let mine = ["--pod-uid", self.text("pod_uid"), "--kubelet-root", self.text("kubelet_root")];
        let soon = ["--hung-after", "200ms"];
        watch(&[&mine[..], &soon, args].concat())
    }

    /// Stops it; the removal's own count. Nothing is left of it.
    pub fn end(self) -> Value {
        // One that is held back would not notice.
        self.running.resume();
        let (lines, status) = self.running.stop();
        assert!(status.success(), "{lines:#?}");
        left::assert_nothing(&self.ready);
        lines.last().unwrap()["calls"].clone()
    }
}

pub fn stack(line: &Value) -> Vec<&str> {
    line["stack"].as_array().unwrap().iter().map(|frame| frame.as_str().unwrap()).collect()
}

/// Waits until a call of the lab is reported as stuck, and checks that it was old enough. A watch of the node also
/// reports the calls of other tests' labs.
pub fn hung(watching: &mut Running, lab: &Lab, phase: &str) -> Value {
    let uid = &lab.ready["pod_uid"];
    let hung = watching.wait_for("stuck call", |line| {
        line["type"] == "hung" && line["phase"] == phase && line["victim"]["uid"] == *uid
    });
    assert_eq!(hung["over"], false, "{hung:#}");
    let age = hung["age_s"].as_f64().unwrap();
    assert!(age >= THRESHOLD, "{hung:#}");
    hung
}

pub fn finding(watching: &mut Running, lab: &Lab, id: &str) -> Value {
    let uid = &lab.ready["pod_uid"];
    let found = watching.wait_for("finding", |line| {
        line["type"] == "finding" && line["id"] == id && line["pod"]["uid"] == *uid
    });
    assert_eq!(found["blocks_deletion"], true, "{found:#}");
    found
}

/// Ends lab and watch: only this was found, it was cleared if a call was stuck, and all calls of the
/// removal were counted.
pub fn end(lab: Lab, watching: Running, id: &str) -> Vec<Value> {
    let tally = lab.end();
    settle();
    let (lines, _) = watching.stop();
    for found in of_type(&lines, "finding") {
        // The server ends with the lab, and the removal meets what is left of it.
        let died = id == "fuse-daemon-hung" && found["id"] == "fuse-daemon-dead";
        assert!(found["id"] == id || died, "{found:#}");
    }
    assert_eq!(add_up(&[&summary(&lines)["by_outcome"]]), add_up(&[&tally]), "{id}: counts");
    lines
}
