//! What the node's components say in their logs, by which a late arrival learns what it has missed: pods'
//! names after their directories of logs are gone, the attempts of the last hour with their errors, and what
//! no call shows.
//!
//! A log is where the process's standard error goes: a file, or the journal.

mod attempts;
#[cfg(any(test, feature = "captures"))]
pub mod captures;
#[cfg(test)]
mod captures_tests;
mod complaints;
mod container_log;
mod deletions;
mod driver;
mod entries;
mod follow;
mod framing;
mod go_json;
mod go_text;
mod kernel;
mod klog;
mod klog_device;
mod klog_pod;
mod klog_runtime;
mod lines;
mod mark;
mod peel;
mod place;
mod pod_ids;
mod read;
mod read_driver;
mod read_runtime;
mod runtime;
mod zone;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use jiff::Timestamp;
use podstuck_common::record::Caller;
use regex::Regex;
use serde::{Deserialize, Serialize};

use super::{namespaces, registrar, thread};
pub use driver::VolumeNames;
pub use follow::Follower;
pub(in crate::state) use kernel::ReadKernelLog;
pub use lines::Lines;
use podstuck_confine::helper::{Failure, LIMIT, ask_in_parts};
use podstuck_confine::{clock, proc};
use podstuck_model::{
    degraded::{Degraded, Feed},
    identity::Component,
    path::safe_path,
    query::NoAnswer,
    said::{Heard, NamedCall, Said},
};
pub(in crate::state) use read::ReadLog;
use read_driver::DriverSaid;
pub use read_driver::Marks;
pub(in crate::state) use read_driver::ReadDriverLog;
pub(in crate::state) use read_runtime::ReadRuntimeLog;

/// Logs on file systems that did not answer, each with the reason.
static SILENT: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

type Answered<T> = Result<T, Failure<OsString>>;

/// What came of the reading of a log: where its file system did not answer, it is missing in what is found.
fn told<T>(log: String, answer: Answered<T>) -> Result<T, String> {
    let mut silent = SILENT.lock().unwrap_or_else(PoisonError::into_inner);
    silent.remove(&log);
    let why = match answer {
        Ok(read) => return Ok(read),
        Err(Failure::Hung { at: Some(at), .. }) => {
            let at = safe_path(Path::new(&at)).into_owned();
            format!("{at} did not answer within {LIMIT:?}")
        }
        Err(Failure::Other(why @ (NoAnswer::Helper(_) | NoAnswer::Refused(_)))) => {
            return Err(format!("{log}: {why}"));
        }
        Err(failure) => NoAnswer::from(failure).to_string(),
    };
    let whole = format!("{log}: {why}");
    silent.insert(log, why);
    Err(whole)
}

/// What is not known because logs lie on file systems that do not answer, or are in no form that is known.
pub fn degraded() -> Vec<Degraded> {
    let silent = SILENT.lock().unwrap_or_else(PoisonError::into_inner);
    let told = |(log, why): (&String, &String)| {
        Degraded::new(format!("the {log} could not be read: {why}"), &[Feed::Logs])
    };
    silent.iter().map(told).chain(lines::degraded()).collect()
}

/// What the logs of this node say.
#[derive(Debug, Default)]
pub struct Logs {
    /// Pods by name.
    pub pods: Vec<NamedPod>,
    /// Attempts and what else is reported, the oldest first of each log.
    pub attempts: Vec<Attempt>,
    /// From when on kubelet's were read.
    pub heard: Vec<Heard>,
    /// Each log.
    pub places: Vec<Place>,
}

/// A log.
#[derive(Debug)]
pub struct Place {
    /// Who writes it; the kernel is none of them.
    pub component: Component,
    /// Which it is; an error says why it could not be read.
    pub read: Result<String, String>,
    /// How much of it was read, and understood.
    pub lines: Lines,
}

/// A pod that a log names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NamedPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// An attempt, or another report, and the process that says so.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Who wrote it. Its attempts are those of the process that runs now, or of one before.
    pub pid: u32,
    /// The same, as the probes would tell it of a call.
    pub caller: Caller,
    /// What it says.
    pub said: Said,
    /// The call that failed, where the error names one.
    pub call: Option<NamedCall>,
}

/// Reads the logs of all kubelets and runtimes of the node. Takes two seconds for each that does not answer.
pub fn read(host_root: &Path) -> Logs {
    Follower::new(host_root).read_all()
}

/// The driver of a pod's volume, and where its log may be.
#[derive(Clone, Debug)]
pub struct DriverLog {
    /// The root directory of the host.
    pub host_root: PathBuf,
    /// Where pods' logs are.
    pub log_dirs: Vec<PathBuf>,
    /// Its process, or its registrar's.
    pub pid: u32,
    /// UID of the pod.
    pub uid: String,
    /// The volume, as kubelet calls it.
    pub volume: String,
    /// The volume, as its driver may call it.
    pub names: VolumeNames,
}

/// What came of it.
#[derive(Debug)]
pub struct DriverRead {
    /// The complaints.
    pub said: Vec<Said>,
    /// The logs; an error says why they could not be read.
    pub read: Result<Vec<String>, String>,
    /// Of all of them, or of the one that is not understood.
    pub lines: Lines,
}

/// Reads what a driver complains of about one volume, and what is new where it was read before. Takes two seconds
/// where nobody answers.
pub fn read_driver(log: DriverLog, marks: &mut Marks) -> DriverRead {
    let DriverLog { host_root, log_dirs, pid, uid, volume, names } = log;
    let (now, after) = (Timestamp::now(), marks.clone());
    let question = ReadDriverLog { host_root, log_dirs, pid, uid, volume, names, now, after };
    let (mut said, mut lines) = (Vec::new(), Lines::default());
    let answer = ask_in_parts(question, |mut part: DriverSaid| {
        let source = source(Component::CsiDriver, pid, &part.place);
        let all = lines::read(pid, &source, part.lines);
        // A container beside the driver may write in another form.
        lines = if lines.are_foreign() || all.are_foreign() {
            lines.foreign(all)
        } else {
            lines.and(all)
        };
        part.note(marks);
        said.extend(part.said);
    });
    let read = told(format!("log of csi-driver (pid {pid})"), answer);
    DriverRead { said, read, lines }
}

/// What a component's log says of a pod, in no other form: no token is in it.
fn said(component: Component, source: &str, uid: &str, at: Timestamp, text: &str) -> Said {
    Said::new(component, source, uid, at, &klog::shown(text))
}

/// Whether the logs of the CSI drivers that have registered can be read, by their registrars' pods. Takes two
/// seconds for each that does not answer.
pub fn of_drivers(host_root: &Path, log_dirs: &[PathBuf]) -> Vec<Place> {
    let read = |(name, pid): (String, u32)| {
        let nothing = String::new;
        let names = VolumeNames { directory: nothing(), handle: nothing(), name: nothing() };
        let (host_root, log_dirs) = (host_root.into(), log_dirs.to_vec());
        let (uid, volume) = (nothing(), nothing());
        let log = DriverLog { host_root, log_dirs, pid, uid, volume, names };
        let DriverRead { read, lines, .. } = read_driver(log, &mut Marks::new());
        let named = |what: String| format!("{name}: {what}");
        let read = read.map(|places| named(places.join(", "))).map_err(named);
        Place { component: Component::CsiDriver, read, lines }
    };
    registrar::registered().into_iter().map(read).collect()
}

/// A log, for people.
fn source(component: Component, pid: u32, place: &str) -> String {
    format!("log of {} (pid {pid}), {place}", component.name())
}

/// As the probes would describe it.
fn caller(pid: u32) -> Caller {
    let comm = thread::name(&proc::comm(format!("/proc/{pid}").as_ref()));
    let mnt_ns = namespaces::of_process(pid).unwrap_or_default();
    let started_ns = proc::started(pid).unwrap_or(0).saturating_mul(clock::tick_ns());
    Caller { comm, mnt_ns, started_ns, ..Caller::default() }
}

fn fixed(pattern: &str) -> Regex {
    // A pattern that is no pattern does not pass the tests of the file that it stands in.
    #[expect(clippy::expect_used, reason = "constant, and tested")]
    Regex::new(pattern).expect("a constant pattern")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_does_not_answer_is_missing_until_it_does() {
        let log = || "log of a test".to_owned();
        let missing =
            || degraded().iter().any(|it| it.sentence.contains("the log of a test could"));
        let hung = Failure::Hung { at: Some("/var/log/a\u{1b}".into()), helper: 7 };
        let why = told::<()>(log(), Err(hung)).unwrap_err();
        assert!(why.contains("/var/log/a\\x1b did not answer"), "{why}");
        assert!(missing());
        told(log(), Ok(())).unwrap();
        assert!(!missing());
        // What cannot be read at all is no fault of a file system.
        let other = Failure::Other(NoAnswer::Refused("its standard error is /dev/null".into()));
        told::<()>(log(), Err(other)).unwrap_err();
        assert!(!missing());
        let not_entered = Failure::Other(NoAnswer::NotEntered("it hangs".into()));
        told::<()>(log(), Err(not_entered)).unwrap_err();
        assert!(missing());
        told(log(), Ok(())).unwrap();
    }
}
