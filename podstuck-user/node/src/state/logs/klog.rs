//! kubelet's log lines, in klog's format: severity, date and time without a year, process id, source file.
//!
//! Tenants choose parts of a line, such as the name of a file, and these may contain line breaks. So a line is
//! evidence of what kubelet logs, and a name or a path in it is believed only where it does not contradict what
//! else is known.

use std::{
    path::{Path, PathBuf},
    sync::LazyLock,
};

use jiff::{SignedDuration, Timestamp, ToSpan, civil::DateTime};
use regex::Regex;

use super::{fixed, go_text::quoted, klog_device, volume_steps, zone::zone};
use crate::identity::uid::is_pod_uid;
use podstuck_model::{
    call::{Call, Outcome},
    errno::Errno,
    path::safe,
    said::{Complaint, NamedCall, NamedLook, Report},
};

/// Longest error that is kept, in bytes: two paths and the text about them.
const ERROR_MAX: usize = 9000;

/// The entries that are evaluated.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// A pod's name and UID; where the entry reports a container's end, its time.
    Named { namespace: String, name: String, uid: String, ended: Option<Timestamp> },
    /// An operation on a pod's volume failed.
    Failed(Failed),
    /// A volume of a pod was torn down, a volume's device was released for all pods (the UID is empty), or one of a
    /// pod's containers ended (the volume is empty).
    Done { uid: String, volume: String, at: Timestamp, report: Report },
}

/// A failed operation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failed {
    /// UID of the pod; empty for an operation on the volume's device, done once for all pods.
    pub(super) uid: String,
    pub(super) volume: String,
    pub(super) at: Timestamp,
    pub(super) retry: Option<Timestamp>,
    pub(super) error: String,
}

/// The process id in the header of a line; `None` where it has no header.
pub(super) fn writer(line: &[u8]) -> Option<u32> {
    let head = String::from_utf8_lossy(line.get(..line.len().min(HEAD))?);
    HEADER.captures(&head)?[4].parse().ok()
}

/// Bytes of a line that its header fits into.
const HEAD: usize = 256;

static HEADER: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"^[IWEF](\d{2})(\d{2}) (\d{2}:\d{2}:\d{2}\.\d{6}) +(\d+) [^\]\s]+\] "));
/// Plain, from 1.9 to 1.36 at least (`GenerateUnmountVolumeFunc` in pkg/volume/util/operationexecutor, and
/// `GenerateUnmapVolumeFunc` for raw block volumes), and at every level.
static TORN_DOWN: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r#"^Un(mountVolume\.TearDown|mapVolume) succeeded for volume "([^"\s]*)" "#,
        r#"(?:\(OuterVolumeSpecName: "[^"]*"\) )?pod "([0-9a-f-]+)" \(UID: "[0-9a-f-]+"\)\. "#
    ))
});
/// Structured lines write the pod first, and quote what others can choose.
static POD: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r#"^"[^"\\]*" (?:[a-zA-Z]+="[^"\\]*" )*?pod="([a-z0-9-]+)/([a-z0-9.-]+)" (?:podUID="?([0-9a-f-]+)|event=&?\{"?ID"?:"?([0-9a-f-]+))"#,
    )
});
/// Messages about a volume name the pod both in the text and as a field (`GenerateMsg` in
/// pkg/volume/util/operationexecutor).
static OF_VOLUME: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r#"^"(?:[^"\\\n]|\\.)*?\bpod \\"(?<name>[a-z0-9.-]+)\\" \(UID: \\"(?<uid>[0-9a-f-]+)\\"\) ?" "#,
        r#"pod="(?<namespace>[a-z0-9-]+)/(?<again>[a-z0-9.-]+)"$"#
    ))
});
/// Older kubelets write `NAME_NAMESPACE(UID)` (`format.Pod`).
static OLD_POD: LazyLock<Regex> = LazyLock::new(|| {
    fixed(r#"^SyncLoop \([A-Z ]+, "api"\): "([a-z0-9.-]+)_([a-z0-9-]+)\(([0-9a-f-]+)\)"$"#)
});
/// A container has ended. kubelet writes what follows the pod.
static DIED: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r#"^(?:"SyncLoop \(PLEG\): event for pod" pod="[^"\\]*" event=&?\{"?ID"?:"?[0-9a-f-]+"?[, ]|SyncLoop \(PLEG\): "[^"\\]*", event: &pleg\.PodLifecycleEvent\{ID:"[0-9a-f-]+", )"?Type"?:"?ContainerDied"?"#,
    )
});
/// kubelet has seen a container's end (pkg/kubelet/pleg/generic.go): the only entry about it where the API server no
/// longer has the pod, or a static pod's file is gone.
static FINISHED: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r#"^"Generic \(PLEG\): container finished" podID="([0-9a-f-]+)" containerID="[0-9a-f]{64}" exitCode=-?\d+$"#,
    )
});
static OLD_DIED: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r#"^SyncLoop \(PLEG\): "([a-z0-9.-]+)_([a-z0-9-]+)\(([0-9a-f-]+)\)", event: &pleg\.PodLifecycleEvent\{"#,
    )
});
static FAILED: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r#"(?s)^Operation for "\{volumeName:(\S*) podName:([0-9a-f-]*) nodeName:\}" failed\. "#,
        r"No retries permitted until (\S+ \S+ \S+) .*?\(durationBeforeRetry ([0-9a-z.]+)\)\. Error: (.*)$"
    ))
});
/// Up to 1.16: the volume and the pod, each in quotes (pkg/util/goroutinemap/exponentialbackoff).
static OLD_FAILED: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r#"(?s)^Operation for "\\"([^"\\\s]+)\\" \(\\"([0-9a-f-]+)\\"\)" failed\. "#,
        r"No retries permitted until (\S+ \S+ \S+) .*?\(durationBeforeRetry ([0-9a-z.]+)\)\. Error: (.*)$"
    ))
});
/// An operation was refused before it began (`unmountVolumes` in pkg/kubelet/volumemanager/reconciler), ten times a
/// second and without a back-off; newer kubelets quote it, and repeat the error after it.
static REFUSED: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r#"(?s)^"?operationExecutor\.UnmountVolume failed \(controllerAttachDetachEnabled \w+\) for volume "#,
        r#"\\?"[^"\\]*\\?" \(UniqueName: \\?"([^"\\\s]+)\\?"\) pod \\?"[0-9a-f-]+\\?" "#,
        r#"\(UID: \\?"([0-9a-f-]+)\\?"\) : (.*?)(?:" err=".*)?$"#
    ))
});
/// The prefix of an error that repeats the volume and the pod.
static PREFIX: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r#"(?s)^(?:Un(?:mount|map)\w+\.\w+ failed|error cleaning subPath mounts) .*?\(UID: \\?"[0-9a-f-]+\\?"\) : (.*)$"#,
    )
});
/// `doCleanSubPaths` in pkg/volume/util/subpath says before it what it was about to do.
static CALL: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"(?s)^(?:error (?:deleting|processing) /[^:\n]+: )?",
        r"(unlinkat|remove|umount:|.*\n *Output: umount:) (/.+): ([^:]+?)\.?\n*$"
    ))
});
/// rmdir(1) of a CSI driver, in its answer to kubelet (democratic-csi#344, which quotes it in JSON).
static RMDIR: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"(?s)^kubernetes\.io/csi: (?:Unm|m)ounter\.TearDownAt failed: rpc error: .*",
        r#"rmdir: (?:failed to remove )?['‘"]?(/[^'’"\n:]+/mount)['’"]?: Directory not empty"#
    ))
});
/// The prefix of an error about a call on a CSI volume's mount point: kubelet's own call after the driver's answer
/// (`removeMountDir` in pkg/volume/csi), or the driver's, whose error usually has Go's text.
static OF_CSI: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"(?s)^kubernetes\.io/csi: (?:Unm|m)ounter\.TearDownAt failed(?:",
        r" to clean mount dir \[[^\]]*\]: kubernetes\.io/csi: failed to (?:remove dir|delete volume data file|delete volume path) \[[^\]]*\]",
        r"|: rpc error: code = Internal desc =(?: [^/]*?:)??):? ((?:unlinkat|remove) /.*)$"
    ))
});

/// A JSON Web Token; the word after `Bearer`; the value of a field named password, secret or token.
static SECRET: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"(\b)eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)+|(\bBearer )[A-Za-z0-9._~+/=-]{8,}",
        r#"|((?i:password|passwd|secret|secret_?key|token)\\?"?[=:]\\?"?)[^\s",}\\]{8,}"#
    ))
});

/// An entry's message, without its header.
pub(super) fn message(text: &str) -> Option<&str> {
    text.get(HEADER.find(text)?.end()..)
}

/// Parses an entry; `None` for one that is not evaluated. `now` determines the year.
pub(super) fn parse(text: &str, now: Timestamp) -> Option<Entry> {
    let header = HEADER.captures(text)?;
    let message = text.get(header.get(0)?.end()..)?;
    let written = || time(&header[1], &header[2], &header[3], now);
    let named = |namespace: &str, name: &str, uid: &str| {
        let (namespace, name) = (namespace.into(), name.into());
        let ended = DIED.is_match(message).then(written).flatten();
        let named = Entry::Named { namespace, name, uid: uid.into(), ended };
        is_pod_uid(uid.as_bytes()).then_some(named)
    };
    if let Some(found) = POD.captures(message) {
        let uid = found.get(3).or_else(|| found.get(4))?;
        return named(&found[1], &found[2], uid.as_str());
    }
    if let Some(found) = OF_VOLUME.captures(message).filter(|it| it["name"] == it["again"]) {
        return named(&found["namespace"], &found["name"], &found["uid"]);
    }
    if let Some(found) = OLD_POD.captures(message) {
        return named(&found[2], &found[1], &found[3]);
    }
    if let Some(found) = OLD_DIED.captures(message) {
        return named(&found[2], &found[1], &found[3]);
    }
    if let Some(found) = TORN_DOWN.captures(message) {
        let (volume, uid) = (found[2].to_owned(), found[3].to_owned());
        let known = is_pod_uid(uid.as_bytes());
        let report = if &found[1] == "mapVolume" { Report::Unmapped } else { Report::TornDown };
        return Some(Entry::Done { uid, volume, at: written()?, report }).filter(|_| known);
    }
    if let Some(found) = FINISHED.captures(message) {
        let (uid, report) = (found[1].to_owned(), Report::ContainerEnded);
        let known = is_pod_uid(uid.as_bytes());
        let done = Entry::Done { uid, volume: String::new(), at: written()?, report };
        return Some(done).filter(|_| known);
    }
    if let Some(volume) = klog_device::released(message) {
        let (uid, report) = (String::new(), Report::DeviceReleased);
        return Some(Entry::Done { uid, volume, at: written()?, report });
    }
    if let Some(found) = REFUSED.captures(message) {
        let (volume, uid) = (found[1].to_owned(), found[2].to_owned());
        let error = proper(found[3].trim_end());
        let known = is_pod_uid(uid.as_bytes());
        let failed = Failed { uid, volume, at: written()?, retry: None, error };
        return known.then_some(Entry::Failed(failed));
    }
    let found = FAILED.captures(message).or_else(|| OLD_FAILED.captures(message))?;
    let (volume, uid) = (found[1].to_owned(), found[2].to_owned());
    let retry = go_time(&found[3]);
    let error = unquoted(found[5].trim_end());
    let mount = if uid.is_empty() { volume_steps::failed_mount(&error) } else { None };
    let (uid, volume) = mount.unwrap_or((uid, volume));
    let error = if uid.is_empty() { klog_device::error(&error)? } else { proper(&error) };
    // The header's time is in the node's zone, which need not be this process's.
    let before = found[4].parse::<SignedDuration>().ok();
    let by_retry = retry.zip(before).and_then(|(retry, before)| retry.checked_sub(before).ok());
    let at = by_retry.or_else(written)?;
    let known = uid.is_empty() || is_pod_uid(uid.as_bytes());
    known.then_some(Entry::Failed(Failed { uid, volume, at, retry, error }))
}

/// When a line that begins an entry was written.
pub(super) fn written(line: &str, now: Timestamp) -> Option<Timestamp> {
    let header = HEADER.captures(line)?;
    time(&header[1], &header[2], &header[3], now)
}

/// An error without the prefix that repeats the volume and the pod, cut to [`ERROR_MAX`].
fn proper(error: &str) -> String {
    let rest = PREFIX.captures(error).and_then(|found| found.get(1));
    cut(rest.map_or(error, |rest| rest.as_str())).to_owned()
}

/// Go's `time.Time.String`, up to the name of the zone.
fn go_time(text: &str) -> Option<Timestamp> {
    Timestamp::strptime("%Y-%m-%d %H:%M:%S%.f %z", text).ok()
}

/// A time in the writer's zone, at most a year before `now`. klog writes the local time, without a year.
fn time(month: &str, day: &str, clock: &str, now: Timestamp) -> Option<Timestamp> {
    let zone = zone();
    let year = now.to_zoned(zone.clone()).year();
    let in_year = |year: i16| {
        let text = format!("{year:04}-{month}-{day}T{clock}");
        let time: DateTime = text.parse().ok()?;
        Some(time.to_zoned(zone.clone()).ok()?.timestamp())
    };
    // A clock may have been set back a little; a date further ahead is last year's.
    let tomorrow = now.checked_add(24.hours()).ok()?;
    in_year(year).filter(|time| *time <= tomorrow).or_else(|| in_year(year - 1))
}

/// Older kubelets wrote the error as Go quotes a string.
fn unquoted(text: &str) -> String {
    quoted(text)
        .filter(|(_, rest)| rest.is_empty())
        .map_or_else(|| text.to_owned(), |found| found.0)
}

/// The call that an error names, as Go writes a `PathError` and umount(8) its complaint.
pub(super) fn named_call(error: &str) -> Option<NamedCall> {
    let error =
        OF_CSI.captures(error).map_or(error, |found| found.get(1).map_or("", |call| call.as_str()));
    if let Some(found) = RMDIR.captures(error) {
        let path = PathBuf::from(&found[1]);
        return Some(NamedCall { call: Call::UnlinkatDir, path, outcome: Errno::ENOTEMPTY.into() });
    }
    let found = CALL.captures(error)?;
    let path = PathBuf::from(&found[2]);
    let (call, outcome) = match (&found[1], &found[3]) {
        // Go returns the error of the second of its two attempts, unless that is ENOTDIR (os.Remove).
        ("unlinkat" | "remove", "directory not empty") => {
            (Call::UnlinkatDir, Errno::ENOTEMPTY.into())
        }
        ("unlinkat" | "remove", words) => (Call::Unlinkat, Outcome::of_words(words)?),
        (_, words) => (Call::Umount2, (words == "target is busy").then_some(Errno::EBUSY.into())?),
    };
    Some(NamedCall { call, path, outcome })
}

/// The removal that the kernel refuses a runtime, by the end of the runtime's own error (Go's `PathError`): Docker's
/// removal of a layer (`os.RemoveAll` in daemon/graphdriver, and before Go 1.12 in its words).
static REFUSED_REMOVAL: LazyLock<Regex> = LazyLock::new(|| {
    fixed(r"(?s)(?:^|[ :])(?:unlinkat|remove) (/.+): operation not permitted\n*$")
});

/// The refused removal that a runtime's error ends with.
pub(super) fn refused_removal(error: &str) -> Option<NamedCall> {
    let path = REFUSED_REMOVAL.captures(error)?[1].into();
    Some(NamedCall { call: Call::Unlinkat, path, outcome: Errno::EPERM.into() })
}

/// A failed `stat` of kubelet's or a driver's, as Go writes a `PathError`: kubelet before 1.22 and many drivers call
/// it before they unmount, and stop there. `openfdat` is what Go's RemoveAll calls opening a directory to empty it
/// (os/removeall_at.go).
static LOOK: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"(?s)(?:^|[ :])(?:l?stat|openfdat) (/[^:\n]+): ([a-zA-Z /]+)\.?\n*$"));

/// What follows the error in kubelet's messages about a pod's directory before 1.23 or so (`cleanupOrphanedPodDirs`,
/// `podVolumesExist`).
const WHILE: &str = " occurred during ";

/// The failed `stat` that an error names, if it ends with one.
pub(super) fn named_look(error: &str) -> Option<NamedLook> {
    let error = error.split_once(WHILE).map_or(error, |(error, _)| error);
    let found = LOOK.captures(error)?;
    // What does not exist is not mounted either, so that kubelet goes on.
    let outcome = Outcome::of_words(&found[2]).filter(|outcome| !outcome.is(Errno::ENOENT))?;
    Some(NamedLook { path: found[1].into(), outcome })
}

/// Whether a path is a driver's map of a raw block volume for a pod (`getPublishPath` in pkg/volume/csi).
fn is_published(path: &Path) -> bool {
    path.ancestors().nth(2).is_some_and(|all| all.ends_with("csi/volumeDevices/publish"))
}

/// By kubelet's text (pkg/volume/csi: `newCsiDriverClient`, `loadVolumeData`) and gRPC's codes: the client returns
/// Unavailable when it cannot connect or gets no answer, DeadlineExceeded after two minutes (`csiTimeout`), and the
/// CSI specification prescribes Aborted while a call on the volume is pending.
pub(super) fn complaint(error: &str) -> Option<Complaint> {
    let has = |words: &[&str]| words.iter().any(|words| error.contains(words));
    // Whatever the reason.
    if error.starts_with("MountVolume.") {
        return Some(Complaint::MountFails);
    }
    if let Some(complaint) = klog_device::complaint(error) {
        return Some(complaint);
    }
    // `UnmapBlockVolume` in pkg/volume/util.
    if error.starts_with("blkUtil.") && has(&["target is busy", "device or resource busy"]) {
        return Some(Complaint::MapBusy);
    }
    // After that, `UnmapPodDevice` in pkg/volume/csi: the driver unmounts its own map.
    if error.starts_with("kubernetes.io/csi: blockMapper.unpublishVolumeForBlock failed")
        && named_call(error).is_some_and(|it| it.call == Call::Umount2 && is_published(&it.path))
    {
        return Some(Complaint::MapBusy);
    }
    if has(&["not found in the list of registered CSI drivers"]) {
        return Some(Complaint::NoDriver);
    }
    if let Some((_, desc)) = error.split_once("rpc error: code = Unavailable desc = ") {
        return Some(unavailable(desc));
    }
    if has(&["rpc error: code = DeadlineExceeded"]) {
        return Some(Complaint::DriverTimesOut);
    }
    if has(&["rpc error: code = Aborted"]) {
        return Some(Complaint::DriverHangs);
    }
    // After the driver's success, kubelet looks at the directory and removes it, with its own file about the volume
    // (`removeMountDir`): a mount that cannot be looked at is still one.
    if has(&["TearDownAt failed to clean mount dir"]) {
        let is_mount = has(&["device or resource busy", "]: lstat /", "]: stat /"]);
        return is_mount.then_some(Complaint::StillMounted);
    }
    if has(&["rpc error: code = "]) {
        return Some(Complaint::DriverError);
    }
    has(&["volume data file", "vol_data.json"]).then_some(Complaint::NoData)
}

/// What Unavailable means from kubelet's gRPC client (internal/transport/http2_client.go and clientconn.go): no process
/// accepts the connection, or one lets it wait for the 20 s that gRPC allows. Any other text is the driver's own answer,
/// also one about a network connection, since kubelet calls a driver over a Unix socket.
fn unavailable(desc: &str) -> Complaint {
    let has = |words: &[&str]| words.iter().any(|words| desc.contains(words));
    let of_client =
        ["connection error", "dial unix", "transport", "error reading from server", "SubConn"];
    if !has(&of_client) || has(&["dial tcp", "read tcp", "write tcp"]) {
        return Complaint::DriverError;
    }
    let waits = ["error reading server preface", "waiting for server handshake"];
    // A driver that ends meanwhile closes the connection.
    let ends = ["EOF", "connection reset", "broken pipe"];
    if has(&waits) && !has(&ends) { Complaint::DriverHangs } else { Complaint::DriverDown }
}

/// A report as podstuck shows it.
pub(super) fn words(report: Report) -> &'static str {
    match report {
        Report::TornDown => "UnmountVolume.TearDown succeeded",
        Report::Unmapped => "UnmapVolume succeeded",
        Report::DeviceReleased => "UnmountDevice succeeded",
        Report::Attached => "Controller attach succeeded",
        Report::SetUp => "MountVolume.SetUp succeeded",
        Report::VolumeStep => "a step with the volume",
        Report::ContainerEnded => "ContainerDied",
        Report::ToGo => "SyncLoop DELETE",
        Report::Added => "SyncLoop ADD",
        Report::Killing => "Killing container",
        Report::Killed => "Kill container",
        Report::SandboxStops => "StopPodSandbox",
        Report::SandboxStopped => "StopPodSandbox returns successfully",
        Report::TaskDeleted => "TaskDelete",
        Report::StartedAgain => "Scheduled restart job",
    }
}

/// An error, cut to [`ERROR_MAX`].
pub(super) fn cut(error: &str) -> &str {
    error.get(..error.floor_char_boundary(ERROR_MAX)).unwrap_or_default()
}

/// An error as it may be shown: on one line, and without tokens and passwords that a program wrote into its log.
pub(super) fn shown(error: &str) -> String {
    let text = error.trim_end().replace('\n', " ");
    let text = SECRET.replace_all(&text, "$1$2$3(not shown)");
    safe(text.as_bytes()).into_owned()
}

#[cfg(test)]
#[path = "klog_tests.rs"]
mod tests;
