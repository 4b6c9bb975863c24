//! Reads the logs of the node's containers for complaints that name one pod, in the helper process: the controller of the
//! pod's finalizer may run on this node. Any container can write such a line: it is quoted, and decides nothing.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use anyhow::Result;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    container_log::{self, LogOf},
    driver,
    peel::peeled,
    place,
};
use podstuck_confine::{
    given_file,
    helper::{Budget, Question, Teller},
};
use podstuck_model::{
    degraded::Feed,
    identity::{Component, Pod},
    said::{Said, template},
};

/// Logs that are read: several times what a full node has.
const LOGS: usize = 512;
/// Bytes that are read of each, its end.
const TAIL: u64 = 256 << 10;
/// Kinds of complaints that are reported of each log.
const KINDS: usize = 4;

/// Reads the ends of the logs of all containers but those of the pod itself.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) struct ReadContainerLogs {
    /// Directories of pods' logs.
    pub(super) log_dirs: Vec<PathBuf>,
    pub(super) pod: Pod,
    pub(super) now: Timestamp,
}

impl Question for ReadContainerLogs {
    const BUDGET: Budget = Budget::Logs;
    const FEEDS: Option<Feed> = Some(Feed::Logs);
    /// The log, or the directory, that it reads.
    type Step = OsString;
    /// The complaints of one container.
    type Part = Vec<Said>;
    type Answer = ();

    fn place(&self) -> OsString {
        "the logs of the node's containers".into()
    }

    fn answer(self, tell: &mut Teller<OsString, Vec<Said>>) -> Result<()> {
        for directory in &self.log_dirs {
            place::lives(directory, |path| tell.at(&path.into()))?;
            for log in container_log::of_others(directory, &self.pod.uid).take(LOGS) {
                tell.at(&log.path.clone().into())?;
                // It may be removed meanwhile.
                let Ok(text) = end_of(&log.path) else { continue };
                let said = self.search(&text, &log);
                if !said.is_empty() {
                    tell.part(&said)?;
                }
            }
        }
        Ok(())
    }
}

fn end_of(log: &Path) -> Result<Vec<u8>> {
    let mut file = given_file::open(log)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(TAIL)))?;
    let mut text = Vec::new();
    file.take(TAIL).read_to_end(&mut text)?;
    Ok(text)
}

impl ReadContainerLogs {
    /// The last complaint of each kind about the pod.
    fn search(&self, text: &[u8], log: &LogOf) -> Vec<Said> {
        let Pod { uid, namespace, name } = &self.pod;
        let is_named = |text: &str| {
            let names = [Some(uid), name.as_ref()];
            names.into_iter().flatten().any(|name| names_whole(text, name))
        };
        // Most logs end here.
        let short = name.as_ref().unwrap_or(uid);
        let is_there = |name: &str| memchr::memmem::find(text, name.as_bytes()).is_some();
        if !is_there(short) && !is_there(uid) {
            return Vec::new();
        }
        let mut kinds: BTreeMap<String, Said> = BTreeMap::new();
        let source = log.source();
        // Of the same name in another namespace.
        let is_anothers = |text: &str| {
            let (Some(namespace), Some(name)) = (namespace, name) else { return false };
            let whole = format!("{namespace}/{name}");
            text.contains(&format!("/{name}"))
                && !text.contains(&whole)
                && !text.contains(uid.as_str())
        };
        for line in peeled(text, 0).filter(|line| is_named(&line.text) && !is_anothers(&line.text))
        {
            let Some((text, _)) = driver::of_entry(&line.text) else { continue };
            let Some(at) = line.at.or_else(|| driver::written(&line.text, self.now)) else {
                continue;
            };
            let said = super::said(Component::Workload, &source, uid, at, &text);
            let times = kinds.get(&template(&text)).map_or(0, |before| before.times) + 1;
            kinds.insert(template(&text), Said { times, ..said });
        }
        let mut said: Vec<Said> = kinds.into_values().collect();
        said.sort_by_key(|said| said.at);
        said.split_off(said.len().saturating_sub(KINDS))
    }
}

/// Whether a text has a name that is no part of a longer one.
fn names_whole(text: &str, name: &str) -> bool {
    let goes_on =
        |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    // Names of this length may be a word of any kind.
    const LEAST: usize = 5;
    name.len() >= LEAST
        && text.match_indices(name).any(|(at, _)| {
            let before = text.get(..at).and_then(|text| text.chars().next_back());
            let mut after = text.get(at + name.len()..).unwrap_or_default().chars();
            // The end of a sentence.
            let after = match (after.next(), after.next()) {
                (Some('.'), None | Some(' ')) => None,
                (after, _) => after,
            };
            !goes_on(before) && !goes_on(after)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    fn texts(log: &str) -> Vec<(String, u64)> {
        let pod = Pod {
            uid: UID.into(),
            namespace: Some("kube-system".into()),
            name: Some("juicefs-k8s-02-pvc-zktlrp".into()),
        };
        let question = ReadContainerLogs {
            log_dirs: Vec::new(),
            pod,
            now: "2026-12-02T00:00:00Z".parse().unwrap(),
        };
        let of = LogOf {
            path: "/var/log/pods/kube-system_juicefs-csi-node-5x7kz_u/juicefs-plugin/0.log".into(),
            pod: "kube-system/juicefs-csi-node-5x7kz".into(),
            container: "juicefs-plugin".into(),
        };
        let said = question.search(log.as_bytes(), &of);
        assert!(said.iter().all(|said| said.component == Component::Workload && said.uid == UID));
        assert!(said.iter().all(
            |said| said.writer() == "juicefs-plugin of pod kube-system/juicefs-csi-node-5x7kz"
        ));
        said.into_iter().map(|said| (said.text, said.times)).collect()
    }

    /// juicefs-csi-driver#1208.
    #[test]
    fn a_complaint_that_names_the_pod_is_found_in_any_containers_log() {
        let record = |text: &str| format!("2026-11-30T21:37:00.5Z stderr F {text}\n");
        let klog = |level: char, text: &str| {
            record(&format!("{level}1130 21:37:00.500000       7 reconciler.go:145] {text}"))
        };
        let fails = "\"Driver check pod error, will retry\" err=\"secrets \\\"juicefs-pvc-secret\\\" not found\" \
            name=\"juicefs-k8s-02-pvc-zktlrp\"";
        assert_eq!(texts(&klog('E', fails).repeat(3)), [(fails.to_owned(), 3)]);
        let zap = r#"{"level":"error","ts":1.5,"msg":"Reconciler error","name":"juicefs-k8s-02-pvc-zktlrp","error":"x"}"#;
        assert_eq!(texts(&record(zap)), [("Reconciler error: x".to_owned(), 1)]);
        let by_uid = format!("cannot release pod {UID}");
        assert_eq!(texts(&klog('E', &by_uid)), [(by_uid, 1)]);
        for other in [
            klog('I', fails),
            klog('E', &fails.replace("zktlrp", "zktlrp-x")),
            klog('E', "\"x\" pod=\"other/juicefs-k8s-02-pvc-zktlrp\" err=\"y\""),
            klog('E', "\"x\" err=\"y\""),
            record("juicefs-k8s-02-pvc-zktlrp"),
        ] {
            assert!(texts(&other).is_empty(), "{other}");
        }
    }
}
