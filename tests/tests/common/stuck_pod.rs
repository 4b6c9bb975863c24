//! A pod that keeps failing to go, by the lab.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test stops at the first surprise")]

use podstuck_tests::{Running, lab};
use serde_json::Value;

/// A file of it is immutable.
pub struct StuckPod {
    lab: Running,
    ready: Value,
}

impl StuckPod {
    /// Its removal has not begun.
    pub fn build() -> Self {
        let (lab, ready) = lab("immutable-attribute", &[]);
        Self { lab, ready }
    }

    /// Its removal begins, and goes on.
    pub fn start(&self) {
        self.lab.resume();
    }

    pub fn root(&self) -> &str {
        self.ready["kubelet_root"].as_str().unwrap()
    }

    /// Of the pod.
    pub fn uid(&self) -> &str {
        self.ready["pod_uid"].as_str().unwrap()
    }

    /// Whether a line is a finding about it.
    pub fn is_found(&self, line: &Value) -> bool {
        line["type"] == "finding" && line["pod"]["uid"] == self.ready["pod_uid"]
    }

    /// Waits for its finding, with its cause.
    pub fn cause_is_found(&self, watch: &mut Running) -> Value {
        watch.wait_for("the pod's finding", |line| {
            self.is_found(line) && line["id"] == "immutable-attribute"
        })
    }

    /// Ends it; its own count of calls.
    pub fn end(self) -> Value {
        let (lines, status) = self.lab.stop();
        assert!(status.success(), "{lines:#?}");
        lines.last().unwrap()["calls"].clone()
    }
}
