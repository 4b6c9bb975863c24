//! What kubelet says in its log, by which a late arrival learns what it has missed: pods' names after
//! their directories of logs are gone, and the attempts of the last hour with their errors.
//!
//! The log is where the process's standard error goes: a file, or the journal.

mod klog;
mod place;
mod read;

use std::path::PathBuf;

use jiff::Timestamp;
use podstuck_common::record::Caller;
use serde::{Deserialize, Serialize};

use super::{helper::ask_in_parts, namespaces, thread};
use crate::{
    identity::{on_host, roots::running_kubelets},
    model::said::{Heard, NamedCall, Said},
    proc,
    query::NoAnswer,
};
pub(in crate::state) use read::ReadLog;

/// What the logs of this node say.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    /// Pods by name.
    pub(crate) pods: Vec<NamedPod>,
    /// Attempts and what else is reported, the oldest first.
    pub(crate) attempts: Vec<Attempt>,
    /// From when on they were read.
    pub(crate) heard: Vec<Heard>,
    /// Each log; an error says why it could not be read.
    pub(crate) places: Vec<Result<String, String>>,
}

/// A pod that a log names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct NamedPod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// An attempt, or another report, and the process that says so.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// The kubelet that wrote it. Its attempts are those of the process that runs now, or of one before.
    pub(crate) pid: u32,
    pub(crate) caller: Caller,
    pub(crate) said: Said,
    /// The call that failed, where the error names one.
    pub(crate) call: Option<NamedCall>,
}

/// Reads the logs of all kubelets of the node. Takes two seconds for each that does not answer.
pub(crate) fn read(host_root: &std::path::Path) -> Logs {
    let mut logs = Logs::default();
    for pid in running_kubelets(&on_host(host_root, "/proc".as_ref())) {
        let caller = caller(pid);
        let question = ReadLog { host_root: PathBuf::from(host_root), pid, now: Timestamp::now() };
        let place = ask_in_parts(question, |part| match part {
            read::Part::Pods(pods) => logs.pods.extend(pods),
            read::Part::Heard(heard) => logs.heard.push(heard),
            read::Part::Attempts(attempts) => {
                let whole = |(said, call)| Attempt { pid, caller, said, call };
                logs.attempts.extend(attempts.into_iter().map(whole));
            }
        });
        logs.places.push(
            place.map_err(|failure| {
                format!("log of kubelet (pid {pid}): {}", NoAnswer::from(failure))
            }),
        );
    }
    logs
}

/// As the probes would describe it.
fn caller(pid: u32) -> Caller {
    let comm = thread::name(&proc::comm(format!("/proc/{pid}").as_ref()));
    let mnt_ns = namespaces::of_process(pid).unwrap_or_default();
    Caller { comm, mnt_ns, ..Caller::default() }
}
