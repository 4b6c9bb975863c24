//! Captured logs of a node with a stuck pod, 40 to 75 s after its deletion, one case for each fault:
//! kubelet's (1.36, lines with the pod's UID or name, at `--v=2`), containerd's (1.6, repetitions left out, what
//! it says of other pods left in) and the driver's (CSI hostpath, calls on volumes). Those of 26 November are of another
//! node, whose kubelet had another root (here `/var/lib/kubelet`, too), and have lines about the pod alone;
//! `raw-block-held` has none of kubelet's from its attempt 8 s after the deletion on, and the containerd of
//! `image-volume-held-containerd-2` is 2.4.

#![allow(clippy::unwrap_used, reason = "only tests read them")]

use std::{fs, path::PathBuf};

use jiff::Timestamp;
use podstuck_common::record::Caller;
use podstuck_model::said::{NamedCall, Said};

use super::{
    Attempt, NamedPod, VolumeNames,
    container_log::Line,
    driver,
    read::{Captured, Open, captured, captured_next},
    read_driver::complaints_in,
    read_runtime::{said_in, said_next},
};

pub(super) fn of_driver(case: &str) -> Vec<Said> {
    let (volume, text) = (of_volume(case), text("csi-hostpath", case));
    assert!(String::from_utf8_lossy(&text).contains(&volume.names.handle), "{:?}", volume.names);
    volume.said_by_driver(&text)
}

/// A pod's CSI volume.
struct OfVolume {
    uid: String,
    /// As kubelet calls it.
    volume: String,
    names: VolumeNames,
}

impl OfVolume {
    fn said_by_driver(self, text: &[u8]) -> Vec<Said> {
        let Self { uid, volume, names } = self;
        let said = complaints_in(text, names).into_iter();
        said.map(|said| Said { uid: uid.clone(), volume: volume.clone(), ..said }).collect()
    }
}

fn of_volume(case: &str) -> OfVolume {
    let (pod, kubelet) = of_kubelets_log(case);
    let mut volumes = kubelet.findings.iter().map(|(said, _)| &said.volume);
    let volume = volumes.find(|volume| volume.contains('^')).unwrap().clone();
    let name = format!("pv-{}", pod.name);
    let names = VolumeNames {
        directory: format!("/var/lib/kubelet/pods/{}/volumes/kubernetes.io~csi/{name}", pod.uid),
        handle: volume.split_once('^').unwrap().1.into(),
        name,
    };
    OfVolume { uid: pod.uid, volume, names }
}

fn attempt((said, call): (Said, Option<NamedCall>)) -> Attempt {
    Attempt { pid: 0, caller: Caller::default(), said, call }
}

/// The attempts in all logs of a case, as they are read on a node: kubelet's, containerd's and the driver's.
pub fn all_said(case: &str) -> Vec<Attempt> {
    let (_, kubelet) = of_kubelets_log(case);
    let mut all: Vec<Attempt> = kubelet.findings.into_iter().map(attempt).collect();
    let mut others = said_in(&text("containerd-1.6", case), kubelet.ids);
    if folder("csi-hostpath").join(format!("{case}.log")).exists() {
        others.extend(of_driver(case));
    }
    all.extend(others.into_iter().map(|said| attempt((said, None))));
    all
}

/// The logs of a case, read while they grow.
pub struct Growing {
    case: String,
    /// Lines with their times, the last one first.
    pub(super) kubelet: Vec<(Timestamp, String)>,
    containerd: Vec<(Timestamp, String)>,
    driver: Vec<(Timestamp, String)>,
    open: Open,
    ids: Vec<(String, String)>,
}

impl Growing {
    /// At the beginning of each log.
    pub fn new(case: &str) -> Self {
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

    /// Reads what was written since the last read and up to `now`.
    pub fn read(&mut self, now: Timestamp) -> Vec<Attempt> {
        let text = until(&mut self.kubelet, now);
        let (found, open) = captured_next(&text, std::mem::take(&mut self.open), day());
        self.open = open;
        self.ids.extend(found.ids.into_known());
        let mut all: Vec<Attempt> = found.findings.into_iter().map(attempt).collect();
        let mut others = said_next(&until(&mut self.containerd, now), &mut self.ids);
        let of_driver = until(&mut self.driver, now);
        if !of_driver.is_empty() {
            others.extend(of_volume(&self.case).said_by_driver(&of_driver));
        }
        all.extend(others.into_iter().map(|said| attempt((said, None))));
        all
    }
}

/// The lines of a log with their times; a line without a time has that of the line before it. The last one first.
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

pub(super) fn folder(logs: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src/state/logs")).join(logs)
}

pub(super) fn text(logs: &str, case: &str) -> Vec<u8> {
    fs::read(folder(logs).join(format!("{case}.log"))).unwrap()
}

/// A time after the last capture.
pub(super) fn day() -> Timestamp {
    "2026-11-27T00:00:00Z".parse().unwrap()
}

/// The one pod of a case, and the contents of kubelet's log.
pub(super) fn of_kubelets_log(case: &str) -> (NamedPod, Captured) {
    let log = captured(&text("kubelet-1.36", case), day());
    assert_eq!(log.pods.len(), 1, "{:?}", log.pods);
    assert_eq!(log.pods[0].namespace, "default");
    (log.pods[0].clone(), log)
}
