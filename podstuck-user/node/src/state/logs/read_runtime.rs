//! Reads a runtime's log, in the helper process.

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
    complaints,
    entries::Entry,
    klog,
    lines::Lines,
    mark::Mark,
    peel::{is_others, peel},
    place,
    pod_ids::PodIds,
    runtime::{self, Named},
};
use crate::state::traces;
use podstuck_confine::helper::{Budget, Question, Teller};
use podstuck_model::{
    bounded::Bounded,
    degraded::Feed,
    identity::Component,
    said::{Report, Said, template},
};

/// Reports that are passed on, and complaints: the last ones of each.
const MOST: usize = 2048;
/// Kinds of complaints with unknown text, by container or pod, and the bytes kept of each.
const KINDS: usize = 1024;
const KEPT: usize = 1024;
/// Longest line that is read, in bytes.
const LONGEST: usize = 64 << 10;

/// Reads the log of containerd, dockerd or CRI-O.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) struct ReadRuntimeLog {
    pub(super) host_root: PathBuf,
    pub(super) pid: u32,
    pub(super) component: Component,
    /// Known ids of containers and sandboxes, and the UID of their pod.
    pub(super) known: Vec<(String, String)>,
    /// Where the last read ended.
    pub(super) after: Option<Mark>,
}

/// The findings in a runtime's log.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::state) struct RuntimeSaid {
    /// Name of the log, which two daemons may share.
    pub(super) place: String,
    pub(super) said: Vec<Said>,
    /// Ids that it names, and the UID of their pod.
    pub(super) ids: Vec<(String, String)>,
    /// Where the next read continues.
    pub(super) next: Option<Mark>,
    /// How many of the new lines were understood.
    pub(super) lines: Lines,
}

impl Question for ReadRuntimeLog {
    const BUDGET: Budget = Budget::Logs;
    const FEEDS: Option<Feed> = Some(Feed::Logs);
    /// The log that it reads.
    type Step = OsString;
    type Part = RuntimeSaid;
    /// The log's name, with its component.
    type Answer = String;

    fn place(&self) -> OsString {
        format!("the log of pid {}", self.pid).into()
    }

    fn answer(self, tell: &mut Teller<OsString, RuntimeSaid>) -> Result<String> {
        let place = place::of_process(&self.host_root, self.pid, |log| tell.at(&log.into()))?;
        let source = super::source(self.component, self.pid, &place.name);
        let name = place.name.clone();
        let news = place.news(self.after.as_ref(), tell)?;
        let before: HashSet<String> = self.known.iter().map(|(id, _)| id.clone()).collect();
        let text = tell.reading(OsString::from(&name), &*news.text);
        let (found, mut ids, lines) = search(text, self.component, PodIds::new(self.known))?;
        let named = found.iter().flat_map(OfOne::ids);
        let unknown = ids.unknown(named);
        if !unknown.is_empty() {
            ids.extend(traces::pods_of(&self.host_root, self.pid, &unknown));
        }
        let said = found
            .into_iter()
            .filter_map(|complaint| complaint.said(&ids, self.component, &source))
            .collect();
        let mut ids = ids.into_known();
        ids.retain(|(id, _)| !before.contains(id));
        tell.part(&RuntimeSaid { place: name, said, ids, next: news.next, lines })?;
        Ok(source)
    }
}

/// An entry with a complaint or a report about a container, a sandbox or a pod.
struct OfOne {
    named: Named,
    /// The container or sandbox that its error names.
    beside: Option<String>,
    at: Timestamp,
    report: Option<Report>,
    text: String,
    /// Number of lines of this kind.
    times: u64,
    /// Whether it is named where only the runtime itself writes names.
    is_named: bool,
}

impl OfOne {
    /// Ids of the containers and sandboxes that it names.
    fn ids(&self) -> impl Iterator<Item = &str> {
        let id = match &self.named {
            Named::Id(id) => Some(id.as_str()),
            Named::Pod(_) => None,
        };
        id.into_iter().chain(self.beside.as_deref())
    }

    /// The report; `None` where the pod is not known.
    fn said(self, ids: &PodIds, component: Component, source: &str) -> Option<Said> {
        let uid = match &self.named {
            Named::Pod(uid) => uid.clone(),
            Named::Id(_) => self.ids().find_map(|id| ids.pod(id))?.to_owned(),
        };
        let report = self.report;
        let complaint = complaints::of_itself(&self.text);
        let complaint = complaint.filter(|_| report.is_none() && self.is_named);
        let said = super::said(component, source, &uid, self.at, klog::cut(&self.text));
        Some(Said { complaint, report, times: self.times, ..said })
    }
}

/// The last reports and complaints, the pods of containers and sandboxes, and how much was understood.
fn search(
    text: impl Read,
    component: Component,
    mut ids: PodIds,
) -> Result<(VecDeque<OfOne>, PodIds, Lines)> {
    // Kept apart: the reports of many healthy pods must not displace complaints.
    let (mut reports, mut complaints) = (VecDeque::new(), VecDeque::new());
    let (mut lines, mut unknown) = (Lines::default(), Bounded::<_, _, KINDS>::default());
    // The first line may be cut, and a log may contain anything.
    for line in BufReader::new(text).split(b'\n') {
        let line = line?;
        if line.len() > LONGEST {
            continue;
        }
        let line = peel(String::from_utf8_lossy(&line), 0);
        if is_others(&line, component) {
            lines.note(false);
            continue;
        }
        let entry = Entry::parse(&line.text);
        if !line.text.is_empty() {
            lines.note(entry.is_some());
        }
        let Some((at, entry)) = entry else { continue };
        ids.listen_to_containerd(entry.field("msg"));
        // The end of a shim is logged as a warning without an error, at the end of every container. CRI-O has no field for
        // errors.
        let reported = runtime::reported(&entry);
        let is_usual = entry.is_warning()
            && entry.field("error").is_empty()
            && complaints::of_itself(&entry.text()).is_none();
        // dockerd says this as news.
        let stays = entry.field("msg").contains(" failed to exit within ");
        let complains = stays || entry.complains() && !is_usual;
        let of_complaint = || complains.then(|| runtime::named(&entry)).flatten();
        let (named, report) = match reported {
            Some((named, report)) => (named, Some(report)),
            None => match of_complaint() {
                Some(named) => (named, None),
                None => {
                    if entry.complains()
                        && let Some(named) = runtime::mentioned(&entry)
                    {
                        let text = entry.text();
                        let text = text.get(..text.floor_char_boundary(KEPT)).unwrap_or_default();
                        let kind: (Named, String) = (named, template(text));
                        let one = unknown.or_insert_with(kind, || (at, String::new(), 0));
                        *one = (at, text.to_owned(), one.2 + 1);
                    }
                    continue;
                }
            },
        };
        let room = if report.is_some() { &mut reports } else { &mut complaints };
        if room.len() >= MOST {
            room.pop_front();
        }
        let text = match (&named, report) {
            (Named::Id(id), Some(Report::TaskDeleted)) => format!("{}: {id}", entry.text()),
            _ => entry.text(),
        };
        let beside = if report.is_none() { runtime::named_beside(&entry) } else { None };
        room.push_back(OfOne { named, beside, at, report, text, times: 1, is_named: true });
    }
    reports.append(&mut complaints);
    reports.extend(unknown.iter().map(|((named, _), (at, text, times))| {
        let (named, at, text, times) = (named.clone(), *at, text.clone(), *times);
        OfOne { named, beside: None, at, report: None, text, times, is_named: false }
    }));
    Ok((reports, ids, lines))
}

/// The reports in a text that continues an earlier one. `known` keeps ids and UIDs between the reads.
#[cfg(any(test, feature = "captures"))]
#[allow(clippy::unwrap_used, reason = "only tests call it")]
pub(super) fn said_next(text: &[u8], known: &mut Vec<(String, String)>) -> Vec<Said> {
    let (found, ids, _) =
        search(text, Component::Containerd, PodIds::new(std::mem::take(known))).unwrap();
    let said = found.into_iter().filter_map(|one| one.said(&ids, Component::Containerd, "log"));
    let said = said.collect();
    *known = ids.into_known();
    said
}

/// The reports about pods in a text of containerd's.
#[cfg(any(test, feature = "captures"))]
#[allow(clippy::unwrap_used, reason = "only tests call it")]
pub(super) fn said_in(text: &[u8], known: PodIds) -> Vec<Said> {
    let (found, ids, _) = search(text, Component::Containerd, known).unwrap();
    found.into_iter().filter_map(|one| one.said(&ids, Component::Containerd, "log")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use podstuck_model::said::Complaint;

    const UID: &str = "0f0e0d0c-1111-4222-8333-444455556666";

    #[test]
    fn fuzz_runtime_log() {
        podstuck_fuzz::fuzz("runtime_log", |input| {
            let (found, ids, _) = search(input, Component::Containerd, PodIds::default()).unwrap();
            let said = found.into_iter().map(|one| one.said(&ids, Component::Containerd, "log"));
            let _ = said.count();
        });
    }

    /// As in deckhouse's issue 336 and containerd's 5708.
    #[test]
    fn dockerd_says_as_news_that_a_container_does_not_end() {
        let id = "a".repeat(64);
        for line in [
            format!(
                "msg=\"Container {id} failed to exit within 30 seconds of signal 15 - using the force\""
            ),
            format!(
                "msg=\"Container failed to exit within 30s of signal 15 - using the force\" container={id}"
            ),
        ] {
            let log = format!("time=\"2026-01-01T00:00:01Z\" level=info {line}\n").repeat(2);
            let known = PodIds::new(vec![(id.clone(), UID.to_owned())]);
            let said = said_in(log.as_bytes(), known);
            assert_eq!(said.len(), 2, "{line}");
            assert_eq!(said[0].complaint, Some(Complaint::ContainerStays), "{line}");
        }
    }

    /// urunc#716.
    #[test]
    fn an_end_that_containerd_cannot_finish_is_the_pods_whose_container_it_is() {
        let id = "a".repeat(64);
        let log = format!(
            "time=\"2026-01-01T00:00:01Z\" level=error msg=\"Failed to handle backOff event \
             &TaskExit{{ContainerID:{id},ID:{id},Pid:312,ExitStatus:137,}} for {id}\" error=\"failed to handle container \
             TaskExit event: failed to stop container: unknown error after kill: /usr/bin/urunc did not terminate \
             successfully: exit status 1: flag provided but not defined: -all\"\n"
        );
        let said = said_in(log.as_bytes(), PodIds::new(vec![(id, UID.to_owned())]));
        assert_eq!(said[0].complaint, Some(Complaint::StateLost));
    }

    /// As recorded with containerd 1.6 and cited in cilium's and calico's issues.
    #[test]
    fn a_complaint_is_the_pods_whose_container_it_names() {
        let (sandbox, container, other) = ("a".repeat(64), "b".repeat(64), "c".repeat(64));
        let log = format!(
            "half of a line\n\u{fffd}\n\
             time=\"2026-01-01T00:00:01Z\" level=info msg=\"RunPodSandbox for &PodSandboxMetadata{{Name:web,\
             Uid:{UID},Namespace:shop,Attempt:0,}} returns sandbox id \\\"{sandbox}\\\"\"\n\
             time=\"2026-01-01T00:00:02Z\" level=info msg=\"CreateContainer within sandbox \
             \\\"{sandbox}\\\" for &ContainerMetadata{{Name:main,Attempt:0,}} returns container id \
             \\\"{container}\\\"\"\n\
             time=\"2026-01-01T00:00:03Z\" level=warning msg=\"failed to cleanup rootfs mount\" \
             error=\"failed to unmount target /run/containerd/io.containerd.runtime.v2.task/k8s.io/{container}\
             /rootfs: device or resource busy\" runtime=io.containerd.runc.v2\n\
             time=\"2026-01-01T00:00:04Z\" level=error msg=\"StopPodSandbox for \\\"{sandbox}\\\" failed\" \
             error=\"failed to destroy network for sandbox \\\"{sandbox}\\\": plugin \x1b[2J\"\n\
             time=\"2026-01-01T00:00:05Z\" level=error msg=\"StopPodSandbox for \\\"{other}\\\" failed\"\n\
             time=\"2026-01-01T00:00:06Z\" level=info msg=\"StopPodSandbox for \\\"{sandbox}\\\" failed\"\n\
             time=\"2026-01-01T00:00:07Z\" level=warning msg=\"cleaning up after shim disconnected\" \
             id={container} namespace=k8s.io\n"
        );
        assert_eq!(
            search(log.as_bytes(), Component::Containerd, PodIds::default()).unwrap().0.len(),
            3
        );
        let said = said_in(log.as_bytes(), PodIds::default());
        let complaints: Vec<_> = said.iter().map(|said| said.complaint).collect();
        assert_eq!(complaints, [Complaint::RootfsBusy, Complaint::NetworkTeardown].map(Some));
        assert!(said.iter().all(|said| said.uid == UID && said.volume.is_empty()), "{said:?}");
        assert_eq!(said[1].at.to_string(), "2026-01-01T00:00:04Z");
        assert!(said[1].text.ends_with(r"plugin \x1b[2J"), "{}", said[1].text);
    }

    /// As in containerd's issue 4016: the log has no entry about the sandbox, which has ended.
    #[test]
    fn a_complaint_of_a_sandbox_that_is_not_known_is_the_pods_whose_container_it_names() {
        let (sandbox, container) = ("a".repeat(64), "b".repeat(64));
        let log = format!(
            "time=\"2026-01-01T00:00:04Z\" level=error msg=\"StopPodSandbox for \\\"{sandbox}\\\" failed\" \
             error=\"failed to stop container \\\"{container}\\\": failed to kill container \\\"{container}\\\": \
             unknown error after kill: runc did not terminate sucessfully: container \\\"{container}\\\" does not \
             exist: unknown\"\n"
        );
        let known = |id: &str| PodIds::new(vec![(id.to_owned(), UID.to_owned())]);
        for id in [&sandbox, &container] {
            let said = said_in(log.as_bytes(), known(id));
            assert_eq!(said.len(), 1, "{said:?}");
            assert_eq!((&*said[0].uid, said[0].complaint), (UID, Some(Complaint::StateLost)));
        }
        assert!(said_in(log.as_bytes(), known(&"c".repeat(64))).is_empty());
    }

    /// As in containerd's issue 13416, cri-o's 1883 and microk8s' 651; containerd's JSON as its documentation has it.
    #[test]
    fn every_form_gives_the_same_report() {
        let id = "c6".repeat(32);
        let error = format!(
            "rpc error: code = DeadlineExceeded desc = failed to stop container \\\"{id}\\\": x"
        );
        let text = format!(
            "time=\"2026-06-03T13:04:42.821981024+08:00\" level=error msg=\"StopPodSandbox for \\\"{id}\\\" failed\" \
             error=\"{error}\""
        );
        let json = format!(
            "{{\"error\":\"{error}\",\"level\":\"error\",\"msg\":\"StopPodSandbox for \\\"{id}\\\" failed\",\
             \"time\":\"2026-06-03T13:04:42.821981024+08:00\"}}"
        );
        let forms = [
            text.clone(),
            format!("Jun 03 13:04:42 node1 containerd[2401369]: {text}"),
            format!("okt. 29 15:05:55 linux microk8s.daemon-containerd[147026]: {text}"),
            format!("2026-06-03T13:04:42.8Z stderr F {text}"),
            json.clone(),
            format!("Jun 03 13:04:42 node1 containerd[2401369]: {json}"),
            text.replace("2026-06-03T13:04:42.821981024+08:00", "2026-06-03 05:04:42.821981024Z"),
        ];
        let said = |log: &str| said_in(log.as_bytes(), PodIds::new(vec![(id.clone(), UID.into())]));
        let plain = said(&text);
        assert_eq!(
            (plain.len(), plain[0].at.to_string().as_str()),
            (1, "2026-06-03T05:04:42.821981024Z")
        );
        for form in forms {
            assert_eq!(said(&form), plain, "{form}");
        }
        let others = format!("Jun 03 13:04:42 node1 web[7]: {text}");
        assert!(said(&others).is_empty(), "another program's");
    }

    /// As containerd 1.6 and 2.4 have written them.
    #[test]
    fn kills_and_stops_are_reports_and_an_image_volume_that_is_held_a_complaint() {
        let (sandbox, container) = ("a".repeat(64), "b".repeat(64));
        let image = format!(
            "/run/containerd/io.containerd.grpc.v1.cri/image-volumes/{sandbox}/{container}"
        );
        let log = format!(
            "time=\"2026-01-01T00:00:01Z\" level=info msg=\"RunPodSandbox for name:\\\"web\\\"  uid:\\\"{UID}\\\"  \
             namespace:\\\"shop\\\" returns sandbox id \\\"{sandbox}\\\"\"\n\
             time=\"2026-01-01T00:00:02Z\" level=info msg=\"CreateContainer within sandbox \\\"{sandbox}\\\" for \
             name:\\\"main\\\" returns container id \\\"{container}\\\"\"\n\
             time=\"2026-01-01T00:00:03Z\" level=info msg=\"Kill container \\\"{container}\\\"\"\n\
             time=\"2026-01-01T00:00:04Z\" level=info msg=\"Kill container \\\"{container}\\\" and more\"\n\
             time=\"2026-01-01T00:00:04Z\" level=info msg=\"StopPodSandbox for \\\"{sandbox}\\\"\"\n\
             time=\"2026-01-01T00:00:05Z\" level=error msg=\"StopPodSandbox for \\\"{sandbox}\\\" failed\" \
             error=\"rpc error: code = Unknown desc = failed to cleanup image mounts for sandbox \\\"{sandbox}\\\": \
             failed to unmount image volume component \\\"{image}\\\": failed to unmount target {image}: device or \
             resource busy\"\n\
             time=\"2026-01-01T00:00:06Z\" level=info msg=\"StopPodSandbox for \\\"{sandbox}\\\" returns \
             successfully\"\n\
             time=\"2026-01-01T00:00:07Z\" level=info msg=\"Stopping pod sandbox: {sandbox}\"\n\
             time=\"2026-01-01T00:00:08Z\" level=info msg=\"Stopped pod sandbox: {sandbox}\"\n"
        );
        let said = said_in(log.as_bytes(), PodIds::default());
        let all: Vec<_> = said.iter().map(|it| (it.report, it.complaint)).collect();
        let busy = Some(Complaint::ImageVolumeBusy);
        let reports = [
            Report::Killed,
            Report::SandboxStops,
            Report::SandboxStopped,
            Report::SandboxStops,
            Report::SandboxStopped,
        ];
        let reports = reports.map(|report| (Some(report), None)).into_iter();
        assert_eq!(all, reports.chain([(None, busy)]).collect::<Vec<_>>());
        assert!(said.iter().all(|said| said.uid == UID), "{said:?}");
        assert!(said[0].text.contains(&container));
    }

    #[test]
    fn only_the_last_are_kept() {
        let id = "a".repeat(64);
        let line = format!("time=2026-01-01T00:00:04Z level=error msg=x id={id}\n");
        let known = PodIds::new(vec![(id, UID.into())]);
        let text = line.repeat(MOST + 5);
        let (found, ids, _) = search(text.as_bytes(), Component::Containerd, known).unwrap();
        assert_eq!(found.len(), MOST);
        assert_eq!(ids.pod(&"a".repeat(64)), Some(UID));
    }
}
