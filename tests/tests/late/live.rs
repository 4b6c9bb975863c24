//! A watch that was there before the first line of a log.

use std::{
    fs::{self, File},
    io::Write,
};

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use podstuck_tests::{Recorded, of_type, requires, root_and_btf, watch};
use serde_json::Value;

use super::driver::{Logging, SILENT};

/// One of kubelet's attempts, at this moment: after the start of the driver, which else may answer otherwise now.
fn failed(uid: &str, volume: &str) -> String {
    let time = Timestamp::now();
    let local = time.to_zoned(TimeZone::system()).strftime("%m%d %H:%M:%S.%6f");
    let retry = time.checked_add(SignedDuration::from_millis(500)).unwrap();
    let retry = retry.strftime("%F %T.%f +0000 UTC");
    format!(
        "E{local}   77 nestedpendingoperations.go:348] Operation for \"{{volumeName:{volume} podName:{uid} \
         nodeName:}}\" failed. No retries permitted until {retry} m=+9.5 (durationBeforeRetry 500ms). Error: \
         UnmountVolume.TearDown failed for volume \"{volume}\" (UniqueName: \"{volume}\") pod \"{uid}\" (UID: \
         \"{uid}\") : kubernetes.io/csi: Unmounter.TearDownAt failed: rpc error: code = NotFound desc = volume x \
         does not exist in the volumes list\n"
    )
}

/// kubelet's log is empty when the watch begins, and is renamed between two of its lines.
#[test]
fn a_watch_hears_what_kubelet_says_meanwhile() {
    requires!(root_and_btf());
    let lab = Logging::start(SILENT);
    let (uid, volume) = (lab.of("pod_uid"), lab.volume.clone());
    let recorded = Recorded::new();
    let options = recorded.options();
    let mut asked = vec!["--kubelet-root", lab.of("kubelet_root")];
    asked.extend(options.iter().map(String::as_str));
    let mut watched = watch(&asked);
    lab.write(&failed(uid, &volume));
    let old = lab.log.path().with_extension("1");
    fs::rename(lab.log.path(), &old).unwrap();
    let mut moved = File::options().append(true).open(&old).unwrap();
    moved.write_all(failed(uid, &volume).as_bytes()).unwrap();
    let is_of_pod = |line: &Value| line["type"] == "finding" && line["pod"]["uid"] == uid;
    let found = watched.wait_for("a finding", is_of_pod);
    fs::rename(&old, lab.log.path()).unwrap();
    assert_eq!(
        (&found["id"], &found["certainty"]),
        (&"csi-driver-error".into(), &"firm".into()),
        "{found:#}"
    );
    assert!(found["evidence"].to_string().contains("kubelet says"), "{found:#}");
    let (lines, status) = watched.stop();
    let of_pod = of_type(&lines, "finding").into_iter().filter(|line| line["pod"]["uid"] == uid);
    assert!(of_pod.clone().all(|line| line["id"] == "csi-driver-error"), "{lines:#?}");
    recorded.assert_replayed(&lines, status.code());
}
