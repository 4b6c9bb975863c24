//! Goes through a log: the helper's side.

use std::{
    collections::{HashSet, VecDeque},
    ffi::OsString,
    io::{BufRead, BufReader, Read},
    path::PathBuf,
};

use anyhow::Result;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    NamedPod,
    attempts::{Attempts, Told},
    complaints,
    deletions::{Current, Deletions, Name},
    klog::{self, Entry, Failed},
    klog_runtime,
    mark::{Mark, News},
    place,
    pod_ids::PodIds,
};
use crate::{
    model::{
        degraded::Feed,
        identity::Component,
        said::{Heard, NamedCall, Report, Said},
    },
    state::helper::{Budget, Question, Teller},
};

/// Complaints of the runtime that are told, the last ones: a plugin that fails fails for every pod.
const OF_RUNTIME: usize = 1024;
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
    /// Up to where it was read before.
    pub(super) after: Option<Box<Open>>,
}

/// Where the next read of a log goes on, and what it goes on with.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::state) struct Open {
    mark: Option<Mark>,
    /// There was an entry.
    has_begun: bool,
    /// The last entry, which may go on.
    entry: String,
    deletions: Vec<(Name, Current)>,
}

/// What is found.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) enum Part {
    /// Where the next read goes on.
    Next(Box<Open>),
    Pods(Vec<NamedPod>),
    /// Ids of containers and sandboxes, and the UID of their pod.
    Containers(Vec<(String, String)>),
    /// What is said, and the call that it names.
    Attempts(Vec<(Said, Option<NamedCall>)>),
    /// From when on.
    Heard(Heard),
}

impl Question for ReadLog {
    const BUDGET: Budget = Budget::Logs;
    const FEEDS: Option<Feed> = Some(Feed::Logs);
    /// The log that it reads.
    type Step = OsString;
    type Part = Part;
    /// The log's name.
    type Answer = String;

    fn answer(self, tell: &mut Teller<OsString, Part>) -> Result<String> {
        let place = place::of_process(&self.host_root, self.pid, |log| tell.at(&log.into()))?;
        let source = format!("log of kubelet (pid {}), {}", self.pid, place.name);
        let before = self.after.map(|open| *open);
        let news = place.news(before.as_ref().and_then(|open| open.mark.as_ref()), tell)?;
        let (found, next) = go_on(news, before, self.now)?;
        tell.part(&Part::Pods(found.pods.into_iter().collect()))?;
        tell.part(&Part::Containers(found.ids.into_known()))?;
        let since = found.since.max(found.attempts.forgotten());
        let attempts = told(found.attempts, found.of_runtime, found.deletions);
        let attempts = attempts.map(|entry| attempt(&source, entry));
        tell.part(&Part::Attempts(attempts.collect()))?;
        if let Some(since) = since {
            tell.part(&Part::Heard(Heard { source: source.clone(), since, until: self.now }))?;
        }
        tell.part(&Part::Next(Box::new(next)))?;
        Ok(source)
    }
}

#[derive(Default)]
struct Found {
    pods: HashSet<NamedPod>,
    ids: PodIds,
    attempts: Attempts,
    of_runtime: VecDeque<Told>,
    deletions: Deletions,
    /// The time of the first entry behind the beginning, or behind a gap.
    since: Option<Timestamp>,
    /// The last one, which may go on.
    entry: String,
}

/// All that is told.
fn told(
    attempts: Attempts,
    of_runtime: VecDeque<Told>,
    deletions: Deletions,
) -> impl Iterator<Item = Told> {
    let deletions = deletions.into_found().into_iter().map(|(uid, at)| {
        let (volume, report) = (String::new(), Report::ToGo);
        Told::Reported { uid, volume, at, report }
    });
    attempts.into_told().chain(of_runtime).chain(deletions)
}

fn attempt(source: &str, told: Told) -> (Said, Option<NamedCall>) {
    let said = |uid: &str, at, text: &str| super::said(Component::Kubelet, source, uid, at, text);
    match told {
        Told::Failed(Failed { uid, volume, at, retry, error }) => {
            let complaint = klog::complaint(&error);
            let volume = klog::shown(&volume);
            let looked = klog::named_look(&error);
            let said = Said { volume, retry, complaint, looked, ..said(&uid, at, &error) };
            (said, klog::named_call(&error))
        }
        Told::Reported { uid, volume, at, report } => {
            let text = klog::words(report);
            let (report, volume) = (Some(report), klog::shown(&volume));
            (Said { report, volume, ..said(&uid, at, text) }, None)
        }
        Told::OfRuntime { uid, at, error } => {
            let complaint = complaints::of_runtime(&error);
            (Said { complaint, ..said(&uid, at, klog::cut(&error)) }, None)
        }
    }
}

/// What is new, and where the next read goes on.
fn go_on(news: News, before: Option<Open>, now: Timestamp) -> Result<(Found, Open)> {
    let (is_first, is_quiet) = (before.is_none(), news.text.is_empty());
    let Open { entry, deletions, has_begun, .. } = before.unwrap_or_default();
    let mut found = Found { entry, deletions: Deletions::after(deletions), ..Found::default() };
    if news.is_cut {
        found.end(now);
        found.deletions.interrupted();
    }
    found.read(&*news.text, now)?;
    // What an entry goes on with is there with its beginning, or a moment later.
    if is_first || is_quiet {
        found.end(now);
    }
    let (entry, deletions) = (found.entry.clone(), found.deletions.known());
    let next =
        Open { mark: news.next, has_begun: has_begun || found.since.is_some(), entry, deletions };
    found.since = found.since.filter(|_| !has_begun || news.is_cut);
    Ok((found, next))
}

impl Found {
    /// Goes through a text, up to its last entry.
    fn read(&mut self, text: impl Read, now: Timestamp) -> Result<()> {
        // The first line may be the end of one; and a log may hold anything.
        for line in BufReader::new(text).split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            if klog::begins(&line) {
                self.since = self.since.or_else(|| klog::written(&line, now));
                self.end(now);
            }
            if self.entry.len() + line.len() < LONGEST {
                self.entry.push_str(&line);
                self.entry.push('\n');
            } else {
                self.deletions.interrupted();
            }
        }
        Ok(())
    }

    /// The last entry is whole.
    fn end(&mut self, now: Timestamp) {
        let entry = std::mem::take(&mut self.entry);
        take(self, &entry, now);
    }
}

/// All that is in a text.
#[cfg(test)]
fn search(text: impl Read, now: Timestamp) -> Result<Found> {
    let mut found = Found::default();
    found.read(text, now)?;
    found.end(now);
    Ok(found)
}

/// A log, read whole.
#[cfg(test)]
pub(super) struct Captured {
    pub(super) pods: Vec<NamedPod>,
    pub(super) told: Vec<(Said, Option<NamedCall>)>,
    pub(super) ids: PodIds,
}

/// What is in a text.
#[cfg(test)]
pub(super) fn captured(text: &[u8], now: Timestamp) -> Captured {
    captured_of(search(text, now).unwrap())
}

/// What is in a text that goes on with one before.
#[cfg(test)]
pub(super) fn captured_next(text: &[u8], open: Open, now: Timestamp) -> (Captured, Open) {
    let news = News { text: text.into(), ..News::default() };
    let (found, next) = go_on(news, Some(open), now).unwrap();
    (captured_of(found), next)
}

#[cfg(test)]
fn captured_of(found: Found) -> Captured {
    let told = told(found.attempts, found.of_runtime, found.deletions);
    Captured {
        pods: found.pods.into_iter().collect(),
        told: told.map(|told| attempt("log", told)).collect(),
        ids: found.ids,
    }
}

fn take(found: &mut Found, entry: &str, now: Timestamp) {
    let entry = entry.trim_end();
    let Some(message) = klog::message(entry) else { return };
    found.ids.listen_to_kubelet(message);
    found.deletions.listen(message, || klog::written(entry, now));
    let told = match klog::parse(entry, now) {
        Some(Entry::Named { namespace, name, uid, ended }) => {
            let ended = ended.map(|at| {
                let (uid, volume) = (uid.clone(), String::new());
                Told::Reported { uid, volume, at, report: Report::ContainerEnded }
            });
            found.deletions.named(&namespace, &name, &uid);
            if found.pods.len() < PODS {
                found.pods.insert(NamedPod { namespace, name, uid });
            }
            ended
        }
        Some(Entry::Failed(failed)) => Some(Told::Failed(failed)),
        Some(Entry::Done { uid, volume, at, report }) => {
            Some(Told::Reported { uid, volume, at, report })
        }
        None => {
            let complaint = klog_runtime::of_runtime(message).zip(klog::written(entry, now));
            let Some(((uid, error), at)) = complaint else { return };
            if found.of_runtime.len() >= OF_RUNTIME {
                found.of_runtime.pop_front();
            }
            return found.of_runtime.push_back(Told::OfRuntime { uid, at, error });
        }
    };
    if let Some(told) = told {
        found.attempts.push(told);
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
    fn entries_of_several_lines_are_one() {
        let mut log = String::from("half of a line\n\u{fffd}\n");
        for second in 0..3 {
            log.push_str(&failure(second));
            log.push_str("I0301 10:00:00.000001 7 x.go:1] \"x\" pod=\"shop/cart\" podUID=\"");
            log.push_str(UID);
            log.push_str("\"\n");
        }
        let found = search(log.as_bytes(), Timestamp::now()).unwrap();
        assert_eq!(found.pods.len(), 1);
        let told: Vec<Told> = found.attempts.into_told().collect();
        assert_eq!(told.len(), 3);
        assert!(found.since.is_some_and(|since| since <= told[0].at()), "{:?}", found.since);
        let (said, call) = attempt("log", told.into_iter().next_back().unwrap());
        assert_eq!(call.unwrap().path, PathBuf::from("/k/data"));
        assert!(said.text.ends_with("umount: /k/data: target is busy."), "{said:?}");
    }
}
