//! What the logs of a node say of a stuck pod, 40 to 75 s after its deletion, in 14 cases as they were captured:
//! kubelet's (1.36, lines with the pod's UID or name, at `--v=2`), containerd's (1.6, repetitions left out, what
//! it says of other pods left in) and the driver's (CSI hostpath, calls on volumes).

use std::{collections::BTreeSet, fmt::Write, fs, path::PathBuf};

use podstuck_common::record::Caller;

use super::{
    Attempt, NamedPod, VolumeNames,
    read::{Captured, captured},
    read_driver::complaints_in,
    read_runtime::said_in,
};
use crate::model::said::Said;

/// What holds a pod in the runtime, a frozen group and a hung server leave nothing in this log but the
/// deletion and the container's end, if that.
const KUBELET: &str = "\
busy: ContainerEnded, ToGo, unlinkat EBUSY
csidead-gone: ContainerEnded, DriverDown, ToGo
csidead-stale: ContainerEnded, DriverDown, ToGo
csidead-unreg: ContainerEnded, DriverDown, NoDriver, ToGo
csigone: ContainerEnded, DriverError, ToGo
csilost: ContainerEnded, ToGo, TornDown
frozen: ToGo
fz: ContainerEnded, ToGo, TornDown
hung: ContainerEnded, ToGo
imm: ContainerEnded, ToGo, unlinkat EPERM
mem: ContainerEnded, ToGo, umount2 EBUSY
rb1: ToGo
rb2: ToGo
ro: ContainerEnded, ToGo, unlinkat EROFS
";

/// containerd complains of the two root file systems that it cannot unmount, and each is in nearly every log.
const CONTAINERD: &str = "\
busy: -
csidead-gone: -
csidead-stale: -
csidead-unreg: -
csigone: -
csilost: -
frozen: -
fz: -
hung: -
imm: -
mem: -
rb1: RootfsBusy
rb2: RootfsBusy
ro: -
";

/// A driver that is gone has said nothing before, and one that forgot the volume says that all is well.
const DRIVER: &str = "\
csidead-gone: -
csidead-stale: -
csidead-unreg: -
csigone: DriverError
csilost: -
";

#[test]
fn a_pod_is_named_and_its_fault_told_as_far_as_kubelet_says_it() {
    check("kubelet-1.36", of_kubelet, KUBELET);
}

#[test]
fn containerd_complains_of_the_pod_whose_container_it_names_and_of_no_other() {
    let said = |case: &str| {
        let (pod, kubelet) = of_kubelets_log(case);
        let all = said_in(&text("containerd-1.6", case), kubelet.ids);
        assert!(all.iter().all(|said| said.text.contains("failed to unmount target")), "{all:?}");
        words(all.iter().filter(|said| said.uid == pod.uid))
    };
    check("containerd-1.6", said, CONTAINERD);
}

/// What else its calls are about, and what it could not run, is no complaint of the volume.
#[test]
fn a_driver_complains_of_the_volume_that_it_names() {
    check("csi-hostpath", |case| words(of_driver(case).iter()), DRIVER);
}

fn of_driver(case: &str) -> Vec<Said> {
    let (pod, kubelet) = of_kubelets_log(case);
    let volume = kubelet.told.iter().find_map(|(said, _)| said.volume.split_once('^'));
    let name = format!("pv-{}", pod.name);
    let names = VolumeNames {
        directory: format!("/var/lib/kubelet/pods/{}/volumes/kubernetes.io~csi/{name}", pod.uid),
        handle: volume.unwrap().1.into(),
        name,
    };
    let text = text("csi-hostpath", case);
    assert!(String::from_utf8_lossy(&text).contains(&names.handle), "{names:?}");
    complaints_in(&text, names)
}

/// All that the logs of a case say, as they are read on a node: kubelet's, containerd's and the driver's.
pub(crate) fn all_said(case: &str) -> Vec<Attempt> {
    let (_, kubelet) = of_kubelets_log(case);
    let attempt = |(said, call)| Attempt { pid: 0, caller: Caller::default(), said, call };
    let mut all: Vec<Attempt> = kubelet.told.into_iter().map(attempt).collect();
    let mut others = said_in(&text("containerd-1.6", case), kubelet.ids);
    if folder("csi-hostpath").join(format!("{case}.log")).exists() {
        others.extend(of_driver(case));
    }
    all.extend(others.into_iter().map(|said| attempt((said, None))));
    all
}

/// Compares what is said in each of the cases that there is a log of.
fn check(logs: &str, said: impl Fn(&str) -> String, expected: &str) {
    let Ok(entries) = fs::read_dir(folder(logs)) else {
        podstuck_testing::skip(format!("there is no {} here", folder(logs).display()));
        return;
    };
    let files: BTreeSet<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    let mut all = String::new();
    for file in files {
        let case = file.file_stem().unwrap().to_str().unwrap();
        writeln!(all, "{case}: {}", said(case)).unwrap();
    }
    assert_eq!(all, expected);
}

fn folder(logs: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src/state/logs")).join(logs)
}

fn text(logs: &str, case: &str) -> Vec<u8> {
    fs::read(folder(logs).join(format!("{case}.log"))).unwrap()
}

/// The one pod, and all that is in its log.
fn of_kubelets_log(case: &str) -> (NamedPod, Captured) {
    // The day that all were made on.
    let log = captured(&text("kubelet-1.36", case), "2026-11-23T00:00:00Z".parse().unwrap());
    assert_eq!(log.pods.len(), 1, "{:?}", log.pods);
    assert_eq!(log.pods[0].namespace, "default");
    (log.pods[0].clone(), log)
}

/// What is told of the pod, once each.
fn of_kubelet(case: &str) -> String {
    let (pod, log) = of_kubelets_log(case);
    let of_pod = || log.told.iter().filter(|(said, _)| said.uid == pod.uid);
    let calls = of_pod().filter_map(|(_, call)| call.as_ref());
    let calls = calls.map(|call| format!("{} {}", call.call.name(), call.outcome.name()));
    let said = words(of_pod().map(|(said, _)| said));
    let words: BTreeSet<String> = said.split(", ").map(str::to_owned).chain(calls).collect();
    words.into_iter().collect::<Vec<_>>().join(", ")
}

fn words<'a>(said: impl Iterator<Item = &'a Said>) -> String {
    let mut words = BTreeSet::new();
    for said in said {
        words.extend(said.complaint.map(|it| format!("{it:?}")));
        words.extend(said.report.map(|it| format!("{it:?}")));
    }
    if words.is_empty() { "-".into() } else { words.into_iter().collect::<Vec<_>>().join(", ") }
}

#[test]
fn fuzz_klog() {
    let now = "2026-11-23T00:00:00Z".parse().unwrap();
    crate::fuzz::fuzz("klog", |input| drop(captured(input, now)));
}
