//! A pod that is stuck, a tenant of the same node that tries to hide it, and a watch over both.
#![allow(
    clippy::unwrap_used,
    dead_code,
    unreachable_pub,
    reason = "a test stops at the first surprise, and each uses a part of this"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use podstuck_lab::find;
use podstuck_tests::{Running, lab, of_type, slowdown, summary, watch};
use serde_json::Value;

use super::{
    meter::Meter,
    tenant::{Begun, TENANT, Tenant},
};

/// What the tool may have in memory, with its program, in MiB. The test's build is larger than the one that is
/// shipped. One run of all attacks took at most 70 MiB, 18 in a helper, and 0.13 of a CPU of two.
pub const MEMORY: u64 = 96;
/// What each process that it starts may have.
pub const HELPERS: u64 = 32;
/// What it may take of one CPU while it is attacked.
const CPU: f64 = 0.5;

/// All of them.
pub struct Scene {
    // In the order in which they end.
    tenant: Tenant,
    meter: Meter,
    watch: Running,
    lab: Running,
    case: String,
    /// The lab's first line.
    pub ready: Value,
}

impl Scene {
    /// What the tenant prepares is done before the watch begins, and the removal of the pod has not begun.
    pub fn begin(case: &str, prepare: impl FnOnce(&Tenant, &Value)) -> Self {
        Self::begin_with(case, &[], prepare)
    }

    /// The same, where the tenant is given directories of the node's, by their place below the lab's.
    pub fn begin_with(
        case: &str,
        given: &[(&str, &str)],
        prepare: impl FnOnce(&Tenant, &Value),
    ) -> Self {
        let (lab, ready) = lab(case, &[]);
        let root = PathBuf::from(ready["kubelet_root"].as_str().unwrap());
        let own = root.join("pods").join(TENANT).join("volumes/kubernetes.io~empty-dir/data");
        fs::create_dir_all(&own).unwrap();
        let uid = ready["pod_uid"].as_str().unwrap();
        let given = given.iter().map(|(from, to)| (root.join(from.replace("$UID", uid)), *to));
        let given: Vec<(PathBuf, &str)> = given.chain([(own, "/data")]).collect();
        let given: Vec<(&Path, &str)> =
            given.iter().map(|(from, to)| (from.as_path(), *to)).collect();
        let tenant = Tenant::start(&given);
        prepare(&tenant, &ready);
        let options = find(case).unwrap().watch_options;
        let watch = watch(&[&["--kubelet-root", root.to_str().unwrap()], options].concat());
        let meter = Meter::start(watch.pid());
        Self { tenant, meter, watch, lab, case: case.to_owned(), ready }
    }

    /// What the tenant does, with the paths of his victim.
    pub fn tenant_does(&self, script: &str) {
        self.tenant.does(&self.in_words(script));
    }

    /// What he goes on with.
    pub fn tenant_begins(&self, script: &str) -> Begun {
        self.tenant.begins(&self.in_words(script))
    }

    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    pub fn text(&self, field: &str) -> &str {
        self.ready[field].as_str().unwrap()
    }

    fn in_words(&self, script: &str) -> String {
        in_words(script, &self.ready)
    }

    /// The pod's removal begins, and its cause is found, with a command.
    pub fn cause_is_found(&mut self) -> Value {
        self.lab.resume();
        let uid = self.ready["pod_uid"].clone();
        let found = self.watch.wait_for("the pod's finding", |line| {
            line["type"] == "finding" && line["pod"]["uid"] == uid && way_out(line).is_some()
        });
        assert_eq!(found["id"], self.case, "{found:#}");
        found
    }

    /// The first command that changes something is run as it is printed. It meets the pod's object, so that the pod goes.
    pub fn command_helps(&mut self, found: &Value) {
        let command = way_out(found).unwrap();
        let status = Command::new("bash").args(["-c", command]).status().unwrap();
        assert!(status.success(), "{command}");
        let (id, uid) = (&found["id"], &found["pod"]["uid"]);
        self.watch.wait_for("the end of the finding", |line| {
            line["state"] == "cleared" && line["id"] == *id && line["pod"]["uid"] == *uid
        });
    }

    /// Ends while the pod is stuck; the summary.
    pub fn stop(self) -> Value {
        let Self { tenant, watch, lab, .. } = self;
        let (lines, _) = watch.stop();
        drop(tenant);
        drop(lab);
        summary(&lines).clone()
    }

    /// What was reported of the pod stays until its command was run, no other pod is accused, and the resources used are
    /// within the limits; the summary.
    pub fn end(mut self, found: &Value) -> Value {
        // Longer than an answer about a directory is believed.
        thread::sleep(Duration::from_secs(2));
        let is_over = |line: &&Value| line["state"] == "cleared" && !is_for_want_of_a_look(line);
        let cleared = self.watch.so_far().iter().find(is_over);
        assert_eq!(cleared, None, "before its command was run");
        self.command_helps(found);
        let Self { tenant, meter, watch, lab, case, ready } = self;
        let (lines, _) = watch.stop();
        let (memory, helpers) = meter.peaks();
        drop(tenant);
        drop(lab);
        let aftermath = find(&case).unwrap().aftermath.map(|cause| cause.to_string());
        for line in of_type(&lines, "finding") {
            if is_for_want_of_a_look(line) {
                continue;
            }
            let id = line["id"].as_str().unwrap();
            assert!(id == case || Some(id) == aftermath.as_deref(), "{line:#}");
            assert_eq!(line["pod"]["uid"], ready["pod_uid"], "{line:#}");
            assert_eq!(line["actor"]["component"], "kubelet", "{line:#}");
            assert_eq!(line["actor"]["pid"], ready["pid"], "{line:#}");
            // Its name would be in the evidence.
            assert!(!line.to_string().contains(TENANT), "{line:#}");
        }
        let summary = summary(&lines).clone();
        let cpu =
            summary["self"]["cpu_s"].as_f64().unwrap() / summary["window_s"].as_f64().unwrap();
        println!("measured: {memory} MiB, helpers {helpers} MiB, {cpu:.2} of a CPU");
        assert!(memory <= MEMORY && helpers <= HELPERS, "{memory} MiB, helpers {helpers} MiB");
        assert!(cpu <= CPU * f64::from(slowdown()), "{cpu} of a CPU: {summary:#}");
        summary
    }
}

/// The first command of a finding that does not only show something.
fn way_out(found: &Value) -> Option<&str> {
    let mut all = found["remedies"].as_array()?.iter();
    let acts = |way: &&Value| {
        way["kind"] == "command" && !way["risk"].as_str().unwrap().starts_with("none")
    };
    all.find(acts)?["command"].as_str()
}

const NOT_LOOKED_AT: &str = "the object could not be read";

/// Where a machine is so slow that a read of the object has not come back in its time, that is said, and that the cause is
/// not known: until it has.
fn is_for_want_of_a_look(line: &Value) -> bool {
    let lacks = line["degraded"].as_array().is_some_and(|lacks| !lacks.is_empty());
    // What is degraded is so at one moment; the evidence stays.
    let says_so = |item: &Value| item["fact"].as_str().is_some_and(|it| it.contains(NOT_LOOKED_AT));
    let lacked = line["evidence"].as_array().is_some_and(|all| all.iter().any(says_so));
    slowdown() > 1 && (lacks || lacked) && line["certainty"] == "possible"
}

/// A script with the victim's paths and UID in it.
pub fn in_words(script: &str, ready: &Value) -> String {
    let text = |field: &str| ready[field].as_str().unwrap();
    script
        .replace("$VOLUME", text("path"))
        .replace("$ROOT", text("root"))
        .replace("$UID", text("pod_uid"))
}
