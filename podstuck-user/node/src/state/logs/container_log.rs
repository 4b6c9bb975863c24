//! Containers' logs below `/var/log/pods`: a directory for each pod, `NAMESPACE_NAME_UID`, in it one for each
//! container, in it a file for each of its starts, `N.log` (pkg/kubelet/kuberuntime, `BuildContainerLogsDirectory`
//! and `containerLogPath`). A line begins with its time and stream, as CRI prescribes, or is an object of Docker's.

use std::{
    fs,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use podstuck_model::path::{safe, safe_path};
use serde::Deserialize;

/// Containers of one pod whose logs are read. A driver has about four.
const CONTAINERS: usize = 8;

/// A line, or a part of one that continues in the next record.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) at: Timestamp,
    pub(super) text: String,
    pub(super) goes_on: bool,
}

impl Line {
    /// `None` where the line is in neither format.
    pub(super) fn parse(line: &str) -> Option<Self> {
        if line.starts_with('{') {
            #[derive(Deserialize)]
            struct OfDocker {
                log: String,
                time: Timestamp,
            }
            let OfDocker { log, time: at } = serde_json::from_str(line).ok()?;
            let goes_on = !log.ends_with('\n');
            return Some(Self { at, text: log.trim_end_matches('\n').to_owned(), goes_on });
        }
        let mut words = line.splitn(4, ' ');
        let at = words.next()?.parse().ok()?;
        if !matches!(words.next()?, "stdout" | "stderr") {
            return None;
        }
        // More tags may follow, separated by a colon.
        let goes_on = match words.next()?.split(':').next()? {
            "P" => true,
            "F" => false,
            _ => return None,
        };
        Some(Self { at, text: words.next().unwrap_or_default().to_owned(), goes_on })
    }
}

/// A container's log.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogOf {
    pub(super) path: PathBuf,
    /// Namespace and name of the pod.
    pub(super) pod: String,
    pub(super) container: String,
}

impl LogOf {
    /// Its name in reports.
    pub(super) fn source(&self) -> String {
        let Self { path, pod, container } = self;
        let (pod, container) = (safe(pod.as_bytes()), safe(container.as_bytes()));
        format!("log of {container} of pod {pod}, {}", safe_path(path))
    }
}

/// The newest log of each container of a pod, in the first of these directories that contains the pod's directory.
pub(super) fn of_pod(directories: &[PathBuf], uid: &str) -> Vec<LogOf> {
    let pod = |logs: &PathBuf| of_pods(logs).find(|pod| pod.uid == uid);
    let pod = directories.iter().find_map(pod);
    let mut logs: Vec<LogOf> = pod.iter().flat_map(PodLogs::containers).collect();
    logs.sort();
    logs.truncate(CONTAINERS);
    logs
}

/// The newest log of each container of all pods but one.
pub(super) fn of_others(logs: &Path, uid: &str) -> impl Iterator<Item = LogOf> {
    of_pods(logs)
        .filter(move |pod| pod.uid != uid)
        .flat_map(|pod| pod.containers().collect::<Vec<_>>())
}

/// The UID of the one pod of a name that has a directory of logs.
pub(super) fn only_pod(logs: &Path, namespace: &str, name: &str) -> Option<String> {
    let mut all = of_pods(logs).filter(|pod| pod.pod == format!("{namespace}/{name}"));
    all.next().filter(|_| all.next().is_none()).map(|pod| pod.uid)
}

/// A pod's directory of logs.
struct PodLogs {
    directory: PathBuf,
    /// Namespace and name.
    pod: String,
    uid: String,
}

impl PodLogs {
    fn containers(&self) -> impl Iterator<Item = LogOf> {
        entries(&self.directory).filter_map(|container| {
            let (pod, path) = (self.pod.clone(), newest(&container)?);
            Some(LogOf { path, pod, container: container.file_name()?.to_str()?.to_owned() })
        })
    }
}

fn of_pods(logs: &Path) -> impl Iterator<Item = PodLogs> + use<> {
    entries(logs).filter_map(|directory| {
        let (pod, uid) = directory.file_name()?.to_str()?.rsplit_once('_')?;
        let (pod, uid) = (pod.replacen('_', "/", 1), uid.to_owned());
        Some(PodLogs { directory, pod, uid })
    })
}

/// The log of the container's last start.
fn newest(container: &Path) -> Option<PathBuf> {
    let number =
        |path: &Path| path.file_name()?.to_str()?.strip_suffix(".log")?.parse::<u32>().ok();
    let logs = entries(container).filter(|path| path.is_file());
    logs.filter_map(|path| Some((number(&path)?, path))).max().map(|(_, path)| path)
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::scratch::write;

    #[test]
    fn fuzz_container_log() {
        podstuck_fuzz::fuzz("container_log", |input| {
            let text = String::from_utf8_lossy(input);
            let _ = text.lines().map(Line::parse).count();
        });
    }

    #[test]
    fn the_newest_log_of_each_container_is_found() {
        let top = tempfile::tempdir().unwrap();
        let uid = "0f0e0d0c-1111-2222-3333-444455556666";
        let pod = top.path().join(format!("kube-system_driver-x_{uid}"));
        for name in
            ["driver/2.log", "driver/10.log", "driver/10.log.20260101.gz", "registrar/0.log"]
        {
            write(pod.join(name), "");
        }
        let none = top.path().join("none");
        let found = of_pod(&[none, top.path().into()], uid);
        let found: Vec<_> = found.into_iter().map(|log| log.path).collect();
        assert_eq!(found, [pod.join("driver/10.log"), pod.join("registrar/0.log")]);
        assert!(of_pod(&[top.path().into()], "0f0e0d0c").is_empty());
        let mut others: Vec<_> = of_others(top.path(), "another").collect();
        others.sort();
        let (path, container) = (pod.join("driver/10.log"), "driver".into());
        let driver = LogOf { path, pod: "kube-system/driver-x".into(), container };
        assert_eq!((others.len(), &others[0]), (2, &driver));
        assert!(of_others(top.path(), uid).next().is_none());
        let only = |name| only_pod(top.path(), "kube-system", name);
        assert_eq!((only("driver-x").as_deref(), only("driver")), (Some(uid), None));
        fs::create_dir(top.path().join("kube-system_driver-x_another")).unwrap();
        assert_eq!(only("driver-x"), None, "it is not known which");
    }

    #[test]
    fn lines_of_both_formats_are_parsed_and_others_are_not() {
        let at: Timestamp = "2016-10-06T00:17:09.669794202Z".parse().unwrap();
        let line = |text: &str, goes_on| Some(Line { at, text: text.into(), goes_on });
        let time = "2016-10-06T00:17:09.669794202Z";
        assert_eq!(Line::parse(&format!("{time} stderr F E1 a  b")), line("E1 a  b", false));
        assert_eq!(Line::parse(&format!("{time} stdout P:tag x")), line("x", true));
        assert_eq!(Line::parse(&format!("{time} stderr F")), line("", false));
        let docker = format!("{{\"log\":\"a\\n\",\"stream\":\"stderr\",\"time\":\"{time}\"}}");
        assert_eq!(Line::parse(&docker), line("a", false));
        for other in
            ["", "x", "{", time, &format!("{time} stdin F x"), &format!("{time} stderr X x")]
        {
            assert_eq!(Line::parse(other), None, "{other}");
        }
    }
}
