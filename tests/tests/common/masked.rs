//! Findings in the form that two runs share: one entry for each cause and object, without process
//! numbers, times, counts and the names that a run makes up.
#![allow(
    clippy::unwrap_used,
    dead_code,
    unreachable_pub,
    reason = "a test stops at the first surprise, and each uses a part of this"
)]

use std::{collections::BTreeMap, fs, path::Path};

use podstuck_lab::Case;
use serde_json::{Value, json};

/// Where the snapshots are, in the checkout that the tests were built from.
const SNAPSHOTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots");

/// What differs from run to run, and what stands for it. Numbers that say something (an errno, one
/// mount or two) stay.
const MASKS: &[(&str, &str)] = &[
    // Older recordings do not say when a process was started, by which a command makes sure of it.
    (
        r#"\[ \\"\$\(sed [^)]*\) //\\" /proc/\d+(/task/\d+)?/stat \| cut -d\\" \\" -f20\)\\" = \d+ \] && "#,
        "",
    ),
    (r#"cut -d\\" \\" -f1,3 /proc/\w+/mountinfo \| grep -qx \\"\d+ 0:\d+\\" && "#, ""),
    (r#"cut -d\\" \\" -f1,5 /proc/\w+/mountinfo \| grep -qxF ('\d+ [^']*'|\\"\$1\\") && "#, ""),
    (r"' sh '\d+ [/\[][^']*'", "' sh"),
    (r#"\[ \\"\$\(stat -c %d:%i [^)]*\)\\" = \d+:\d+ \] && "#, ""),
    (r#"grep -q \\"\^mnt_id:\.\d+\$\\" /proc/self/fdinfo/0 <\. && "#, ""),
    // Names of a script are counted with those of what it checks.
    (r#"\\"\$\d\\""#, "[name]"),
    (r"(\bpid|\bprocess|kill|kill -9|kill -CONT|--namespace) \d+", "$1 [pid]"),
    (r", started (\d\d:\d\dZ|\d{4}-\d\d-\d\d)", ""),
    (r"echo \d+ \| tee", "echo [pid] | tee"),
    (r"grep -qsx \d+", "grep -qsx [pid]"),
    (r"/proc/\d+", "/proc/[pid]"),
    (r"/task/\d+", "/task/[pid]"),
    (r"\b(mount|mount namespace) \d+", "$1 [id]"),
    (r"\bdevice \d+:\d+", "device [id]"),
    (r"/dev/loop\d+", "/dev/loop[id]"),
    (r"\bloop\d+ (has|is)\b", "loop[id] $1"),
    (r"/block/loop\d+/", "/block/loop[id]/"),
    (r"\bhas \d+ requests? in flight", "has [n] requests in flight"),
    (r"(disk-server/disk),? on \S+ of type \S+ on [\w/.-]+", "$1 on [mount]"),
    (r"/connections/\d+", "/connections/[id]"),
    (r"(\d+(\.\d+)?, )*\d+(\.\d+)? (m?s)\b", "[n] $4"),
    (r"\b\d+ (processes|mount namespaces|deletions)\b", "[n] $1"),
    (r"\b(once|\d+ times) in \d+ attempts?\b", "[n] in [n] attempts"),
    (r"\b\d+ times\b", "[n] times"),
    // What the directory was read in, and how far the removal was.
    (r"\b(part|keepme)-\d+", "$1-[n]"),
    // Functions of the kernel, which have other names in the next one.
    (r"kernel function \w+", "kernel function [name]"),
    (r"in state (\w) in \w+", "in state $1 in [function]"),
    (r"kernel stack: \w+( < \w+)*", "kernel stack: [functions]"),
    (r"\bwoken (once|twice|\d+ times)", "woken [n] times"),
    // Whether it was woken between its first read and its second depends on when it was seen first.
    (
        r"not woken in the \[n\] s since it was first seen",
        "not woken in the last [n] s, and has slept for [n] s",
    ),
    // How far a mass deletion was at its last report.
    (r"\b\d+ (entries|files|directories|per second|calls failed with EISDIR|to)\b", "[n] $1"),
    (r"\[n\] to \d+ ", "[n] to [n] "),
    // The report before the read of the directory has answered, when no other follows it.
    (
        "the number of remaining entries is not known",
        "[n] to [n] entries remain, which takes [n] to [n] s at the rates seen",
    ),
    // Printed where FUSE's control file system is mounted.
    (r", \d+ requests unanswered", ""),
    (r"; how long that takes is not known yet\.", ", for [n] to [n] s."),
    (r"\b\d+ mounts are in the mount namespace", "[n] mounts are in the mount namespace"),
    (r"its working directory is [^\s,\x22]+", "its working directory is [path]"),
    (r"\b\d{4}-\d\d-\d\dT[\d:.]+Z", "[time]"),
    (r"\bsince \d\d:\d\d:\d\dZ", "since [time]"),
];

/// The findings about a lab, and how each went on.
pub fn findings(case: &Case, ready: &Value, findings: &[Value]) -> String {
    let mut entries: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for line in findings {
        let about = json!([line["id"], line["call"]["path"], line["pod"]["uid"]]);
        entries.entry(about.to_string()).or_default().push(line);
    }
    let mut entries: Vec<Value> = entries.into_values().map(|lines| entry(&lines)).collect();
    // Which of several calls was first is chance.
    if case.expected.is_some_and(|expected| expected.outcomes.len() > 1) {
        for entry in &mut entries {
            (entry["call"]["errno"], entry["call"]["errno_name"]) =
                ("[any]".into(), "[any]".into());
            let of_call = |fact: &Value| fact["source"] == "syscall probe";
            entry["evidence"].as_array_mut().unwrap().retain(|fact| !of_call(fact));
        }
    }
    let text = serde_json::to_string_pretty(&entries).unwrap();
    // A recording says in which group it was made.
    let group = ready["group"].as_str().map_or_else(own_group, ToOwned::to_owned);
    let root = ready["root"].as_str().unwrap();
    // From the top of its file system it is below another directory than in the mount namespace.
    let (_, name) = root.rsplit_once('/').unwrap();
    text.replace(ready["pod_uid"].as_str().unwrap(), "[uid]")
        .replace(root, "[lab]")
        .replace(&format!("/{name}"), "[lab]")
        .replace(&format!(" of {group} "), " of [cgroup] ")
}

/// The control group of the tests, and so of the lab's processes.
pub fn own_group() -> String {
    let group = fs::read_to_string("/proc/self/cgroup").unwrap();
    let group = group.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    group.max_by_key(|path| path.len()).unwrap_or("/").to_owned()
}

/// How much of a finding is proven. On a busy machine, the lab may be over before the last attempt is looked at.
fn proven(finding: &Value) -> (String, usize) {
    let confidence = finding["confidence"].as_f64().unwrap_or_default();
    let ruled_out = finding["likely_causes_ruled_out"].as_array().map_or(0, Vec::len);
    (format!("{confidence:.3}"), ruled_out)
}

/// One finding through its states: the last of its best proven forms.
fn entry(lines: &[&Value]) -> Value {
    // How often it changes in between depends on when the node is read.
    let mut states: Vec<&Value> = lines.iter().map(|line| &line["state"]).collect();
    states.retain(|state| *state != "update");
    states.dedup();
    let open = lines.iter().filter(|line| line["state"] != "cleared");
    let last = open.max_by_key(|line| proven(line)).unwrap_or(&lines[0]);
    let mut entry = json!({"states": states});
    for field in [
        "id",
        "severity",
        "certainty",
        "confidence",
        "stage",
        "blocks_deletion",
        "container",
        "volume",
        "call",
        "evidence",
        "explanation",
        "remedies",
        "likely_causes_ruled_out",
    ] {
        entry[field] = last[field].clone();
    }
    // They name mounts by their ids, which older recordings do not have, and what else is on the node.
    for remedy in entry["remedies"].as_array_mut().into_iter().flatten() {
        let remedy = remedy.as_object_mut().unwrap();
        remedy.retain(|field, _| !["guard", "verify", "affects"].contains(&field.as_str()));
    }
    // Whether a tree is counted or sampled, and how many attempts there were before the answer, depends on how
    // fast the machine is.
    let by_chance = ["random sample", "are kubelet's back-off"];
    let is_chance = |fact: &Value| {
        let fact = fact["fact"].as_str().unwrap();
        by_chance.iter().any(|words| fact.contains(words))
    };
    entry["evidence"].as_array_mut().unwrap().retain(|fact| !is_chance(fact));
    for (object, fields) in
        [("pod", &["namespace", "name"][..]), ("actor", &["comm", "component", "pod"][..])]
    {
        if last[object].is_object() {
            let kept = fields.iter().map(|field| (*field, last[object][field].clone()));
            entry[object] = kept
                .collect::<BTreeMap<_, _>>()
                .into_iter()
                .map(|(k, v)| (k.to_owned(), v))
                .collect();
        }
    }
    entry
}

/// Whether what was recorded is over at the end.
pub fn is_over(name: &str) -> bool {
    let recorded = Path::new(SNAPSHOTS).join(format!("{name}.snap"));
    fs::read_to_string(recorded).is_ok_and(|text| text.contains("\"cleared\""))
}

/// Compares with what was recorded. A guest has no checkout, and another kernel has other words.
pub fn compare(name: &str, findings: &str) {
    if !Path::new(SNAPSHOTS).exists() {
        eprintln!("not compared: there is no {SNAPSHOTS} here");
        return;
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(SNAPSHOTS);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    for (mask, stands_for) in MASKS {
        settings.add_filter(mask, *stands_for);
    }
    if name == "umount-flush-slow" {
        // Whether a flush is woken as parts of it are done, or once at its end, depends on how much of it the
        // kernel has begun by itself before.
        settings.add_filter(r"was not woken", "was woken [n] times");
    }
    settings.bind(|| insta::assert_snapshot!(name, findings));
}
