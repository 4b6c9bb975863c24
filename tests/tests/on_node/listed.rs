//! What `podstuck` alone says about all of them at once.

use std::{collections::BTreeMap, ffi::OsString, process::Command, time::Instant};

use podstuck_tests::{of_type, podstuck};
use serde_json::Value;

use super::Stuck;
use crate::case::{End, Trouble};

/// Lines of the list, by the UIDs of the pods.
pub struct Listed {
    pods: BTreeMap<String, Value>,
    status: Option<i32>,
}

impl Listed {
    /// Asks for it, as a program does, by a pipe.
    pub fn ask(options: &[OsString]) -> Self {
        let begun = Instant::now();
        let done = Command::new(podstuck()).args(["-o", "json"]).args(options).output().unwrap();
        let text = String::from_utf8_lossy(&done.stdout);
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let pods = of_type(&lines, "pod");
        println!("the list: {} pods in {:.1?} ({})", pods.len(), begun.elapsed(), done.status);
        let uid = |line: &Value| line["pod"]["uid"].as_str().unwrap().to_owned();
        let pods = pods.into_iter().map(|line| (uid(line), line.clone())).collect();
        Self { pods, status: done.status.code() }
    }

    /// What is wrong with the line of a pod, given the first cause of its diagnosis. A pod that is not being deleted is not listed.
    pub fn complaint(&self, stuck: &Stuck, first: &Value) -> Option<String> {
        let line = self.pods.get(&stuck.uid);
        // Its name on this node only kubelet knows, and so what the API server has of it.
        if stuck.case.trouble == Trouble::KubeletEnded && line.is_none() {
            return (self.status != Some(5)).then(|| format!("an all-clear: {:?}", self.status));
        }
        if stuck.case.end == End::Never {
            return line.map(|line| format!("it is listed: {line}"));
        }
        let id = line.map_or(&Value::Null, |line| &line["cause"]["id"]);
        (id != &first["id"]).then(|| format!("the list says {id}, and not {}", first["id"]))
    }
}
