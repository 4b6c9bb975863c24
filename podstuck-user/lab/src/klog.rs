//! kubelet's log messages about failed attempts, in its own words, with times of the last ten minutes.

use std::{
    io::{self, Write},
    time::Duration,
};

use jiff::{Timestamp, tz::TimeZone};
use rustix::{io::Errno, process::getpid};

use super::{
    backoff::Backoff,
    case::{Kind, Volume},
    go_remove::Failure,
    layout::{DRIVER, Pod},
};

/// Logs a failed attempt to tear a volume down that is `ago` old (`GenerateUnmountVolumeFunc` and
/// `nestedpendingoperations`). A mere wait is not logged.
pub(super) fn failed(pod: &Pod, volume: &Volume, failure: &Failure, ago: Duration) {
    let (uid, unique) = (&pod.uid, unique_name(pod, volume));
    let about = format!(
        "volume \"{}\" (UniqueName: \"{unique}\") pod \"{uid}\" (UID: \"{uid}\")",
        volume.name
    );
    if let Failure::NotBegun(error) = failure {
        // `unmountVolumes` in pkg/kubelet/volumemanager/reconciler.
        let text = format!(
            "operationExecutor.UnmountVolume failed (controllerAttachDetachEnabled true) for {about} : \
             UnmountVolume.NewUnmounter failed for {about} : {error}"
        );
        return write(ago, "reconciler.go:193", &text);
    }
    let Some(error) = error(pod, volume, failure) else { return };
    let retry = (before(ago) + Backoff::LONGEST).strftime("%F %T.%9f +0000 UTC");
    let text = format!(
        "Operation for \"{{volumeName:{unique} podName:{uid} nodeName:}}\" failed. No retries permitted \
         until {retry} m=+3600.1 (durationBeforeRetry 2m2s). Error: UnmountVolume.TearDown failed for \
         {about} : {error}"
    );
    write(ago, "nestedpendingoperations.go:348", &text);
}

fn unique_name(pod: &Pod, volume: &Volume) -> String {
    match volume.kind {
        Kind::Csi(_) => format!("kubernetes.io/csi/{DRIVER}^{}", volume.name),
        _ => format!("{}/{}-{}", volume.plugin.replace('~', "/"), pod.uid, volume.name),
    }
}

fn error(pod: &Pod, volume: &Volume, failure: &Failure) -> Option<String> {
    let is_csi = matches!(volume.kind, Kind::Csi(_));
    match failure {
        Failure::Call { call: "umount", path, errno } => {
            let path = path.display();
            // As umount(8) prints EBUSY, the only error that a case has here.
            let why = if *errno == Errno::BUSY { "target is busy".into() } else { words(*errno) };
            Some(format!(
                "unmount failed: exit status 32\nUnmounting arguments: {path}\nOutput: umount: {path}: {why}."
            ))
        }
        Failure::Call { call, path, errno } => {
            let failed = format!("{call} {}: {}", path.display(), words(*errno));
            let point = pod.content(volume);
            let point = point.display();
            Some(match is_csi {
                true => format!(
                    "kubernetes.io/csi: Unmounter.TearDownAt failed to clean mount dir [{point}]: \
                     kubernetes.io/csi: failed to remove dir [{point}]: {failed}"
                ),
                false => failed,
            })
        }
        Failure::Refused(error) => Some(error.to_string()),
        Failure::NotBegun(_) | Failure::Alive | Failure::Waiting | Failure::Stopped => None,
    }
}

/// An error in Go's words.
pub(super) fn words(errno: Errno) -> String {
    nix::errno::Errno::from_raw(errno.raw_os_error()).desc().to_lowercase()
}

fn before(ago: Duration) -> Timestamp {
    Timestamp::now() - ago
}

fn write(ago: Duration, source: &str, text: &str) {
    let time = before(ago).to_zoned(TimeZone::system()).strftime("%m%d %H:%M:%S.%6f");
    let pid = getpid().as_raw_nonzero();
    // A failed write to the log does not stop the case.
    let _ = writeln!(io::stderr().lock(), "E{time} {pid:>7} {source}] {text}");
}
