//! Goes through a log: the helper's side.

use std::{
    collections::{HashSet, VecDeque},
    io::{BufRead, BufReader, Read},
    path::PathBuf,
};

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    NamedPod,
    klog::{self, Entry, Failed},
    place,
};
use crate::{
    model::said::{NamedCall, Said},
    state::helper::{Question, Teller},
};

/// Attempts that are told, the last ones: several of each of many pods.
const ATTEMPTS: usize = 256;
/// Pods that are told.
const PODS: usize = 4096;
/// Longest entry that is read as one.
const LONGEST: usize = 16 << 10;

/// Of a kubelet.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) struct ReadLog {
    pub(super) host_root: PathBuf,
    pub(super) pid: u32,
    pub(super) now: Timestamp,
}

/// What is found.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) enum Part {
    Pods(Vec<NamedPod>),
    /// What is said, and the call that it names.
    Attempts(Vec<(Said, Option<NamedCall>)>),
}

impl Question for ReadLog {
    type Step = ();
    type Part = Part;
    /// The log's name.
    type Answer = String;

    fn answer(self, tell: &mut Teller<(), Part>) -> Result<String> {
        let place = place::of_process(&self.host_root, self.pid)?;
        let source = format!("log of kubelet (pid {}), {}", self.pid, place.name);
        let found = search(place.text, self.now).with_context(|| place.name.clone())?;
        tell.part(&Part::Pods(found.pods.into_iter().collect()))?;
        let attempts = found.attempts.into_iter().map(|failed| attempt(&source, failed));
        tell.part(&Part::Attempts(attempts.collect()))?;
        Ok(source)
    }
}

#[derive(Default)]
struct Found {
    pods: HashSet<NamedPod>,
    attempts: VecDeque<Failed>,
}

fn attempt(source: &str, failed: Failed) -> (Said, Option<NamedCall>) {
    let Failed { uid, volume, at, retry, error } = failed;
    let call = klog::named_call(&error);
    let complaint = klog::complaint(&error);
    let text = klog::shown(&error);
    (
        Said {
            uid,
            volume: klog::shown(&volume),
            at,
            retry,
            complaint,
            text,
            source: source.into(),
            times: 1,
        },
        call,
    )
}

fn search(text: impl Read, now: Timestamp) -> Result<Found> {
    let mut found = Found::default();
    let mut entry = String::new();
    // The first line may be the end of one; and a log may hold anything.
    for line in BufReader::new(text).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if klog::begins(&line) {
            take(&mut found, &entry, now);
            entry.clear();
        }
        if entry.len() + line.len() < LONGEST {
            entry.push_str(&line);
            entry.push('\n');
        }
    }
    take(&mut found, &entry, now);
    Ok(found)
}

fn take(found: &mut Found, entry: &str, now: Timestamp) {
    match klog::parse(entry.trim_end(), now) {
        Some(Entry::Named { namespace, name, uid }) if found.pods.len() < PODS => {
            found.pods.insert(NamedPod { namespace, name, uid });
        }
        Some(Entry::Failed(failed)) => {
            if found.attempts.len() >= ATTEMPTS {
                found.attempts.pop_front();
            }
            found.attempts.push_back(failed);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f0e0d0c-1111-4222-8333-444455556666";

    fn failure(second: usize) -> String {
        format!(
            "E0301 23:{:02}:{:02}.841398    7632 nestedpendingoperations.go:348] Operation for \
             \"{{volumeName:v podName:{UID} nodeName:}}\" failed. No retries permitted until 2026-03-01 \
             23:12:33.8 +0000 UTC m=+1.5 (durationBeforeRetry 1m4s). Error: UnmountVolume.TearDown failed \
             for volume \"v\" (UniqueName: \"v\") pod \"{UID}\" (UID: \"{UID}\") : unmount failed: exit \
             status 32\nOutput: umount: /k/data: target is busy.\n\n",
            second / 60,
            second % 60
        )
    }

    #[test]
    fn entries_of_several_lines_are_one_and_only_the_last_are_kept() {
        let mut log = String::from("half of a line\n\u{fffd}\n");
        for second in 0..ATTEMPTS + 3 {
            log.push_str(&failure(second));
            log.push_str("I0301 10:00:00.000001 7 x.go:1] \"x\" pod=\"shop/cart\" podUID=\"");
            log.push_str(UID);
            log.push_str("\"\n");
        }
        let found = search(log.as_bytes(), Timestamp::now()).unwrap();
        assert_eq!((found.attempts.len(), found.pods.len()), (ATTEMPTS, 1));
        let last = found.attempts.into_iter().next_back().unwrap();
        let (said, call) = attempt("log", last);
        assert_eq!(call.unwrap().path, PathBuf::from("/k/data"));
        assert!(said.text.ends_with("umount: /k/data: target is busy."), "{said:?}");
    }
}
