//! Goes through the log of a CSI driver: the helper's side.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsString,
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    container_log::{self, Line},
    driver::{self, VolumeNames},
    klog,
    mark::Mark,
    place,
};
use crate::{
    identity::{
        cgroup::{group_of, pod_of_cgroup},
        runtimes::{Daemons, running_daemons},
    },
    model::{degraded::Feed, identity::Component, said::Said},
    state::helper::{Budget, Question, Teller},
};

/// Complaints of a volume that are told, the last ones.
const COMPLAINTS: usize = 64;
/// Longest line that is read.
const LONGEST: usize = 64 << 10;

/// Of the driver of a pod's volume.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) struct ReadDriverLog {
    pub(super) host_root: PathBuf,
    /// Where pods' logs are.
    pub(super) log_dirs: Vec<PathBuf>,
    /// The driver's process, or, where it is gone, its registrar's, which is in the same pod.
    pub(super) pid: u32,
    /// UID of the pod.
    pub(super) uid: String,
    /// The volume as kubelet calls it, and as the driver may.
    pub(super) volume: String,
    pub(super) names: VolumeNames,
    pub(super) now: Timestamp,
    /// By the log's name: up to where it was read before.
    pub(super) after: Marks,
}

/// Up to where logs were read, by their names.
pub(crate) type Marks = BTreeMap<String, Mark>;

/// What a log says.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) struct DriverSaid {
    place: String,
    pub(super) said: Vec<Said>,
    next: Option<Mark>,
}

impl DriverSaid {
    /// Takes note of where the next read goes on.
    pub(super) fn note(&mut self, marks: &mut Marks) {
        let next = self.next.take().map(|next| (std::mem::take(&mut self.place), next));
        marks.extend(next);
    }
}

impl Question for ReadDriverLog {
    const BUDGET: Budget = Budget::Logs;
    const FEEDS: Option<Feed> = Some(Feed::Logs);
    /// The log, or the directory, that it reads.
    type Step = OsString;
    type Part = DriverSaid;
    /// The logs that were read.
    type Answer = Vec<String>;

    fn answer(self, tell: &mut Teller<OsString, DriverSaid>) -> Result<Vec<String>> {
        let process = PathBuf::from(format!("/proc/{}", self.pid));
        let group = group_of(&process).context("reading its control group")?;
        let pod = pod_of_cgroup(&group);
        let places = match &pod {
            Some((uid, _)) => {
                for directory in &self.log_dirs {
                    place::lives(directory, |path| tell.at(&path.into()))?;
                }
                let logs = container_log::of_pod(&self.log_dirs, uid);
                logs.iter().map(|log| place::of_file(log)).collect::<Result<Vec<_>>>()?
            }
            None if is_a_daemons(self.pid) => bail!("it is kubelet's or the runtime's log, too"),
            None => vec![place::of_process(&self.host_root, self.pid, |log| tell.at(&log.into()))?],
        };
        if places.is_empty() {
            bail!("its pod has no directory of logs");
        }
        let mut read = Vec::new();
        for place in places {
            let name = place.name.clone();
            let source = super::source(Component::CsiDriver, self.pid, &name);
            let news = place.news(self.after.get(&name), tell)?;
            let found = self.search(&*news.text)?.into_iter();
            let said = found.map(|(at, text)| self.said(at, &text, &source)).collect();
            tell.part(&DriverSaid { place: name, said, next: news.next })?;
            read.push(source);
        }
        Ok(read)
    }
}

impl ReadDriverLog {
    /// The last complaints of the volume.
    fn search(&self, text: impl Read) -> Result<VecDeque<(Timestamp, String)>> {
        let mut found = VecDeque::new();
        let mut whole = String::new();
        for line in BufReader::new(text).split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            // A driver that is no container writes its own lines only.
            let (at, goes_on) = match Line::parse(&line) {
                Some(Line { at, text, goes_on }) => {
                    append(&mut whole, &text);
                    (Some(at), goes_on)
                }
                None => {
                    append(&mut whole, &line);
                    (None, false)
                }
            };
            if goes_on {
                continue;
            }
            let line = std::mem::take(&mut whole);
            let Some(text) = driver::complaint(&line, &self.names) else { continue };
            let Some(at) = at.or_else(|| driver::written(&line, self.now)) else { continue };
            if found.len() >= COMPLAINTS {
                found.pop_front();
            }
            found.push_back((at, text));
        }
        Ok(found)
    }

    fn said(&self, at: Timestamp, text: &str, source: &str) -> Said {
        Said {
            volume: self.volume.clone(),
            complaint: klog::complaint(text),
            ..super::said(Component::CsiDriver, source, &self.uid, at, text)
        }
    }
}

/// Whether a process writes to the file of another one's log, whose lines would be taken for its own.
fn is_a_daemons(pid: u32) -> bool {
    let file =
        |pid: u32| fs::metadata(format!("/proc/{pid}/fd/2")).map(|file| (file.dev(), file.ino()));
    let Ok(own) = file(pid) else { return false };
    let proc = Path::new("/proc");
    let Daemons { kubelets, runtimes, .. } = running_daemons(proc);
    let mut daemons = kubelets.into_iter().chain(runtimes.into_iter().map(|(pid, _)| pid));
    daemons.any(|daemon| file(daemon).is_ok_and(|file| file == own))
}

fn append(whole: &mut String, text: &str) {
    if whole.len() + text.len() <= LONGEST {
        whole.push_str(text);
    }
}

/// What a text of a driver's says of a volume.
#[cfg(test)]
pub(super) fn complaints_in(text: &[u8], names: VolumeNames) -> Vec<Said> {
    let question = ReadDriverLog {
        host_root: "/".into(),
        log_dirs: Vec::new(),
        pid: 1,
        uid: "u".into(),
        volume: format!("kubernetes.io/csi/d^{}", names.handle),
        names,
        now: "2026-12-02T00:00:00Z".parse().unwrap(),
        after: Marks::new(),
    };
    let found = question.search(text).unwrap();
    found.iter().map(|(at, text)| question.said(*at, text, "log")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> VolumeNames {
        VolumeNames {
            directory: "/k/pods/u/volumes/kubernetes.io~csi/pv".into(),
            handle: "handle-1".into(),
            name: "pv".into(),
        }
    }

    #[test]
    fn fuzz_driver_log() {
        crate::fuzz::fuzz("driver_log", |input| {
            let _ = complaints_in(input, names());
        });
    }

    #[test]
    fn a_line_in_parts_is_one_and_its_time_is_the_containers() {
        let log = "\u{fffd}\n\
            2026-03-01T00:00:01Z stderr P E0301 00:00:01.000001    7 x.go:1] GRPC error: rpc error: code = \n\
            2026-03-01T00:00:02Z stderr F Internal desc = handle-1 is busy\n\
            2026-03-01T00:00:03Z stderr F E0301 00:00:03.000001    7 x.go:1] other\n\
            E0301 00:00:04.000001    7 x.go:1] handle-1 \x1b[2J\n";
        let said = complaints_in(log.as_bytes(), names());
        let texts: Vec<&str> = said.iter().map(|said| said.text.as_str()).collect();
        let whole = "GRPC error: rpc error: code = Internal desc = handle-1 is busy";
        assert_eq!(texts, [whole, r"handle-1 \x1b[2J"]);
        assert_eq!(said[0].at.to_string(), "2026-03-01T00:00:02Z");
        assert!(said.iter().all(|said| said.component == Component::CsiDriver));
    }

    #[test]
    fn only_the_last_are_kept_and_a_line_has_an_end() {
        let line = "E0301 00:00:04.000001    7 x.go:1] handle-1\n".repeat(COMPLAINTS + 3);
        assert_eq!(complaints_in(line.as_bytes(), names()).len(), COMPLAINTS);
        let endless = "2026-03-01T00:00:01Z stderr P handle-1 \n".repeat(9999);
        assert!(complaints_in(endless.as_bytes(), names()).is_empty());
    }
}
