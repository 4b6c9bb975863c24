//! What a component says in its log.

use std::path::PathBuf;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    call::{Call, Outcome},
    identity::Component,
    raw_path,
};

/// Stands in the name of a log that somebody else than root may write: what is read there makes nothing firm.
pub const NOT_ROOTS: &str = "which is not root's alone";

/// What a component complains of, where that is known by its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Complaint {
    /// The CSI driver is not registered.
    NoDriver,
    /// It is registered, and cannot be reached.
    DriverDown,
    /// It says that it still works on an earlier call.
    DriverHangs,
    /// It has not answered within the two minutes that kubelet waits.
    DriverTimesOut,
    /// It answers with an error.
    DriverError,
    /// It has said that all is well, and the volume is still mounted.
    StillMounted,
    /// kubelet does not find what it wrote about the volume.
    NoData,
    /// kubelet fails to mount the volume.
    MountFails,
    /// kubelet does not let a volume's device go, because it is mounted elsewhere, too.
    DeviceMounted,
    /// The same, because a raw block volume is mapped for another pod.
    DeviceMapped,
    /// The same, because somebody has it open.
    DeviceInUse,
    /// kubelet's own map of a raw block volume is busy.
    MapBusy,
    /// The runtime cannot take the pod's network down, because its CNI plugin fails.
    NetworkTeardown,
    /// A signal to a container is refused, with EACCES.
    SignalDenied,
    /// The same with EPERM.
    SignalRefused,
    /// The runtime does not find the container, or the shim, that it believes in.
    StateLost,
    /// The runtime does not answer in time.
    NoAnswer,
    /// Connecting to the runtime's socket fails at once.
    SocketRefused,
    /// The runtime waits for a container to end, which it has told to.
    ContainerStays,
    /// A container's root file system cannot be unmounted.
    RootfsBusy,
    /// kubelet does not hear what the API server says of its pods.
    WatchFails,
    /// The kernel hears nothing from an SMB server any more.
    ServerSilent,
    /// A metadata server of CephFS has rejected the session of the kernel's client.
    SessionRejected,
    /// The file of a sandbox's network namespace cannot be removed.
    NetnsBusy,
    /// The directory of a sandbox's shared memory cannot be removed.
    ShmBusy,
    /// An image that is a volume of the pod cannot be unmounted.
    ImageVolumeBusy,
    /// The block device of a container cannot be taken away.
    DeviceBusy,
    /// A hook that the runtime runs after a container's end fails.
    HookFailed,
}

impl Complaint {
    /// Whether kubelet says that it does not let a volume's device go.
    pub fn is_of_a_device(self) -> bool {
        matches!(self, Self::DeviceMounted | Self::DeviceMapped | Self::DeviceInUse)
    }
}

/// How bad a component takes to be what it says.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// It is only information, with an error in it.
    Info,
    /// It is a warning.
    Warning,
    /// It is an error.
    #[default]
    Error,
}

/// As serde asks it.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_error(level: &Level) -> bool {
    *level == Level::Error
}

/// What a component says that it has done, or has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Report {
    /// A volume was torn down, as far as it knows.
    TornDown,
    /// A raw block volume was unmapped, as far as it knows.
    Unmapped,
    /// A volume's device was let go, for all pods of the node.
    DeviceReleased,
    /// A container of the pod has ended.
    ContainerEnded,
    /// kubelet has heard that the pod is to be deleted.
    ToGo,
    /// kubelet has learned of the pod: when that was made for its node, and again whenever kubelet is started.
    Added,
    /// kubelet asks the runtime to stop a container of the pod.
    Killing,
    /// The runtime sends SIGKILL to a container of the pod, which the text names.
    Killed,
    /// The runtime is asked to stop the pod's sandbox. A log that has this says of a stop that succeeds, too.
    SandboxStops,
    /// The runtime has stopped the pod's sandbox.
    SandboxStopped,
    /// dockerd has had containerd delete the task of a container of the pod that has ended, which the text names.
    TaskDeleted,
}

/// Length of a container's id.
const CONTAINER_ID: usize = 64;

/// The container that a text names last: errors name first what was asked for, and last what failed.
pub fn container_id(text: &str) -> Option<&str> {
    let is_hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
    text.rsplit(|c| !is_hex(c)).find(|part| part.len() == CONTAINER_ID)
}

/// What two messages of one kind have in common: all but their numbers.
pub fn template(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let c = if c.is_ascii_digit() { '#' } else { c };
        if c != '#' || !out.ends_with('#') {
            out.push(c);
        }
    }
    out
}

/// The log of a component, and from when on it tells of attempts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// As in [`Said::source`].
    pub source: String,
    /// The time of the first entry that was read. All attempts since are in the entries: those that fail
    /// and those that succeed are logged at every level.
    pub since: Timestamp,
    /// When it was read.
    pub until: Timestamp,
    /// Whether it names each step of kubelet's as well: that it has heard of a deletion, and that it asks the runtime to
    /// stop a container. kubelet logs both from `--v=2` on.
    #[serde(skip_serializing_if = "is_not", default)]
    pub names_steps: bool,
}

/// As serde asks it.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_not(value: &bool) -> bool {
    !value
}

/// What the source of an entry ends with that its component may not have written.
const UNPROVEN: &str = ", an entry out of its time";

/// The source of an entry that the component may not have written: nothing firm comes of it.
pub fn unproven(source: &str) -> String {
    format!("{source}{UNPROVEN}")
}

/// Whether a source is one of [`unproven`].
pub fn is_unproven(source: &str) -> bool {
    source.ends_with(UNPROVEN)
}

/// An attempt at a pod's teardown, in the words of who made it. It failed, unless there is a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Said {
    /// UID of the pod; empty for what holds for all pods of the node, and for a volume's device.
    pub uid: String,
    /// Who says it.
    pub component: Component,
    /// The volume, as kubelet names it: `kubernetes.io/csi/DRIVER^HANDLE` for one of a CSI driver. Empty for
    /// what is about no volume.
    pub volume: String,
    /// When it was written.
    pub at: Timestamp,
    /// No attempt is made before; `None` where the line does not say.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retry: Option<Timestamp>,
    /// What the error is about.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub complaint: Option<Complaint>,
    /// What a look at a volume came to, where the error names one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub looked: Option<NamedLook>,
    /// How bad it is, by the component itself.
    #[serde(skip_serializing_if = "is_error", default)]
    pub level: Level,
    /// What is reported; `None` for an error.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub report: Option<Report>,
    /// The error, or what is reported. Harmless to show.
    pub text: String,
    /// Whose log, as in `log of kubelet (pid 700), /var/log/kubelet.log`.
    pub source: String,
    /// How many lines say the same of this pod.
    pub times: u64,
}

impl Said {
    /// A line about a pod that says this. What else it says is to be filled in.
    pub fn new(component: Component, source: &str, uid: &str, at: Timestamp, text: &str) -> Self {
        Self {
            uid: uid.into(),
            component,
            volume: String::new(),
            at,
            retry: None,
            complaint: None,
            looked: None,
            level: Level::Error,
            report: None,
            text: text.into(),
            source: source.into(),
            times: 1,
        }
    }

    /// Whether kubelet says it of a pod's volume.
    pub fn is_kubelets_of_a_volume(&self) -> bool {
        let of_volume = self.report == Some(Report::TornDown) || !self.volume.is_empty();
        self.component == Component::Kubelet && of_volume && !self.is_of_a_device()
    }

    /// Whether it is about a volume's device, which kubelet lets go when no pod uses the volume any more.
    pub fn is_of_a_device(&self) -> bool {
        self.uid.is_empty() && !self.volume.is_empty()
    }

    /// Whether it only says how far the pod has come, which is no word about what holds it.
    pub fn is_progress(&self) -> bool {
        matches!(
            self.report,
            Some(
                Report::ContainerEnded
                    | Report::ToGo
                    | Report::Added
                    | Report::Killing
                    | Report::DeviceReleased
                    | Report::Killed
                    | Report::SandboxStops
                    | Report::SandboxStopped
                    | Report::TaskDeleted
            )
        )
    }
}

/// A look that failed (`stat`, `lstat`), as an error names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamedLook {
    /// The object.
    #[serde(with = "raw_path")]
    #[schemars(with = "raw_path::Raw")]
    pub path: PathBuf,
    /// How it ended.
    pub outcome: Outcome,
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
