//! The same cases live: by a watch of the whole node since before the deletions.

use std::{collections::BTreeMap, fmt, fs, path::Path, time::Duration};

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use podstuck_tests::{Running, of_type, watch};
use serde_json::Value;

use super::Stuck;
use crate::case::{Case, End};

/// A finding that is withdrawn and comes again within this time was right all along.
const FLAP: Duration = Duration::from_secs(1);

/// The watch.
pub struct Live(Running);

/// What it has said of a pod.
#[derive(Default)]
pub struct Reported {
    /// How long after the deletion it had the cause, as sure as it is to be.
    pub after_deletion: Option<Duration>,
    /// How long after the first call that failed, or the first line of kubelet's log that complains.
    pub after_failure: Option<Duration>,
    /// What was wrong with it.
    pub wrong: Vec<String>,
}

impl fmt::Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { after_deletion, after_failure, .. } = self;
        write!(
            f,
            "live {after_deletion:.1?} after the deletion, {after_failure:.1?} after a failure"
        )
    }
}

impl Live {
    pub fn start() -> Self {
        Self(watch(&[]))
    }

    /// What was said of a pod so far, given kubelet's log.
    pub fn reported(&mut self, stuck: &Stuck, log: &Path) -> Reported {
        let Stuck { case, uid, deleted, .. } = stuck;
        let lines = of_type(self.0.so_far(), "finding");
        let lines: Vec<&Value> = lines.into_iter().filter(|it| it["pod"]["uid"] == **uid).collect();
        let is_right = |it: &&&Value| it["id"] == case.cause && it["certainty"] == case.certainty;
        let right = lines.iter().find(is_right);
        let at = right.map(|it| time(&it["time"]));
        let failed = right.filter(|it| !it["call"]["errno"].is_null());
        let failed = failed.map(|it| time(&it["first"])).into_iter();
        let failed = failed.chain(first_complaint(log, uid, *deleted)).min();
        let after =
            |from: Timestamp| at.map(|at| at.duration_since(from).try_into().unwrap_or_default());
        Reported {
            after_deletion: after(*deleted),
            after_failure: failed.and_then(after),
            wrong: complaints(case, &lines),
        }
    }
}

fn complaints(case: &Case, lines: &[&Value]) -> Vec<String> {
    let mut last = BTreeMap::new();
    let mut withdrawn = BTreeMap::new();
    let mut wrong = Vec::new();
    for line in lines {
        let (id, at) = (line["id"].as_str().unwrap(), time(&line["time"]));
        if line["state"] == "cleared" {
            withdrawn.insert(id, at);
        } else if let Some(before) = withdrawn.remove(id)
            && at.duration_since(before).unsigned_abs() < FLAP
        {
            wrong.push(format!("live: {id} was withdrawn and reported again at {at}"));
        }
        last.insert(line["instance"].as_str().unwrap(), *line);
    }
    // What only takes time may be over before the others are asked about.
    let stands = |it: &Value| it["state"] != "cleared" || case.end == End::Time;
    let holds = |it: &&&Value| stands(it) && it["blocks_deletion"] == true;
    let held: Vec<&&Value> = last.values().filter(holds).collect();
    if !held.iter().any(|it| it["id"] == case.cause && it["certainty"] == case.certainty) {
        let findings = held.iter().map(|it| format!("{} ({})", it["id"], it["certainty"]));
        let findings: Vec<String> = findings.collect();
        wrong.push(format!("live: not {}, but {findings:?}", case.cause));
    }
    for other in held {
        let id = other["id"].as_str().unwrap();
        if other["certainty"] == "firm" && id != case.cause && case.next != Some(id) {
            wrong.push(format!("live: {id} is firm, too"));
        }
    }
    if !wrong.is_empty() {
        let word = |line: &Value, key: &str| line[key].as_str().unwrap().to_owned();
        let words = |line: &&Value| {
            ["time", "instance", "state", "certainty"].map(|key| word(line, key)).join(" ")
        };
        wrong.extend(lines.iter().map(words));
    }
    wrong
}

/// The first line of kubelet's log that complains about a pod.
fn first_complaint(log: &Path, uid: &str, since: Timestamp) -> Option<Timestamp> {
    let text = fs::read(log).unwrap();
    let text = String::from_utf8_lossy(&text);
    let year = since.to_zoned(TimeZone::system()).year();
    let at = |line: &str| {
        // As klog begins it: `E1127 05:09:13.123456`.
        let begin = format!("{year}{}", line.get(1..21)?);
        let civil = DateTime::strptime("%Y%m%d %H:%M:%S%.f", begin).ok()?;
        Some(civil.to_zoned(TimeZone::system()).ok()?.timestamp())
    };
    let complaints = text.lines().filter(|line| line.starts_with('E') && line.contains(uid));
    complaints.filter_map(at).find(|at| *at >= since)
}

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}
