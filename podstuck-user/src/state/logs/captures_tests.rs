//! What the log of a kubelet 1.36 says of a stuck pod, 40 to 75 s after its deletion, in 14 cases as they were
//! captured on a node: lines with the pod's UID or name, at `--v=2`.

use std::{collections::BTreeSet, fmt::Write, path::Path};

use super::read::told_of;

const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/state/logs/kubelet-1.36");

/// What holds a pod in the runtime, a frozen group and a hung server leave nothing in this log but the
/// container's end, if that.
const TOLD: &str = "\
busy: ContainerEnded, unlinkat EBUSY
csidead-gone: ContainerEnded, DriverDown
csidead-stale: ContainerEnded, DriverDown
csidead-unreg: ContainerEnded, DriverDown, NoDriver
csigone: ContainerEnded, DriverError
csilost: ContainerEnded, TornDown
frozen: -
fz: ContainerEnded, TornDown
hung: ContainerEnded
imm: ContainerEnded, unlinkat EPERM
mem: ContainerEnded, umount2 EBUSY
rb1: -
rb2: -
ro: ContainerEnded, unlinkat EROFS
";

#[test]
fn a_pod_is_named_and_its_fault_told_as_far_as_kubelet_says_it() {
    let Ok(entries) = std::fs::read_dir(CAPTURES) else {
        podstuck_testing::skip(format!("there is no {CAPTURES} here"));
        return;
    };
    let files: BTreeSet<_> = entries.map(|entry| entry.unwrap().path()).collect();
    let mut all = String::new();
    for file in &files {
        writeln!(all, "{}: {}", file.file_stem().unwrap().display(), summary(file)).unwrap();
    }
    assert_eq!(all, TOLD);
}

/// The one pod's name, and what is told of it, once each.
fn summary(file: &Path) -> String {
    let text = std::fs::read(file).unwrap();
    // The day that all were made on.
    let (pods, told) = told_of(&text[..], "2026-11-23T00:00:00Z".parse().unwrap());
    assert_eq!(pods.len(), 1, "{pods:?}");
    let pod = pods.first().unwrap();
    assert_eq!(pod.namespace, "default");
    let mut words = BTreeSet::new();
    for (said, call) in told.iter().filter(|(said, _)| said.uid == pod.uid) {
        words.extend(said.complaint.map(|it| format!("{it:?}")));
        words.extend(said.report.map(|it| format!("{it:?}")));
        words.extend(call.as_ref().map(|it| format!("{} {}", it.call.name(), it.outcome.name())));
    }
    if words.is_empty() { "-".into() } else { words.into_iter().collect::<Vec<_>>().join(", ") }
}

#[test]
fn fuzz_klog() {
    let now = "2026-11-23T00:00:00Z".parse().unwrap();
    crate::fuzz::fuzz("klog", |input| drop(told_of(input, now)));
}
