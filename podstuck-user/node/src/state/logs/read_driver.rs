//! Reads the log of a CSI driver, in the helper process.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsString,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    container_log,
    driver::{self, VolumeNames},
    entries::Entry,
    framing::Framing,
    klog,
    lines::Lines,
    mark::Mark,
    peel::{Peeled, peeled},
    place,
    read::within,
};
use crate::identity::{
    cgroup::{group_of, pod_of_cgroup},
    runtimes::{Daemons, running_daemons},
};
use podstuck_confine::helper::{Budget, Question, Teller};
use podstuck_model::{
    degraded::Feed,
    identity::Component,
    said::{self, Said},
};

/// Complaints about a volume that are reported, the last ones.
const COMPLAINTS: usize = 64;

/// Reads the log of the driver of a pod's volume.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) struct ReadDriverLog {
    pub(super) host_root: PathBuf,
    /// Directories of pods' logs.
    pub(super) log_dirs: Vec<PathBuf>,
    /// The driver's process, or, where it is gone, its registrar's, which is in the same pod.
    pub(super) pid: u32,
    /// UID of the pod.
    pub(super) uid: String,
    /// The volume, as kubelet names it.
    pub(super) volume: String,
    pub(super) names: VolumeNames,
    pub(super) now: Timestamp,
    /// Where the last read of each log ended.
    pub(super) after: Marks,
}

/// Where the last read of each log ended, by the log's name.
pub type Marks = BTreeMap<String, Mark>;

/// The complaints in one log.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) struct DriverSaid {
    pub(super) place: String,
    pub(super) said: Vec<Said>,
    pub(super) lines: Lines,
    next: Option<Mark>,
}

impl DriverSaid {
    /// Notes in `marks` where the next read continues.
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

    fn place(&self) -> OsString {
        format!("the log of pid {}", self.pid).into()
    }

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
                logs.iter().map(|log| place::of_file(&log.path)).collect::<Result<Vec<_>>>()?
            }
            None if is_a_daemons(self.pid) => bail!("it is also the log of kubelet or the runtime"),
            None => vec![place::of_process(&self.host_root, self.pid, |log| tell.at(&log.into()))?],
        };
        if places.is_empty() {
            bail!("its pod has no directory of logs");
        }
        let own = within(&self.host_root, self.pid);
        let mut read = Vec::new();
        for place in places {
            let name = place.name.clone();
            let source = super::source(Component::CsiDriver, self.pid, &name);
            let news = place.news(self.after.get(&name), tell)?;
            let (found, lines) = self.search(&news.text, own);
            let said = found.into_iter().map(|found| from(&source, found)).collect();
            tell.part(&DriverSaid { place: name, said, lines, next: news.next })?;
            read.push(source);
        }
        Ok(read)
    }
}

impl ReadDriverLog {
    /// The last complaints about the volume, each with whether it is proven that the driver wrote it. `own` is the
    /// driver's process id in its own PID namespace.
    fn search(&self, text: &[u8], own: u32) -> (VecDeque<(Said, bool)>, Lines) {
        let mut understood = Lines::default();
        let mut found = VecDeque::new();
        let mut push = |said: Said, is_proven: bool| {
            if found.len() >= COMPLAINTS {
                found.pop_front();
            }
            found.push_back((said, is_proven));
        };
        let mut framing = Framing::default().of(own);
        let lines: Vec<Peeled<'_>> = peeled(text, own).collect();
        framing.learn(&lines);
        let (mut has_frame, mut open) = (false, None);
        for line in &lines {
            if line.text.is_empty() {
                continue;
            }
            let begins = framing.begins(line, self.now);
            let is_entry = || Entry::read(&line.text).is_some_and(|entry| entry.has_level());
            understood.note(begins.is_some() || has_frame || is_entry());
            if let Some(is_proven) = begins {
                has_frame = true;
                open.take().into_iter().for_each(|said| push(said, is_proven));
            } else if has_frame || klog::writer(line.text.as_bytes()).is_some() {
                // The rest of an entry that quotes a line break: a tenant may have chosen it.
                continue;
            }
            let Some((text, is_quoted)) = driver::complaint(&line.text, &self.names) else {
                continue;
            };
            let Some(at) = line.at.or_else(|| driver::written(&line.text, self.now)) else {
                continue;
            };
            let said = self.said(at, &text);
            match begins {
                Some(_) => open = Some(said),
                None => push(said, is_quoted),
            }
        }
        // A container need not have the node's time zone, so its times may seem to be later than now.
        open.into_iter().for_each(|said| push(said, framing.ends(Timestamp::MAX)));
        (found, understood)
    }

    fn said(&self, at: Timestamp, text: &str) -> Said {
        Said {
            volume: self.volume.clone(),
            complaint: klog::complaint(text),
            ..super::said(Component::CsiDriver, "", &self.uid, at, text)
        }
    }
}

/// A complaint with the log that it was read from.
fn from(source: &str, (said, is_proven): (Said, bool)) -> Said {
    let source = if is_proven { source.to_owned() } else { said::unproven(source) };
    Said { source, ..said }
}

/// Whether a process writes to the same file as kubelet or a runtime, whose lines would be taken for its own.
fn is_a_daemons(pid: u32) -> bool {
    let file =
        |pid: u32| fs::metadata(format!("/proc/{pid}/fd/2")).map(|file| (file.dev(), file.ino()));
    let Ok(own) = file(pid) else { return false };
    let proc = Path::new("/proc");
    let Daemons { kubelets, runtimes, .. } = running_daemons(proc);
    let mut daemons = kubelets.into_iter().chain(runtimes.into_iter().map(|(pid, _)| pid));
    daemons.any(|daemon| file(daemon).is_ok_and(|file| file == own))
}

/// The complaints about a volume in a text of a driver's.
#[cfg(any(test, feature = "captures"))]
#[allow(clippy::unwrap_used, reason = "only tests call it")]
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
    let writers = peeled(text, 0).find_map(|line| klog::writer(line.text.as_bytes()));
    let (found, _) = question.search(text, writers.unwrap_or_default());
    found.into_iter().map(|found| from("log", found)).collect()
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
        podstuck_fuzz::fuzz("driver_log", |input| {
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

    /// A tenant's file has a name with a line break, and the driver logs that it cannot be removed.
    #[test]
    fn a_name_with_a_line_break_says_nothing_of_another_volume() {
        let of_driver = |second: u32, pid: u32, text: &str| {
            format!("E0301 00:00:{second:02}.000001 {pid:7} x.go:1] {text}")
        };
        let said = |forged: &str| {
            let quotes = format!("cannot remove /other/x\n{forged}: busy");
            let all =
                [of_driver(1, 7, "before"), of_driver(9, 7, &quotes), of_driver(10, 7, "after")];
            // The runtime writes each line as a record.
            let lines = all.iter().flat_map(|text| text.split('\n'));
            let log: String =
                lines.map(|line| format!("2026-03-01T00:00:09Z stderr F {line}\n")).collect();
            complaints_in(log.as_bytes(), names())
        };
        let zap = r#"{"level":"error","ts":1.5,"msg":"handle-1 is not known"}"#;
        let logrus = "time=\"2026-03-01T00:00:09Z\" level=error msg=\"handle-1 is not known\"";
        for forged in [&of_driver(9, 8, "handle-1 is not known"), zap, logrus, "handle-1"] {
            assert!(said(forged).is_empty(), "{forged}");
        }
        // A tenant that knows the driver's process id must know the second, too.
        let forged = said(&of_driver(5, 7, "handle-1 is not known"));
        assert_eq!(forged.len(), 1, "{forged:?}");
        assert_eq!(forged[0].source, said::unproven("log"));
        let own = complaints_in(of_driver(1, 7, "handle-1 is busy").as_bytes(), names());
        assert_eq!((own.len(), own[0].source.as_str()), (1, "log"));
    }

    #[test]
    fn only_the_last_are_kept_and_a_line_has_an_end() {
        let line = "E0301 00:00:04.000001    7 x.go:1] handle-1\n".repeat(COMPLAINTS + 3);
        assert_eq!(complaints_in(line.as_bytes(), names()).len(), COMPLAINTS);
        let endless = "2026-03-01T00:00:01Z stderr P handle-1 \n".repeat(9999);
        assert!(complaints_in(endless.as_bytes(), names()).is_empty());
    }
}
