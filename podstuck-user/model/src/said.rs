//! A component's log messages.

use std::path::PathBuf;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    call::{Call, Outcome},
    identity::Component,
    path::safe,
    raw_path,
};

/// Marks the name of a log that users other than root can write: it makes no finding firm.
pub const NOT_ROOTS: &str = "which is not root's alone";

/// A complaint in a log, recognised by its text.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Complaint {
    /// The CSI driver is not registered.
    NoDriver,
    /// It is registered, and cannot be reached.
    DriverDown,
    /// It reports that an earlier call is still in progress.
    DriverHangs,
    /// It has not answered within kubelet's timeout of two minutes.
    DriverTimesOut,
    /// It returns an error.
    DriverError,
    /// It reported success, and the volume is still mounted.
    StillMounted,
    /// kubelet does not find its data about the volume.
    NoData,
    /// kubelet fails to mount the volume.
    MountFails,
    /// kubelet does not release a volume's device, because it is mounted elsewhere.
    DeviceMounted,
    /// kubelet does not release a volume's device, because a raw block volume is mapped for another pod.
    DeviceMapped,
    /// kubelet does not release a volume's device, because a process has it open.
    DeviceInUse,
    /// kubelet's own map of a raw block volume is busy.
    MapBusy,
    /// The runtime cannot tear down the pod's network, because its CNI plugin fails.
    NetworkTeardown,
    /// A signal to a container fails with EACCES.
    SignalDenied,
    /// A signal to a container fails with EPERM.
    SignalRefused,
    /// The OCI runtime fails when it is to signal a container.
    KillFails,
    /// The runtime does not find a container or shim that is in its records.
    StateLost,
    /// The runtime does not answer in time.
    NoAnswer,
    /// The runtime answers kubelet's request for all pods or containers with an error.
    ListFails,
    /// Connecting to the runtime's socket is refused.
    SocketRefused,
    /// The runtime waits for a container to end after a signal.
    ContainerStays,
    /// A container's root file system cannot be unmounted.
    RootfsBusy,
    /// kubelet's watch of its pods at the API server fails.
    WatchFails,
    /// kubelet ends with an error.
    KubeletEnds,
    /// The kernel receives nothing from an SMB or NFS server any more.
    ServerSilent,
    /// The kernel warns about a block device, or about the file system on it.
    DeviceWarning,
    /// A CephFS metadata server has rejected the session of the kernel's client.
    SessionRejected,
    /// The file of a sandbox's network namespace cannot be removed.
    NetnsBusy,
    /// The directory of a sandbox's shared memory cannot be removed.
    ShmBusy,
    /// An image that is mounted as a volume of the pod cannot be unmounted.
    ImageVolumeBusy,
    /// The block device of a container cannot be removed.
    DeviceBusy,
    /// A hook that the runtime runs after a container's end fails.
    HookFailed,
    /// The runtime no longer has the handler that a pod was started with.
    HandlerGone,
}

impl Complaint {
    /// Whether kubelet complains that it cannot release a volume's device.
    pub fn is_of_a_device(self) -> bool {
        matches!(self, Self::DeviceMounted | Self::DeviceMapped | Self::DeviceInUse)
    }
}

/// The log level of a message.
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
    /// Informational, with an error in the text.
    Info,
    /// A warning.
    Warning,
    /// An error.
    #[default]
    Error,
}

/// For `skip_serializing_if`.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_error(level: &Level) -> bool {
    *level == Level::Error
}

/// An event that a component reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Report {
    /// A volume was torn down, as far as the component knows.
    TornDown,
    /// A raw block volume was unmapped, as far as the component knows.
    Unmapped,
    /// A volume's device was released, for all pods of the node.
    DeviceReleased,
    /// kubelet counts the volume as attached, and not as mounted for the pod: it would mount it next.
    Attached,
    /// kubelet has mounted the volume for the pod, and counts it as mounted.
    SetUp,
    /// kubelet has taken another step with the volume, such as a mount or an unmount.
    VolumeStep,
    /// A container of the pod has ended.
    ContainerEnded,
    /// kubelet has received the pod's deletion.
    ToGo,
    /// kubelet has received the pod: when it was assigned to the node, and at each start of kubelet.
    Added,
    /// kubelet asks the runtime to stop a container of the pod.
    Killing,
    /// The runtime sends SIGKILL to the container of the pod that the text names.
    Killed,
    /// The runtime is asked to stop the pod's sandbox. A log with this message also reports a successful stop.
    SandboxStops,
    /// The runtime has stopped the pod's sandbox.
    SandboxStopped,
    /// systemd starts the component's service again; the number is its own count.
    StartedAgain,
    /// dockerd has had containerd delete the task of the container that the text names, which has ended.
    TaskDeleted,
}

/// Follows the words of [`Report::Killing`] where the log has the grace period.
pub fn with_grace(grace_s: u64) -> String {
    format!(" with a grace period of {grace_s} s")
}

/// The grace period in the text of [`Report::Killing`].
pub fn grace_s(text: &str) -> Option<u64> {
    text.rsplit_once(" with a grace period of ")?.1.strip_suffix(" s")?.parse().ok()
}

/// Length of a container's id.
const CONTAINER_ID: usize = 64;

/// The last container id in a text: errors name the request first and the failure last.
pub fn container_id(text: &str) -> Option<&str> {
    let is_hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
    text.rsplit(|c| !is_hex(c)).find(|part| part.len() == CONTAINER_ID)
}

/// The part that messages of one kind share: the text without its numbers.
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

/// The interface by which a daemon has answered a request with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// gRPC: a runtime with the CRI, or a driver.
    Grpc,
    /// The API of Docker, also where dockershim or cri-dockerd passes it on by gRPC.
    Docker,
}

/// The interface of the daemon whose answer an error of kubelet is, by the words of gRPC's status, go-dockerclient
/// (`Error`) and Docker's own client (client/request.go); `None` for an error of kubelet's own.
pub fn answered(error: &str) -> Option<Answered> {
    let is_dockers =
        ["API error (", "rror response from daemon: "].iter().any(|it| error.contains(it));
    let is_grpcs = error.contains("rpc error: code = ");
    let docker = is_dockers.then_some(Answered::Docker);
    docker.or_else(|| is_grpcs.then_some(Answered::Grpc))
}

/// Whether an error has gRPC's code for what does not exist: a runtime does not have the container, or a CSI driver does not
/// know the volume (the CSI specification, `NodeUnpublishVolume`).
pub fn is_not_found(error: &str) -> bool {
    error.contains("rpc error: code = NotFound")
}

/// Whether an error is gRPC's answer of a runtime that has not loaded its CRI plugin: it does nothing for kubelet
/// (google.golang.org/grpc, server.go, `handleStream`).
pub fn is_not_served(error: &str) -> bool {
    error.contains("unknown service runtime.v1")
}

/// A component's log and the period that it covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// As in [`Said::source`].
    pub source: String,
    /// The time of the first entry that was read. The log has all attempts since then: failures and successes are
    /// logged at every level.
    pub since: Timestamp,
    /// When it was read.
    pub until: Timestamp,
    /// Whether it has each of kubelet's steps as well: the received deletion, and the request to the runtime to stop
    /// a container. kubelet logs both from `--v=2` on.
    #[serde(skip_serializing_if = "is_not", default)]
    pub names_steps: bool,
}

/// For `skip_serializing_if`.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_not(value: &bool) -> bool {
    !value
}

/// Suffix of the source of an entry that the component may not have written.
const UNPROVEN: &str = ", an entry out of its time";

/// The source of an entry that the component may not have written: it makes no finding firm.
pub fn unproven(source: &str) -> String {
    format!("{source}{UNPROVEN}")
}

/// Whether a source is one of [`unproven`].
pub fn is_unproven(source: &str) -> bool {
    source.ends_with(UNPROVEN)
}

/// A log message about an attempt at a pod's teardown. The attempt failed, unless there is a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Said {
    /// UID of the pod; empty for a message about all pods of the node or about a volume's device.
    pub uid: String,
    /// The component that wrote it.
    pub component: Component,
    /// The volume, as kubelet names it: `kubernetes.io/csi/DRIVER^HANDLE` for a CSI driver. Empty if it is not about
    /// a volume.
    pub volume: String,
    /// When it was written.
    pub at: Timestamp,
    /// No retry before this time; `None` if the message does not say.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retry: Option<Timestamp>,
    /// The complaint, if recognised.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub complaint: Option<Complaint>,
    /// The result of a `stat` of a volume, if the error names one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub looked: Option<NamedLook>,
    /// The block devices that a message of the kernel is about, as `major:minor`: the one that it names, and those
    /// built on it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub devices: Vec<String>,
    /// The level, by the component.
    #[serde(skip_serializing_if = "is_error", default)]
    pub level: Level,
    /// The reported event; `None` for an error.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub report: Option<Report>,
    /// The message. Safe to show.
    pub text: String,
    /// The log, such as `log of kubelet (pid 700), /var/log/kubelet.log`.
    pub source: String,
    /// Number of equal messages about this pod.
    pub times: u64,
}

impl Said {
    /// The last such message, and how often it was logged, as a fact about its author.
    pub fn quote(&self, who: &str) -> String {
        let times = if self.times > 1 { format!("{} times, ", self.times) } else { String::new() };
        format!("{who} logged, {times}last at {:.0}: {}", self.at, safe(self.text.as_bytes()))
    }

    /// The writer of the log, by the log's name: `kubelet (pid 700)`, or `CONTAINER of pod NAMESPACE/NAME`.
    pub fn writer(&self) -> &str {
        let name = self.source.strip_prefix("log of ").unwrap_or(&self.source);
        name.split_once(", ").map_or(name, |(writer, _)| writer)
    }

    /// An error message about a pod. The other fields are empty.
    pub fn new(component: Component, source: &str, uid: &str, at: Timestamp, text: &str) -> Self {
        Self {
            uid: uid.into(),
            component,
            volume: String::new(),
            at,
            retry: None,
            complaint: None,
            looked: None,
            devices: Vec::new(),
            level: Level::Error,
            report: None,
            text: text.into(),
            source: source.into(),
            times: 1,
        }
    }

    /// Whether it is kubelet's message about the teardown of a pod's volume.
    pub fn is_kubelets_of_a_volume(&self) -> bool {
        let of_volume = self.report == Some(Report::TornDown) || !self.volume.is_empty();
        let is_other =
            matches!(self.report, Some(Report::Attached | Report::SetUp | Report::VolumeStep));
        self.component == Component::Kubelet && of_volume && !is_other && !self.is_of_a_device()
    }

    /// Whether it is about a volume's device, which kubelet releases when no pod uses the volume any more.
    pub fn is_of_a_device(&self) -> bool {
        self.uid.is_empty() && !self.volume.is_empty()
    }

    /// Whether it only reports progress of the pod, and so says nothing about what holds it.
    pub fn is_progress(&self) -> bool {
        matches!(
            self.report,
            Some(
                Report::ContainerEnded
                    | Report::ToGo
                    | Report::Added
                    | Report::Killing
                    | Report::DeviceReleased
                    | Report::Attached
                    | Report::SetUp
                    | Report::VolumeStep
                    | Report::Killed
                    | Report::SandboxStops
                    | Report::SandboxStopped
                    | Report::TaskDeleted
                    | Report::StartedAgain
            )
        )
    }
}

/// A failed `stat` or `lstat`, as an error names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamedLook {
    /// The object.
    #[serde(with = "raw_path")]
    #[schemars(with = "raw_path::Raw")]
    pub path: PathBuf,
    /// The outcome.
    pub outcome: Outcome,
}

/// A failed call, as an error names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedCall {
    /// The call.
    pub call: Call,
    /// The object.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
    /// The outcome.
    pub outcome: Outcome,
}
