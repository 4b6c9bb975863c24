//! Reads the logs of the node's components, and so learns what happened before podstuck was started: names of pods
//! whose log directories are gone, the attempts of the last hour with their errors, and errors that no system call
//! shows.
//!
//! A process's log is where its standard error goes: a file, or the journal.

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
mod kernel_devices;
mod klog;
mod klog_device;
mod klog_end;
mod klog_pod;
mod klog_runtime;
mod lines;
mod mark;
mod peel;
mod place;
mod pod_ids;
mod read;
mod read_containers;
mod read_driver;
mod read_runtime;
mod runtime;
mod stops;
mod volume_steps;
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
    identity::{Component, Pod},
    path::safe_path,
    query::NoAnswer,
    said::{Heard, NamedCall, Said},
};
pub(in crate::state) use read::ReadLog;
pub(in crate::state) use read_containers::ReadContainerLogs;
use read_driver::DriverSaid;
pub use read_driver::Marks;
pub(in crate::state) use read_driver::ReadDriverLog;
pub(in crate::state) use read_runtime::ReadRuntimeLog;

/// Logs that could not be read because a file system did not answer, each with the reason.
static SILENT: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

type Answered<T> = Result<T, Failure<OsString>>;

/// Makes the patterns that usual lines of kubelet's log are compared with, for all processes that are forked afterwards.
/// That takes as long as reading a thousand lines.
pub fn prepare() {
    read::prepare();
}

/// The result of reading a log. Notes a log whose file system did not answer in [`SILENT`].
fn outcome<T>(log: String, answer: Answered<T>) -> Result<T, String> {
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

/// What is not known because logs are on file systems that do not answer, or in no known format.
pub fn degraded() -> Vec<Degraded> {
    let silent = SILENT.lock().unwrap_or_else(PoisonError::into_inner);
    let unread = |(log, why): (&String, &String)| {
        Degraded::new(format!("the {log} could not be read: {why}"), &[Feed::Logs])
    };
    silent.iter().map(unread).chain(lines::degraded()).collect()
}

/// The contents of the logs of this node.
#[derive(Debug, Default)]
pub struct Logs {
    /// Pods that are named in them.
    pub pods: Vec<NamedPod>,
    /// Attempts and other reports, of each log the oldest first.
    pub attempts: Vec<Attempt>,
    /// The periods of kubelet's logs that were read.
    pub heard: Vec<Heard>,
    /// The logs that were read, or could not be.
    pub places: Vec<Place>,
}

/// A log.
#[derive(Debug)]
pub struct Place {
    /// The component that writes it; `Other` for the kernel.
    pub component: Component,
    /// Name of the log; an error says why it could not be read.
    pub read: Result<String, String>,
    /// How many of its lines were read and understood.
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

/// An attempt, or another report, and the process that logged it.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The process that writes the log now; the attempt may be that of an earlier process.
    pub pid: u32,
    /// The same process, as the probes would describe it.
    pub caller: Caller,
    /// The report.
    pub said: Said,
    /// The call that failed, where the error names one.
    pub call: Option<NamedCall>,
}

/// Reads the logs of all kubelets and runtimes of the node, and the kernel's. Takes two seconds for each that does not
/// answer.
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

/// The result of reading a driver's logs.
#[derive(Debug)]
pub struct DriverRead {
    /// The complaints.
    pub said: Vec<Said>,
    /// The logs; an error says why they could not be read.
    pub read: Result<Vec<String>, String>,
    /// Lines of all of them, or of the one that is not understood.
    pub lines: Lines,
}

/// Reads a driver's complaints about one volume, only new ones where `marks` has its logs. Takes two seconds where a
/// file system does not answer.
pub fn read_driver(log: DriverLog, marks: &mut Marks) -> DriverRead {
    let DriverLog { host_root, log_dirs, pid, uid, volume, names } = log;
    let (now, after) = (Timestamp::now(), marks.clone());
    let question = ReadDriverLog { host_root, log_dirs, pid, uid, volume, names, now, after };
    let (mut said, mut lines) = (Vec::new(), Lines::default());
    let answer = ask_in_parts(question, |mut part: DriverSaid| {
        let source = source(Component::CsiDriver, pid, &part.place);
        let all = lines::read(pid, &source, part.lines);
        // Another container of the driver's pod may write in another format.
        lines = if lines.are_foreign() || all.are_foreign() {
            lines.foreign(all)
        } else {
            lines.and(all)
        };
        part.note(marks);
        said.extend(part.said);
    });
    let read = outcome(format!("log of csi-driver (pid {pid})"), answer);
    DriverRead { said, read, lines }
}

/// The complaints that name a pod in the logs of the node's other containers. Takes two seconds where a file system does
/// not answer.
pub fn read_containers(log_dirs: &[PathBuf], pod: &Pod) -> Vec<Said> {
    let (log_dirs, pod, now) = (log_dirs.to_vec(), pod.clone(), Timestamp::now());
    let mut said = Vec::new();
    let question = ReadContainerLogs { log_dirs, pod, now };
    let answer = ask_in_parts(question, |part: Vec<Said>| said.extend(part));
    if let Err(failure) = answer {
        tracing::info!("the logs of the node's containers: {}", NoAnswer::from(failure));
    }
    said
}

/// A report of a component's log about a pod. All reports are made here, so that none contains a token.
fn said(component: Component, source: &str, uid: &str, at: Timestamp, text: &str) -> Said {
    Said::new(component, source, uid, at, &klog::shown(text))
}

/// Whether the logs of the registered CSI drivers can be read, found by their registrars' pods. Takes two seconds for
/// each that does not answer.
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

/// The name of a log in reports.
fn source(component: Component, pid: u32, place: &str) -> String {
    format!("log of {} (pid {pid}), {place}", component.name())
}

/// A process, as the probes would describe it.
fn caller(pid: u32) -> Caller {
    let comm = thread::name(&proc::comm(format!("/proc/{pid}").as_ref()));
    let mnt_ns = namespaces::of_process(pid).unwrap_or_default();
    let started_ns = proc::started(pid).unwrap_or(0).saturating_mul(clock::tick_ns());
    Caller { comm, mnt_ns, started_ns, ..Caller::default() }
}

fn fixed(pattern: &str) -> Regex {
    // An invalid pattern fails the tests of its file.
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
        let why = outcome::<()>(log(), Err(hung)).unwrap_err();
        assert!(why.contains("/var/log/a\\x1b did not answer"), "{why}");
        assert!(missing());
        outcome(log(), Ok(())).unwrap();
        assert!(!missing());
        // What cannot be read at all is no fault of a file system.
        let other = Failure::Other(NoAnswer::Refused("its standard error is /dev/null".into()));
        outcome::<()>(log(), Err(other)).unwrap_err();
        assert!(!missing());
        let not_entered = Failure::Other(NoAnswer::NotEntered("it hangs".into()));
        outcome::<()>(log(), Err(not_entered)).unwrap_err();
        assert!(missing());
        outcome(log(), Ok(())).unwrap();
    }
}
