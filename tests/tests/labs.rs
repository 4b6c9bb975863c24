//! Every lab beside a watch: its own finding and nothing else, with the right pod, path, errno and
//! actor, and the removal's own count equal to the probes'.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use podstuck_tests::{
    add_up, can_swap, has_loop_devices, lab, of_type, root_and_btf, settle, slowdown, summary,
    watch,
};
use serde_json::Value;

struct Expected {
    case: &'static str,
    syscall: &'static str,
    errno: &'static str,
    /// End of the object's path, below the volume's directory that the lab names.
    object: &'static str,
    severity: &'static str,
    blocks: bool,
    args: &'static [&'static str],
}

/// Runs a case; the findings of a watch on the whole node, and what a watch on the pod counted.
fn play(case: &str, args: &[&str]) -> (Value, Vec<Value>, Value, Option<i32>) {
    let args: Vec<String> = args.iter().map(|arg| lasting(arg)).collect();
    let (mut running, ready) = lab(case, &args.iter().map(String::as_str).collect::<Vec<_>>());
    let (uid, root) = (ready["pod_uid"].as_str().unwrap(), ready["kubelet_root"].as_str().unwrap());
    // Starting a watch is what takes longest on an emulated machine; there, one does for both.
    let node = (slowdown() == 1).then(|| watch(&[]));
    let pod = watch(&["--pod-uid", uid, "--kubelet-root", root]);
    running.resume();
    let tally = running.wait_for("tally", |line| line["calls"].is_object());
    running.finish();
    settle();
    let (of_pod, status_of_pod) = pod.stop();
    let (of_node, status) = match node {
        Some(node) => node.stop(),
        None => (of_pod.clone(), status_of_pod),
    };
    let counted = summary(&of_pod);
    assert_eq!(add_up(&[&counted["by_outcome"]]), add_up(&[&tally["calls"]]), "{case}: counts");
    assert_lossless(counted);
    assert_lossless(summary(&of_node));
    let findings = of_type(&of_node, "finding").into_iter().cloned().collect();
    (ready, findings, tally, status.code())
}

/// A duration, where the machine is emulated twice as long: its looks at objects take so long that the
/// case would be over before.
fn lasting(arg: &str) -> String {
    let seconds = arg.strip_suffix('s').and_then(|number| number.parse::<u32>().ok());
    seconds.map_or_else(|| arg.to_owned(), |seconds| format!("{}s", seconds * slowdown().min(2)))
}

fn assert_lossless(summary: &Value) {
    let c = &summary["completeness"];
    for loss in ["events_lost", "unmatched_exits", "map_full", "probes_skipped", "unresolved"] {
        assert_eq!(c[loss], 0, "{summary:#}");
    }
}

fn expect(expected: &Expected) {
    if !root_and_btf() {
        return;
    }
    let (ready, findings, tally, status) = play(expected.case, expected.args);
    assert_eq!(status, Some(1), "exit status with a finding");
    assert!(!findings.is_empty(), "{}: no finding", expected.case);
    for finding in &findings {
        assert_eq!(finding["id"], expected.case, "{finding:#}");
        assert_eq!(finding["pod"]["uid"], ready["pod_uid"], "{finding:#}");
        assert_eq!(finding["pod"]["name"], expected.case, "{finding:#}");
        assert_eq!(finding["call"]["syscall"], expected.syscall, "{finding:#}");
        assert_eq!(finding["call"]["errno_name"], expected.errno, "{finding:#}");
        let path = finding["call"]["path"].as_str().unwrap();
        let subject = ready["path"].as_str().unwrap();
        assert!(path.starts_with(subject) && path.ends_with(expected.object), "{path}");
        assert_eq!(finding["actor"]["comm"], "kubelet", "{finding:#}");
        assert_eq!(finding["actor"]["component"], "kubelet", "{finding:#}");
        assert_eq!(finding["actor"]["pid"], ready["pid"], "{finding:#}");
        assert_eq!(finding["severity"], expected.severity, "{finding:#}");
        assert_eq!(finding["blocks_deletion"], expected.blocks, "{finding:#}");
        for list in ["evidence", "likely_causes_ruled_out"] {
            assert!(finding[list].is_array(), "{finding:#}");
        }
        assert!(!finding["evidence"].as_array().unwrap().is_empty(), "{finding:#}");
    }
    let new: Vec<&Value> = findings.iter().filter(|f| f["state"] == "new").collect();
    assert_eq!(new.len(), 1, "one finding, told as new once: {findings:#?}");
    assert!(tally["attempts"].as_u64().unwrap() >= 1);
}

#[test]
fn csi_driver_lost_publish_state() {
    expect(&Expected {
        case: "csi-driver-lost-publish-state",
        syscall: "unlinkat+AT_REMOVEDIR",
        errno: "EBUSY",
        object: "/mount",
        severity: "warning",
        blocks: true,
        args: &["--duration", "4s"],
    });
}

#[test]
fn stacked_mounts() {
    expect(&Expected {
        case: "stacked-mounts",
        syscall: "unlinkat+AT_REMOVEDIR",
        errno: "EBUSY",
        object: "/mount",
        severity: "warning",
        blocks: true,
        args: &["--duration", "3s"],
    });
}

#[test]
fn nested_mount_under_volume() {
    expect(&Expected {
        case: "nested-mount-under-volume",
        syscall: "umount2",
        errno: "EBUSY",
        object: "",
        severity: "warning",
        blocks: true,
        args: &["--duration", "3s"],
    });
}

#[test]
fn volume_held_by_host_process() {
    expect(&Expected {
        case: "volume-held-by-host-process",
        syscall: "umount2",
        errno: "EBUSY",
        object: "",
        severity: "warning",
        blocks: true,
        args: &["--duration", "3s"],
    });
}

#[test]
fn volume_held_by_hosttocontainer_agent() {
    expect(&Expected {
        case: "volume-held-by-hosttocontainer-agent",
        syscall: "umount2",
        errno: "EBUSY",
        object: "",
        severity: "warning",
        blocks: true,
        args: &["--duration", "3s"],
    });
}

#[test]
fn swapfile_active() {
    if !can_swap() {
        return;
    }
    expect(&Expected {
        case: "swapfile-active",
        syscall: "umount2",
        errno: "EBUSY",
        object: "",
        severity: "warning",
        blocks: true,
        args: &["--duration", "3s"],
    });
}

#[test]
fn leaked_superblock_blocks_device() {
    if !has_loop_devices() {
        return;
    }
    expect(&Expected {
        case: "leaked-superblock-blocks-device",
        syscall: "umount2",
        errno: "ok",
        object: "",
        severity: "warning",
        blocks: false,
        args: &["--duration", "12s"],
    });
}

#[test]
fn immutable_attribute() {
    expect(&Expected {
        case: "immutable-attribute",
        syscall: "unlinkat",
        errno: "EPERM",
        object: "/journal.db",
        severity: "warning",
        blocks: true,
        args: &["--duration", "3s"],
    });
}

#[test]
fn append_only_attribute() {
    expect(&Expected {
        case: "append-only-attribute",
        syscall: "unlinkat",
        errno: "EPERM",
        object: "/journal.db",
        severity: "warning",
        blocks: true,
        args: &["--duration", "3s"],
    });
}

#[test]
fn removal_crosses_mount() {
    expect(&Expected {
        case: "removal-crosses-mount",
        syscall: "unlinkat",
        errno: "ok",
        object: "",
        severity: "critical",
        blocks: true,
        args: &["--duration", "3s"],
    });
}

#[test]
fn emptydir_mass_files() {
    expect(&Expected {
        case: "emptydir-mass-files",
        syscall: "unlinkat",
        errno: "ok",
        object: "",
        severity: "info",
        blocks: false,
        args: &["--entries", "60000", "--rate", "8000", "--duration", "20s"],
    });
}

#[test]
fn healthy() {
    if !root_and_btf() {
        return;
    }
    let (_, findings, tally, status) = play("healthy", &["--duration", "5s"]);
    assert!(findings.is_empty(), "{findings:#?}");
    assert_eq!(status, Some(0));
    assert!(tally["pods_removed"].as_u64().unwrap() > 2, "{tally:#}");
}

#[test]
fn a_finding_is_cleared_when_the_call_succeeds() {
    if !root_and_btf() {
        return;
    }
    let (mut running, ready) = lab("immutable-attribute", &["--duration", "30s"]);
    let mut node = watch(&[]);
    running.resume();
    let found = node.wait_for("finding", |line| line["type"] == "finding");
    let remedy = found["remedies"][0]["command"].as_str().unwrap();
    let cured = std::process::Command::new("sh").args(["-c", remedy]).status().unwrap();
    assert!(cured.success(), "the remedy itself: {remedy}");
    let cleared = node.wait_for("cleared", |line| line["state"] == "cleared");
    assert_eq!(cleared["id"], "immutable-attribute");
    assert_eq!(cleared["pod"]["uid"], ready["pod_uid"]);
    let tally = running.wait_for("tally", |line| line["calls"].is_object());
    assert_eq!(tally["pods_removed"], 1, "{tally:#}");
}
