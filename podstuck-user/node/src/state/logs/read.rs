//! Reads kubelet's log, in the helper process.

use std::{
    collections::{HashSet, VecDeque},
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    NamedPod,
    attempts::{Attempts, Finding},
    complaints, container_log,
    deletions::{Current, Deletions, Name},
    entries,
    framing::Framing,
    klog::{self, Entry, Failed},
    klog_end,
    klog_pod::{self, OfPods},
    klog_runtime,
    lines::Lines,
    mark::{Mark, News},
    peel::{Peeled, is_others, peeled},
    place::{self, Left},
    pod_ids::PodIds,
    stops::Stops,
    volume_steps::{Attached, VolumeSteps},
    zone,
};
use crate::{identity::on_host, state::traces};
use podstuck_confine::helper::{Budget, Question, Teller};
use podstuck_model::{
    degraded::Feed,
    identity::Component,
    said::{self, Complaint, Heard, NOT_ROOTS, NamedCall, Report, Said},
};

/// Complaints of the runtime that are reported, the last ones: a plugin that fails does so for every pod.
const OF_RUNTIME: usize = 1024;
/// Most pods that are reported.
const PODS: usize = 4096;
/// Most containers whose pods are passed on to the next read.
const CONTAINERS: usize = 2048;
/// Longest entry, in bytes.
const LONGEST: usize = 16 << 10;

/// Reads the log of a kubelet.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) struct ReadLog {
    pub(super) host_root: PathBuf,
    /// Its process; 0 for a kubelet that does not run, whose log is `left`.
    pub(super) pid: u32,
    pub(super) left: Option<Left>,
    pub(super) now: Timestamp,
    /// Where the last read ended.
    pub(super) after: Option<Box<Open>>,
}

/// The state that the next read of a log continues with.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::state) struct Open {
    mark: Option<Mark>,
    /// Whether there was an entry.
    has_begun: bool,
    /// The last entry, which may continue.
    entry: String,
    framing: Framing,
    deletions: Vec<(Name, Current)>,
    /// Ids of containers, and the UID of their pod.
    ids: Vec<(String, String)>,
    attached: Vec<Attached>,
    /// All lines that this process has written.
    lines: Lines,
}

impl Open {
    /// Since when an entry that is not in the log was not written, if that is new; `now` for a log that is not understood.
    fn tells_all_since(&self, since: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
        if self.lines.prove_silence() { since } else { Some(now) }
    }
}

/// A part of the answer.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) enum Part {
    /// Where the next read continues.
    Next(Box<Open>),
    Pods(Vec<NamedPod>),
    /// Ids of containers and sandboxes, and the UID of their pod.
    Containers(Vec<(String, String)>),
    /// Reports, each with the call that it names.
    Attempts(Vec<(Said, Option<NamedCall>)>),
    /// The period that the log covers.
    Heard(Heard),
    /// Where the log is when the process has ended.
    Left(Left),
    /// How many of the new lines were understood.
    Lines(Lines),
}

impl Question for ReadLog {
    const BUDGET: Budget = Budget::Logs;
    const FEEDS: Option<Feed> = Some(Feed::Logs);
    /// The log that it reads.
    type Step = OsString;
    type Part = Part;
    /// The log's name.
    type Answer = String;

    fn place(&self) -> OsString {
        format!("the log of pid {}", self.pid).into()
    }

    fn answer(self, tell: &mut Teller<OsString, Part>) -> Result<String> {
        let mut at = |log: &Path| tell.at(&log.into());
        let (place, whose) = match &self.left {
            None => {
                let place = place::of_process(&self.host_root, self.pid, at)?;
                zone::follow(&process(&self.host_root, self.pid));
                (place, format!("log of kubelet (pid {})", self.pid))
            }
            Some(left) => {
                if let Left::File(log) = left {
                    place::lives(log, &mut at)?;
                }
                (place::of_left(&self.host_root, left)?, "log of kubelet".to_owned())
            }
        };
        let (name, source) = (OsString::from(&place.name), format!("{whose}, {}", place.name));
        if let Some(left) = place.left() {
            tell.part(&Part::Left(left))?;
        }
        let before = self.after.map(|open| *open);
        let news = place.news(before.as_ref().and_then(|open| open.mark.as_ref()), tell)?;
        let own = within(&self.host_root, self.pid);
        let (mut found, next) = go_on(news, before, own, self.now, tell.going_on(name))?;
        let logs = on_host(&self.host_root, Path::new("/var/log/pods"));
        for (namespace, name) in found.deletions.unnamed() {
            tell.at(&logs.clone().into())?;
            if let Some(uid) = container_log::only_pod(&logs, &namespace, &name) {
                found.deletions.named(&namespace, &name, &uid);
            }
        }
        tell.part(&Part::Pods(std::mem::take(&mut found.pods).into_iter().collect()))?;
        let named = found.of_pods.containers().chain(found.stops.containers());
        let unknown = found.ids.unknown(named);
        if !unknown.is_empty() {
            found.ids.extend(traces::pods_of(&self.host_root, self.pid, &unknown));
        }
        let Found { lines, names_steps, .. } = found;
        let since = found.complete_since();
        let (attempts, ids) = found.into_findings();
        tell.part(&Part::Containers(ids.into_known()))?;
        // A log that others than root can write proves no call, and its silence proves nothing.
        let is_roots = !source.contains(NOT_ROOTS);
        tell.part(&Part::Lines(lines))?;
        let attempts = attempts.into_iter().map(|entry| {
            let (said, call) = attempt(&source, entry);
            (said, call.filter(|_| is_roots))
        });
        tell.part(&Part::Attempts(attempts.collect()))?;
        let since = next.tells_all_since(since, self.now);
        // A kubelet that does not run logs nothing, whatever happens.
        if let Some(since) = since.filter(|_| is_roots && self.left.is_none()) {
            let (source, until) = (source.clone(), self.now);
            tell.part(&Part::Heard(Heard { source, since, until, names_steps }))?;
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
    of_runtime: VecDeque<(Finding, bool)>,
    of_pods: OfPods,
    deletions: Deletions,
    steps: VolumeSteps,
    stops: Stops,
    /// It has entries about kubelet's steps.
    names_steps: bool,
    /// The time of the first entry after the beginning, or after a gap.
    since: Option<Timestamp>,
    /// The last entry, which may continue.
    entry: String,
    framing: Framing,
    lines: Lines,
    /// When systemd started the service again, and how often it has.
    restarts: Option<(Timestamp, u64)>,
}

fn attempt(source: &str, (finding, is_proven): (Finding, bool)) -> (Said, Option<NamedCall>) {
    let source = &if is_proven { source.to_owned() } else { said::unproven(source) };
    let said = |uid: &str, at, text: &str| super::said(Component::Kubelet, source, uid, at, text);
    match finding {
        Finding::Failed(Failed { uid, volume, at, retry, error }) => {
            let complaint = klog::complaint(&error);
            let volume = klog::shown(&volume);
            let looked = klog::named_look(&error);
            let said = Said { volume, retry, complaint, looked, ..said(&uid, at, &error) };
            // A call is reported only if the framing proves the entry.
            (said, klog::named_call(&error).filter(|_| is_proven))
        }
        Finding::Reported { uid, volume, at, report } => {
            let text = klog::words(report);
            let (report, volume) = (Some(report), klog::shown(&volume));
            (Said { report, volume, ..said(&uid, at, text) }, None)
        }
        Finding::Killing { uid, at, grace_s } => {
            let mut text = klog::words(Report::Killing).to_owned();
            if let Some(grace_s) = grace_s {
                text.push_str(&said::with_grace(grace_s));
            }
            (Said { report: Some(Report::Killing), ..said(&uid, at, &text) }, None)
        }
        Finding::StartedAgain { at, times } => {
            let report = Some(Report::StartedAgain);
            (Said { report, times, ..said("", at, klog::words(Report::StartedAgain)) }, None)
        }
        Finding::OfRuntime { uid, at, error, is_list } => {
            let known = complaints::of_runtime(&error);
            let fails = is_list && said::answered(&error).is_some();
            let complaint = known.or_else(|| fails.then_some(Complaint::ListFails));
            (Said { complaint, ..said(&uid, at, klog::cut(&error)) }, None)
        }
        Finding::OfPod { uid, known, at, error, times, level } => {
            // The only word about a container of which no process, control group or mount is left.
            let is_lost = || complaints::of_runtime(&error) == Some(Complaint::StateLost);
            let complaint = known.or_else(|| is_lost().then_some(Complaint::StateLost));
            let looked = klog::named_look(&error);
            (Said { times, level, complaint, looked, ..said(&uid, at, &error) }, None)
        }
    }
}

/// The id of a process in its own PID namespace.
pub(super) fn within(host_root: &Path, pid: u32) -> u32 {
    let status = process(host_root, pid).join("status");
    let status = fs::read_to_string(status).unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    ids.and_then(|ids| ids.split_whitespace().next_back()?.parse().ok()).unwrap_or(pid)
}

fn process(host_root: &Path, pid: u32) -> PathBuf {
    on_host(host_root, Path::new("/proc")).join(pid.to_string())
}

/// The findings in `news`, and the state for the next read. `own` is the id of the process that writes the log, in its
/// PID namespace. `alive` is called at each line: on a busy machine, parsing a long log takes seconds.
fn go_on(
    news: News,
    before: Option<Open>,
    own: u32,
    now: Timestamp,
    alive: impl FnMut() -> Result<()>,
) -> Result<(Found, Open)> {
    let (is_first, is_quiet) = (before.is_none(), news.text.is_empty());
    let Open { entry, framing, deletions, ids, attached, has_begun, lines, .. } =
        before.unwrap_or_default();
    let lines = if framing.own() == own { lines } else { Lines::default() };
    let framing = framing.of(own);
    let (deletions, ids) = (Deletions::after(deletions), PodIds::new(ids));
    let steps = VolumeSteps::after(attached);
    let mut found = Found { entry, framing, deletions, ids, steps, ..Found::default() };
    if news.is_cut {
        found.end(now);
        found.deletions.interrupted();
    }
    found.read(&news.text, now, alive)?;
    // The rest of an entry is written with its beginning, or a moment later.
    if is_first || is_quiet {
        found.end(now);
    }
    let (entry, framing) = (found.entry.clone(), found.framing.clone());
    let (mark, deletions) = (news.next, found.deletions.known());
    let (has_begun_now, lines) = (has_begun || found.since.is_some(), lines.and(found.lines));
    let ids = found.ids.some(CONTAINERS);
    let attached = found.steps.known();
    let next =
        Open { mark, has_begun: has_begun_now, entry, framing, deletions, ids, attached, lines };
    found.since = found.since.filter(|_| !has_begun || news.is_cut);
    Ok((found, next))
}

impl Found {
    /// The time from which on no finding is missing.
    fn complete_since(&self) -> Option<Timestamp> {
        self.since.max(self.attempts.forgotten()).max(self.stops.missing(&self.ids))
    }

    /// All findings, each with whether it is proven that kubelet wrote it.
    fn into_findings(self) -> (Vec<(Finding, bool)>, PodIds) {
        let Self { ids, attempts, of_runtime, of_pods, deletions, stops, restarts, .. } = self;
        let of_pods = of_pods.into_findings(&deletions, &ids);
        let stops = stops.into_findings(&ids).map(|stop| (stop, true));
        let reported = |report| {
            move |(uid, at)| (Finding::Reported { uid, volume: String::new(), at, report }, true)
        };
        let added = deletions.added().into_iter().map(reported(Report::Added));
        let deletions = deletions.into_found().into_iter().map(reported(Report::ToGo));
        let started = |(at, times)| (Finding::StartedAgain { at, times }, true);
        let stops = stops.chain(restarts.map(started));
        let all = attempts.into_findings().chain(stops).chain(of_runtime).chain(of_pods);
        (all.chain(added).chain(deletions).collect(), ids)
    }

    /// Parses a text, up to its last entry.
    fn read(
        &mut self,
        text: &[u8],
        now: Timestamp,
        mut alive: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let lines: Vec<Peeled<'_>> = peeled(text, self.framing.own()).collect();
        self.framing.learn(&lines);
        // The first line may be cut, and a log may contain anything.
        for line in &lines {
            alive()?;
            // An entry of another program, or of another part of the same program.
            let is_entry =
                || entries::Entry::read(&line.text).is_some_and(|entry| entry.has_level());
            if line.text.is_empty() {
                continue;
            }
            if is_others(line, Component::Kubelet) {
                self.hear_systemd(line);
                self.lines.note(false);
                continue;
            }
            if !line.is_json && is_entry() {
                self.hear_end_of_all(line);
                self.lines.note(true);
                continue;
            }
            if let (Some(why), Some(at)) = (klog_end::of_command(&line.text), line.at) {
                self.of_pods.of_all(Complaint::KubeletEnds, why, at, false);
            }
            if let Some(is_proven) = self.framing.begins(line, now) {
                self.since = self.since.or_else(|| klog::written(&line.text, now));
                self.take(is_proven, now);
            }
            let has_room = self.entry.len() + line.text.len() < LONGEST;
            self.lines.note(has_room && self.framing.has_open());
            if has_room {
                self.entry.push_str(&line.text);
                self.entry.push('\n');
            } else {
                self.deletions.interrupted();
            }
        }
        Ok(())
    }

    /// Takes how often systemd has started the service again.
    fn hear_systemd(&mut self, line: &Peeled<'_>) {
        if line.program.as_deref() == Some("systemd")
            && let (Some(at), Some(times)) = (line.at, klog_end::of_systemd(&line.text))
        {
            self.restarts = Some((at, times));
        }
    }

    /// Takes the error of a program that contains kubelet and ends with it (k3s and its like, pkg/daemons/executor).
    fn hear_end_of_all(&mut self, line: &Peeled<'_>) {
        if let Some((at, entry)) = entries::Entry::parse(&line.text)
            && entry.field("level") == "fatal"
        {
            self.of_pods.of_all(Complaint::KubeletEnds, entry.text(), at, false);
        }
    }

    /// Takes the last entry: it is complete.
    fn end(&mut self, now: Timestamp) {
        self.take(self.framing.ends(now), now);
    }

    fn take(&mut self, is_proven: bool, now: Timestamp) {
        let entry = std::mem::take(&mut self.entry);
        take(self, &entry, is_proven, now);
    }
}

/// Lines of the forms that an ordinary day has.
const USUAL: &str = "\
I0102 03:04:05.000001       7 kubelet.go:2442] \"SyncLoop ADD\" source=\"api\" pods=[\"a/b\"]
I0102 03:04:05.000002       7 kubelet.go:2457] \"SyncLoop DELETE\" source=\"api\" pods=[\"a/b\"]
I0102 03:04:05.000003       7 kubelet.go:2479] \"SyncLoop (PLEG): event for pod\" pod=\"a/b\" event={}
I0102 03:04:05.000004       7 kuberuntime_container.go:808] \"Killing container with a grace period\" pod=\"a/b\"
I0102 03:04:05.000005       7 operation_generator.go:803] UnmountVolume.TearDown succeeded for volume \"c\"
W0102 03:04:05.000006       7 watcher.go:93] Error while processing event
E0102 03:04:05.000007       7 pod_workers.go:1301] \"Error syncing pod, skipping\" err=\"d\" pod=\"a/b\"
E0102 03:04:05.000008       7 nestedpendingoperations.go:348] Operation for \"{volumeName:c}\" failed. Error: d
";

/// Makes the patterns that these lines are compared with.
pub(super) fn prepare() {
    let open = Open { framing: Framing::default().of(7), ..Open::default() };
    let news = News { text: USUAL.into(), ..News::default() };
    let now = Timestamp::now();
    if let Ok((mut found, _)) = go_on(news, Some(open), 7, now, || Ok(())) {
        found.end(now);
        drop(found.into_findings());
    }
}

/// The findings in a text that the process `own` writes.
#[cfg(any(test, feature = "captures"))]
#[allow(clippy::unwrap_used, reason = "only tests call it")]
fn search(text: &[u8], own: u32, now: Timestamp) -> Found {
    let mut found = Found { framing: Framing::default().of(own), ..Found::default() };
    found.read(text, now, || Ok(())).unwrap();
    found.end(now);
    found
}

/// A log, read whole.
#[cfg(any(test, feature = "captures"))]
pub(super) struct Captured {
    pub(super) pods: Vec<NamedPod>,
    pub(super) findings: Vec<(Said, Option<NamedCall>)>,
    pub(super) ids: PodIds,
}

/// Reads a text as a whole log.
#[cfg(any(test, feature = "captures"))]
pub(super) fn captured(text: &[u8], now: Timestamp) -> Captured {
    captured_of(search(text, last_writer(text).unwrap_or_default(), now))
}

/// Reads a text that continues an earlier one.
#[cfg(any(test, feature = "captures"))]
#[allow(clippy::unwrap_used, reason = "only tests call it")]
pub(super) fn captured_next(text: &[u8], open: Open, now: Timestamp) -> (Captured, Open) {
    let news = News { text: text.into(), ..News::default() };
    let own = last_writer(text).unwrap_or(open.framing.own());
    let (found, next) = go_on(news, Some(open), own, now, || Ok(())).unwrap();
    (captured_of(found), next)
}

/// The process that wrote the last entry.
#[cfg(any(test, feature = "captures"))]
fn last_writer(text: &[u8]) -> Option<u32> {
    peeled(text, 0).filter_map(|line| klog::writer(line.text.as_bytes())).last()
}

#[cfg(any(test, feature = "captures"))]
fn captured_of(found: Found) -> Captured {
    let pods = found.pods.iter().cloned().collect();
    let (findings, ids) = found.into_findings();
    let findings = findings.into_iter().map(|finding| attempt("log", finding)).collect();
    Captured { pods, findings, ids }
}

/// Takes an entry. From one that is not proven, only findings that are marked as such: pods' names, containers' pods,
/// deletions and ends would enter other verdicts without that mark.
fn take(found: &mut Found, entry: &str, is_proven: bool, now: Timestamp) {
    let entry = entry.trim_end();
    let Some(message) = klog::message(entry) else { return };
    if let Some((uid, volume, report)) = found.steps.listen(message, is_proven)
        && let Some(at) = klog::written(entry, now)
    {
        found.attempts.push(Finding::Reported { uid, volume, at, report }, true);
    }
    if is_proven {
        found.ids.listen_to_kubelet(message);
        found.deletions.listen(message, || klog::written(entry, now));
        found.stops.listen(message, || klog::written(entry, now));
        // From 1.21 on, and before. Like a stop, at `--v=2`.
        found.names_steps |= ["\"SyncLoop ", "SyncLoop ("].iter().any(|it| message.starts_with(it));
        if let Some((uid, grace_s)) = PodIds::killing(message)
            && let Some(at) = klog::written(entry, now)
        {
            found.attempts.push(Finding::Killing { uid, at, grace_s }, true);
        }
    } else if message.contains("SyncLoop") {
        // It may be true: no name belongs to a certain pod any more.
        found.deletions.interrupted();
    }
    let finding = match klog::parse(entry, now) {
        Some(Entry::Named { .. } | Entry::Done { report: Report::ContainerEnded, .. })
            if !is_proven =>
        {
            None
        }
        Some(Entry::Named { namespace, name, uid, ended }) => {
            let ended = ended.map(|at| {
                let (uid, volume) = (uid.clone(), String::new());
                Finding::Reported { uid, volume, at, report: Report::ContainerEnded }
            });
            found.deletions.named(&namespace, &name, &uid);
            hear(found, entry, message, is_proven, now);
            if found.pods.len() < PODS {
                found.pods.insert(NamedPod { namespace, name, uid });
            }
            ended
        }
        Some(Entry::Failed(failed)) => {
            if failed.uid.is_empty() {
                for complaint in klog_pod::of_device(&failed.error) {
                    found.of_pods.push(complaint, failed.at, is_proven, &mut found.deletions);
                }
            }
            Some(Finding::Failed(failed))
        }
        Some(Entry::Done { uid, volume, at, report }) => {
            Some(Finding::Reported { uid, volume, at, report })
        }
        None => {
            // Most entries are neither.
            if let Some((uid, error, is_list)) = klog_runtime::of_runtime(message) {
                let Some(at) = klog::written(entry, now) else { return };
                if found.of_runtime.len() >= OF_RUNTIME {
                    found.of_runtime.pop_front();
                }
                found
                    .of_runtime
                    .push_back((Finding::OfRuntime { uid, at, error, is_list }, is_proven));
            } else {
                hear(found, entry, message, is_proven, now);
            }
            return;
        }
    };
    if let Some(finding) = finding {
        found.attempts.push(finding, is_proven);
    }
}

/// Takes the complaint of an entry, whatever its text.
fn hear(found: &mut Found, entry: &str, message: &str, is_proven: bool, now: Timestamp) {
    let Some(severity) = entry.bytes().next() else { return };
    let of_watch = || Some((Complaint::WatchFails, klog_pod::of_watch(severity, message)?));
    let of_end = || Some((Complaint::KubeletEnds, klog_end::of_end(severity, message)?));
    if let Some((what, why)) = of_watch().or_else(of_end) {
        if let Some(at) = klog::written(entry, now) {
            found.of_pods.of_all(what, why, at, is_proven);
        }
    } else if let Some(complaint) = klog_pod::complaint(severity, message)
        && let Some(at) = klog::written(entry, now)
    {
        found.of_pods.push(complaint, at, is_proven, &mut found.deletions);
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
