//! What the logs of a node say of a stuck pod, 40 to 75 s after its deletion, in 14 cases as they were captured:
//! kubelet's (1.36, lines with the pod's UID or name, at `--v=2`), containerd's (1.6, repetitions left out, what
//! it says of other pods left in) and the driver's (CSI hostpath, calls on volumes).

use std::{collections::BTreeSet, fmt::Write, fs, path::PathBuf};

use jiff::Timestamp;
use podstuck_common::record::Caller;

use super::{
    Attempt, NamedPod, VolumeNames,
    container_log::Line,
    driver,
    read::{Captured, Open, captured, captured_next},
    read_driver::complaints_in,
    read_runtime::{said_in, said_next},
};
use crate::model::said::{NamedCall, Report, Said};

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
    let (names, text) = (volume_names(case), text("csi-hostpath", case));
    assert!(String::from_utf8_lossy(&text).contains(&names.handle), "{names:?}");
    complaints_in(&text, names)
}

fn volume_names(case: &str) -> VolumeNames {
    let (pod, kubelet) = of_kubelets_log(case);
    let volume = kubelet.told.iter().find_map(|(said, _)| said.volume.split_once('^'));
    let name = format!("pv-{}", pod.name);
    VolumeNames {
        directory: format!("/var/lib/kubelet/pods/{}/volumes/kubernetes.io~csi/{name}", pod.uid),
        handle: volume.unwrap().1.into(),
        name,
    }
}

fn attempt((said, call): (Said, Option<NamedCall>)) -> Attempt {
    Attempt { pid: 0, caller: Caller::default(), said, call }
}

/// All that the logs of a case say, as they are read on a node: kubelet's, containerd's and the driver's.
pub(crate) fn all_said(case: &str) -> Vec<Attempt> {
    let (_, kubelet) = of_kubelets_log(case);
    let mut all: Vec<Attempt> = kubelet.told.into_iter().map(attempt).collect();
    let mut others = said_in(&text("containerd-1.6", case), kubelet.ids);
    if folder("csi-hostpath").join(format!("{case}.log")).exists() {
        others.extend(of_driver(case));
    }
    all.extend(others.into_iter().map(|said| attempt((said, None))));
    all
}

/// The logs of a case as they grow, and as they are read meanwhile.
pub(crate) struct Growing {
    case: String,
    /// Lines by when they were written, the last one first.
    kubelet: Vec<(Timestamp, String)>,
    containerd: Vec<(Timestamp, String)>,
    driver: Vec<(Timestamp, String)>,
    open: Open,
    ids: Vec<(String, String)>,
}

impl Growing {
    pub(crate) fn new(case: &str) -> Self {
        let of = |log: &str| {
            lines(&fs::read(folder(log).join(format!("{case}.log"))).unwrap_or_default())
        };
        Self {
            case: case.into(),
            kubelet: of("kubelet-1.36"),
            containerd: of("containerd-1.6"),
            driver: of("csi-hostpath"),
            open: Open::default(),
            ids: Vec::new(),
        }
    }

    /// What is read at that time.
    pub(crate) fn read(&mut self, now: Timestamp) -> Vec<Attempt> {
        let text = until(&mut self.kubelet, now);
        let (found, open) = captured_next(&text, std::mem::take(&mut self.open), day());
        self.open = open;
        self.ids.extend(found.ids.into_known());
        let mut all: Vec<Attempt> = found.told.into_iter().map(attempt).collect();
        let mut others = said_next(&until(&mut self.containerd, now), &mut self.ids);
        let of_driver = until(&mut self.driver, now);
        if !of_driver.is_empty() {
            others.extend(complaints_in(&of_driver, volume_names(&self.case)));
        }
        all.extend(others.into_iter().map(|said| attempt((said, None))));
        all
    }
}

/// The lines of a log, each when it was written: one without a time with the one before.
fn lines(text: &[u8]) -> Vec<(Timestamp, String)> {
    let text = String::from_utf8_lossy(text);
    let (mut at, mut lines) = (Timestamp::UNIX_EPOCH, Vec::new());
    for line in text.lines() {
        let of_container = || Some(Line::parse(line)?.at);
        at = driver::written(line, day()).or_else(of_container).unwrap_or(at);
        lines.push((at, format!("{line}\n")));
    }
    lines.reverse();
    lines
}

fn until(lines: &mut Vec<(Timestamp, String)>, now: Timestamp) -> Vec<u8> {
    let mut text = String::new();
    while let Some((_, line)) = lines.pop_if(|(at, _)| *at <= now) {
        text.push_str(&line);
    }
    text.into()
}

/// Whatever a read comes between, nothing is lost and nothing is said twice.
#[test]
fn a_log_that_is_read_while_it_grows_says_what_it_says_as_a_whole() {
    let said = |mut attempts: Vec<Attempt>| {
        // As a whole, it says of a pod only once that it is deleted: the last time.
        let is_to_go = |it: &Attempt| it.said.report == Some(Report::ToGo);
        let last = attempts.iter().filter(|it| is_to_go(it)).map(|it| it.said.at).max();
        attempts.retain(|it| !is_to_go(it) || Some(it.said.at) == last);
        let said = attempts.into_iter().map(|it| format!("{:?} {:?}", it.said, it.call));
        let mut said: Vec<String> = said.collect();
        said.sort();
        said
    };
    for line in KUBELET.lines() {
        let (case, _) = line.split_once(':').unwrap();
        let mut growing = Growing::new(case);
        let mut read = Vec::new();
        let mut times: Vec<Timestamp> = growing.kubelet.iter().map(|(at, _)| *at).collect();
        times.reverse();
        // Once more each time, as when nothing is new.
        for at in times.into_iter().chain([day()]) {
            read.extend(growing.read(at));
            read.extend(growing.read(at));
        }
        assert_eq!(said(read), said(all_said(case)), "{case}");
    }
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

/// The day that all were made on, at its end.
fn day() -> Timestamp {
    "2026-11-23T00:00:00Z".parse().unwrap()
}

/// The one pod, and all that is in its log.
fn of_kubelets_log(case: &str) -> (NamedPod, Captured) {
    let log = captured(&text("kubelet-1.36", case), day());
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
    podstuck_fuzz::fuzz("klog", |input| drop(captured(input, now)));
}
