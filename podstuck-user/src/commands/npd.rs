//! `podstuck check --npd`: whether a pod of this node is stuck, as a custom plugin of node-problem-detector says it.
//!
//! A process of its own lists the pods (`podstuck -o json`). When the time is up it is killed with its helpers, whatever
//! hangs there.

use std::{
    io::{self, BufRead, BufReader},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use jiff::{SignedDuration, Timestamp};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use serde::Deserialize;

use super::away;
use crate::{
    cli::{Api, Check},
    model::{
        evidence::Certainty,
        finding::{Severity, is_alarming},
        path::safe,
    },
    standard_output,
};

/// It cuts what is longer (`max_output_length`).
const LONGEST: usize = 80;
/// A deletion without a known cause may need no more than its time.
const YOUNG: SignedDuration = SignedDuration::from_mins(10);
/// From a signal that cannot be caught to the end of a process.
const KILLED: Duration = Duration::from_secs(1);

/// What the exit status says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Well = 0,
    Problem = 1,
    Unknown = 2,
}

/// What the list says of a pod, and at its end.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum Line {
    Pod(Pod),
    List {
        saw_all: bool,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
struct Pod {
    pod: Name,
    since: Option<Timestamp>,
    cause: Option<Cause>,
}

#[derive(Debug, Deserialize)]
struct Name {
    uid: String,
    namespace: Option<String>,
    name: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Cause {
    id: String,
    certainty: Certainty,
    severity: Severity,
    blocks_deletion: Option<bool>,
}

/// Prints one line, and returns the exit status.
pub fn run(mut options: Check) -> u8 {
    let mut pods = Vec::new();
    let (status, message) = match list(&mut options, &mut pods) {
        Ok(saw_all) => answer(&pods, saw_all, Timestamp::now()),
        // What is known of some pods stands.
        Err(error) => match answer(&pods, false, Timestamp::now()) {
            (Status::Problem, message) => (Status::Problem, message),
            _ => (Status::Unknown, format!("{error:#}")),
        },
    };
    standard_output::print(line(&message));
    status as u8
}

/// Whether all pods were seen. Adds those that are being deleted as they are listed.
fn list(options: &mut Check, pods: &mut Vec<Pod>) -> Result<bool> {
    let end = Instant::now() + options.timeout;
    away::leave(away::of_node(&mut options.node).chain(away::of_api(&mut options.api)))?;
    let (mut child, lines) = start(options).context("cannot start podstuck")?;
    let (mut saw_all, mut complaint) = (None, String::new());
    loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(text) => match serde_json::from_str(&text) {
                Ok(Line::Pod(pod)) => pods.push(pod),
                Ok(Line::List { saw_all: all }) => saw_all = Some(all),
                Ok(Line::Other) => {}
                Err(_) => complaint = text,
            },
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                kill(&mut child);
                bail!("not done within {} s", options.timeout.as_secs_f32());
            }
        }
    }
    let status = child.wait().context("cannot wait for podstuck")?;
    match saw_all {
        Some(saw_all) => Ok(saw_all),
        None if complaint.is_empty() => bail!("podstuck ended early: {status}"),
        None => bail!("{}", complaint.trim_start_matches("podstuck: ")),
    }
}

/// The list, with its lines and its complaints.
fn start(options: &Check) -> io::Result<(Child, Receiver<String>)> {
    let (reader, writer) = io::pipe()?;
    let mut podstuck = Command::new("/proc/self/exe");
    podstuck.args(["--output", "json", "--host-root"]).arg(&options.node.host_root);
    podstuck.args(
        options
            .node
            .kubelet_root
            .iter()
            .flat_map(|root| ["--kubelet-root".as_ref(), root.as_os_str()]),
    );
    match &options.api {
        Api::Auto => {}
        Api::Never => drop(podstuck.args(["--api", "never"])),
        Api::File(path) => drop(podstuck.arg("--api").arg(path)),
    }
    podstuck.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer).process_group(0);
    let child = podstuck.spawn()?;
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(reader).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    // Here ends `podstuck`, which has the other end of the pipe open.
    Ok((child, lines))
}

fn kill(child: &mut Child) {
    let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
    let end = Instant::now() + KILLED;
    // One that waits for a disk may never end.
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < end {
        thread::sleep(Duration::from_millis(10));
    }
}

fn answer(pods: &[Pod], saw_all: bool, now: Timestamp) -> (Status, String) {
    let stuck: Vec<(&Pod, &Cause)> = pods
        .iter()
        .filter_map(|pod| Some((pod, pod.cause.as_ref()?)))
        .filter(|(_, it)| is_alarming(it.certainty, it.severity, it.blocks_deletion))
        .collect();
    if !stuck.is_empty() {
        let each = stuck.iter().map(|(pod, cause)| format!("{} {}", cause.id, pod.pod.shown()));
        let each: Vec<String> = each.collect();
        return (Status::Problem, format!("{} stuck: {}", stuck.len(), each.join(", ")));
    }
    let is_old = |pod: &&Pod| pod.since.is_none_or(|since| now.duration_since(since) > YOUNG);
    match pods.iter().find(is_old) {
        Some(pod) => (Status::Unknown, format!("no cause is known for {}", pod.pod.shown())),
        None if !saw_all => (Status::Unknown, "not all pods of the node were seen".into()),
        None => (Status::Well, "no pod is stuck".into()),
    }
}

impl Name {
    fn shown(&self) -> String {
        match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
            _ => self.uid.clone(),
        }
    }
}

/// One line of at most [`LONGEST`] bytes.
fn line(message: &str) -> String {
    let message = safe(message.as_bytes());
    if message.len() <= LONGEST {
        return format!("{message}\n");
    }
    let (rest, end) = ("...", message.floor_char_boundary(LONGEST - 3));
    format!("{}{rest}\n", message.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, since: Option<&str>, cause: Option<(&str, &str)>) -> Pod {
        let cause = cause.map(|(id, certainty)| {
            serde_json::json!({"id": id, "certainty": certainty, "severity": "critical", "blocks_deletion": true})
        });
        let pod = serde_json::json!({"type": "pod", "pod": {"uid": "u", "namespace": "shop", "name": name},
            "since": since, "cause": cause});
        match serde_json::from_value(pod).unwrap() {
            Line::Pod(pod) => pod,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_pod_without_a_cause_is_no_problem_until_it_is_old() {
        let now: Timestamp = "2026-11-28T12:00:00Z".parse().unwrap();
        let status = |pods: &[Pod], saw_all| answer(pods, saw_all, now).0;
        let (young, old) = (Some("2026-11-28T11:59:00Z"), Some("2026-11-28T11:00:00Z"));
        assert_eq!(status(&[], true), Status::Well);
        assert_eq!(status(&[], false), Status::Unknown);
        assert_eq!(status(&[pod("a", young, None)], true), Status::Well);
        assert_eq!(status(&[pod("a", old, None)], true), Status::Unknown);
        assert_eq!(status(&[pod("a", None, None)], true), Status::Unknown);
        assert_eq!(status(&[pod("a", old, Some(("x", "possible")))], true), Status::Unknown);
        let (status, message) = answer(
            &[pod("a", young, Some(("nfs-stale-handle", "likely"))), pod("b", old, None)],
            false,
            now,
        );
        assert_eq!((status, &*message), (Status::Problem, "1 stuck: nfs-stale-handle shop/a"));
    }

    #[test]
    fn a_message_is_a_line_that_node_problem_detector_takes_whole() {
        assert_eq!(line("a\nb\u{1b}"), "a\\x0ab\\x1b\n");
        let long = line(&"\u{e9}".repeat(80));
        assert!(long.len() <= LONGEST + 1 && long.ends_with("...\n"), "{long}");
    }
}
