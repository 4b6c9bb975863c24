//! What a component says in its log.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    call::{Call, Outcome},
    raw_path,
};

/// What a component complains of, where that is known by its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Complaint {
    /// The CSI driver cannot be asked.
    NoDriver,
    /// It answers with an error.
    DriverError,
    /// kubelet does not find what it wrote about the volume.
    NoData,
}

/// A failed attempt at a pod's teardown, in the words of who made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// UID of the pod.
    pub uid: String,
    /// The volume, as kubelet names it: `kubernetes.io/csi/DRIVER^HANDLE` for one of a CSI driver.
    pub volume: String,
    /// When it was written.
    pub at: Timestamp,
    /// No attempt is made before; `None` where the line does not say.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retry: Option<Timestamp>,
    /// What the error is about.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub complaint: Option<Complaint>,
    /// The error. Harmless to show.
    pub text: String,
    /// Whose log, as in `log of kubelet (pid 700), /var/log/kubelet.log`.
    pub source: String,
    /// How many lines say the same of this pod.
    pub times: u64,
}

/// A call that failed, as an error names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedCall {
    /// What was called.
    pub call: Call,
    /// The object.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
    /// How it ended.
    pub outcome: Outcome,
}
