//! kubelet's log: its own words about attempts of the last ten minutes.

use std::{
    io::{Write, stderr},
    process,
    time::Duration,
};

use anyhow::Result;
use jiff::{Timestamp, tz::TimeZone};

use crate::Pod;

const BEFORE: Duration = Duration::from_secs(600);

/// `lines` errors, of all pods in turn, each about a file that nothing else names (`nestedpendingoperations`).
pub(crate) fn write(pods: &[Pod], lines: usize) -> Result<()> {
    let (pid, begun) = (process::id(), Timestamp::now() - BEFORE);
    let mut log = stderr().lock();
    for (number, pod) in (0..lines).zip(pods.iter().cycle()) {
        let at = begun + BEFORE.mul_f64(number as f64 / lines as f64);
        let time = at.to_zoned(TimeZone::system()).strftime("%m%d %H:%M:%S.%6f");
        let retry = at.strftime("%F %T.%9f +0000 UTC");
        let (uid, volume) = (&pod.uid, pod.volume.display());
        let unique = format!("kubernetes.io/empty-dir/{uid}-data");
        writeln!(
            log,
            "E{time} {pid:>7} nestedpendingoperations.go:348] Operation for \"{{volumeName:{unique} \
             podName:{uid} nodeName:}}\" failed. No retries permitted until {retry} m=+3600.1 \
             (durationBeforeRetry 500ms). Error: UnmountVolume.TearDown failed for volume \"data\" \
             (UniqueName: \"{unique}\") pod \"{uid}\" (UID: \"{uid}\") : unlinkat {volume}/{number}: operation \
             not permitted"
        )?;
    }
    Ok(())
}
