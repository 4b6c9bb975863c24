//! The answer of a run about one question.

use std::{collections::BTreeSet, ffi::OsStr, path::PathBuf, time::Duration};

use crate::{
    causes::{pod_record, shared::claim},
    chain::{Facts, chain, is_of_kubelet, weightiest},
    container_stage,
    engine::Engine,
    ids,
    model::{
        chain::Link,
        container::{ContainerProgress, ContainerStage},
        diagnosis::{Diagnosis, PodStage, Stage},
        evidence::Certainty,
        finding::{Finding, FindingState, Progress},
        identity::Pod,
        node::{NodeSample, PodState},
        path::{safe, safe_path},
        pod_record::PodRecord,
        remedy::Remedy,
        said::Said,
        time::Monotonic,
    },
    rank,
    release::releases,
    stage,
    where_next::{self, Known},
};

/// A better verdict may follow a firm one, from the same attempt or a pending query.
const SETTLED: Duration = Duration::from_secs(1);
/// The same if no scan of the node has confirmed it: scans may be slow or not complete.
const SETTLED_ALONE: Duration = Duration::from_secs(2);
/// A harmless finding may be followed by the blocking one: kubelet's first attempts are that far apart.
const SETTLED_HARMLESS: Duration = Duration::from_secs(8);
/// The estimate of a mass deletion requires a scan that takes seconds.
const SETTLED_COUNTED: Duration = Duration::from_secs(8);
/// A likely finding that watching does not improve may be followed by another cause: by slow checks, and by
/// kubelet's first attempts.
const SETTLED_LIKELY: Duration = Duration::from_secs(8);
/// A finding with the highest certainty that its cause can have may be followed by another cause: a server counts as
/// silent after this time, and what takes longer is a call that a longer run waits for.
const SETTLED_AT_MOST: Duration = Duration::from_secs(30);

impl Engine {
    /// Whether there is an answer that had the time to improve. A harmless finding is an answer only in a run about
    /// one target: a node always has some.
    pub fn is_firm(&self, now: Monotonic) -> bool {
        let lasts = |since, time| now.since(since) >= time;
        let is_settled = self.settled_since.is_some_and(|since| lasts(since, SETTLED_LIKELY))
            || self.at_most_since.is_some_and(|(_, since)| lasts(since, SETTLED_AT_MOST));
        // What is still being read may show another cause.
        let is_read = self.ledger.parts().iter().all(|part| !part.is_passing);
        if self.run.has_target() && is_settled && is_read {
            return true;
        }
        let Some(since) = self.firm_since else { return false };
        if self.ways_out.is_open(now) {
            return false;
        }
        let mut firm = self.ledger.all().filter(|finding| rank::is_firm(finding));
        if firm.any(|finding| finding.blocks_deletion == Some(true)) {
            let counts = self.progress(now).iter().any(|it| it.remaining_estimate.is_none());
            let scanned = self.sample.as_ref().is_some_and(|sample| sample.is_from_after(since));
            now.since(since)
                >= match (counts, scanned) {
                    (true, _) => SETTLED_COUNTED,
                    (false, true) => SETTLED,
                    (false, false) => SETTLED_ALONE,
                }
        } else {
            self.run.has_target() && now.since(since) >= SETTLED_HARMLESS
        }
    }

    /// The answer.
    pub fn diagnosis(&self) -> Diagnosis {
        let target = self.run.start.target.as_deref();
        let stages = self.stages();
        let said = self.said.of(stages.iter().map(|stage| stage.pod.uid.as_str()));
        let window = self.window().as_secs_f64();
        let is_left = stages.iter().any(|pod| pod.stage < Stage::Gone);
        // If only the record is left, the node may never have been scanned for it.
        let looked = |sample: &NodeSample| self.left_record().is_some() && sample.begun.is_some();
        let mut notes = match &self.sample {
            Some(sample) if is_left || !sample.unread.is_empty() || looked(sample) => {
                self.notes(sample)
            }
            Some(_) => Vec::new(),
            None => vec![
                "the node was not scanned: the scan has not finished. Whether anything of the pod is left, what is \
                 mounted, and whether kubelet runs is not known; a process or a file system that the scan reads \
                 does not answer"
                    .into(),
            ],
        };
        notes.extend(self.notes_on_target());
        let mut answer = rank::diagnosis(target, stages, said, window, self.ledger.all());
        for pod in &mut answer.stages {
            let (chain, remedies) = self.chain_and_releases(pod, &answer.causes);
            pod.follow(chain);
            answer.remedies = remedies;
        }
        for cause in &mut answer.causes {
            cause.chain = self.chain_of(cause, &answer.stages);
        }
        // Of several pods, none is in question.
        if answer.stages.len() > 1 || answer.firm {
            answer.remedies.clear();
        }
        let containers = self.containers();
        answer.gone = self.gone();
        if !answer.firm {
            answer.next = match &self.run.container {
                Some(it) if it.pod.is_none() => where_next::of_container(&containers),
                _ => {
                    let drivers = self.drivers(&answer.stages);
                    where_next::of_pods(&answer.stages, self.known(&answer, &drivers))
                }
            };
        }
        let cause = answer.causes.first().and_then(|cause| cause.pod.as_ref());
        let pod = self.run.pod.as_ref().or(cause);
        let terminating = pod.and_then(|pod| self.deletions.since(&pod.uid));
        let progress = self.progress(self.now);
        Diagnosis { containers, notes, terminating, progress, ..answer }
    }

    /// The chain of waits of a pod that was scanned.
    pub(super) fn chain(&self, pod: &PodStage, causes: &[Finding]) -> Vec<Link> {
        self.with_facts(pod, causes, |facts| chain(pod, facts)).unwrap_or_default()
    }

    /// The same, and what may release its last link.
    fn chain_and_releases(&self, pod: &PodStage, causes: &[Finding]) -> (Vec<Link>, Vec<Remedy>) {
        let both = |facts: &Facts<'_>| {
            let links = chain(pod, facts);
            let releases = releases(pod, &links, facts, self.run.own_mnt_ns);
            (links, releases)
        };
        let (links, releases) = self.with_facts(pod, causes, both).unwrap_or_default();
        let (of_pod, now) = (Some(&pod.pod), self.run.clock.at(self.now));
        let given =
            releases.into_iter().map(|it| self.ledger.given(it, Certainty::Possible, of_pod, now));
        (links, given.collect())
    }

    /// The chain of a finding's pod as if this finding alone held it; empty if it does not hold the pod.
    fn chain_of(&self, cause: &Finding, stages: &[PodStage]) -> Vec<Link> {
        let pod = match &cause.pod {
            Some(pod) => stages.iter().find(|at| at.pod.uid == pod.uid),
            None => stages.first().filter(|_| stages.len() == 1),
        };
        let holds = cause.blocks_deletion.unwrap_or(true);
        let Some(pod) = pod.filter(|_| holds) else { return Vec::new() };
        self.chain(pod, &[Finding { blocks_deletion: Some(true), ..cause.clone() }])
    }

    /// What is known of a pod; `None` before the first scan.
    fn with_facts<R>(
        &self,
        pod: &PodStage,
        causes: &[Finding],
        make: impl FnOnce(&Facts<'_>) -> R,
    ) -> Option<R> {
        let sample = self.sample.as_ref()?;
        let uid = pod.pod.uid.as_str();
        let terminating = self.deletions.since(uid);
        let since = terminating.as_ref().map(|it| it.since);
        let mut said = self.said.of(std::iter::once(uid));
        // Messages from before the deletion are about something else.
        said.retain(|said| Some(said.at) >= since);
        let record = self.record.as_ref().filter(|record| record.pod.uid == uid);
        let terminating = terminating.as_ref();
        let (waits, clock) = (&self.waits, &self.run.clock);
        let now = self.run.clock.at(self.now);
        let grace = Duration::from_secs(record.map_or(0, |record| record.grace_s));
        // Without the record, kubelet's log has the first line about the deletion that it received.
        let has_received = self.kubelet_steps.has_received(uid);
        let requested = since.filter(|_| record.is_some() || has_received);
        let not_asked = self.kubelet_steps.not_asked(uid, requested, grace, now);
        let has_acted = self.kubelet_steps.has_acted(uid, since);
        let stop_ends = self.kubelet_steps.stop_ends(uid).map(|(ends, _)| ends);
        let kill_at = stop_ends.or(record.and_then(|record| record.deletion));
        let is_missed = |cause: &&Finding| {
            let is_its = cause.pod.as_ref().is_none_or(|of| of.uid == uid);
            is_its && cause.id == ids::KUBELET_MISSED_DELETION
        };
        let missed = causes.iter().find(is_missed);
        let watch = missed.and_then(|_| self.kubelet_steps.watch(uid, now));
        let watch = watch.map(|watch| &watch.said);
        let said = &said[..];
        Some(make(&Facts {
            sample,
            said,
            terminating,
            record,
            causes,
            waits,
            clock,
            kill_at: kill_at.filter(|at| *at > now),
            not_asked,
            has_acted,
            watch,
        }))
    }

    /// The CSI drivers of the remaining volumes of these pods.
    fn drivers(&self, stages: &[PodStage]) -> Vec<String> {
        let pods = stages.iter().filter_map(|at| self.sample.as_ref()?.pod(&at.pod.uid));
        let of_pod = pods.flat_map(|pod| {
            let mounted = pod.volumes.iter().filter_map(|volume| Some(&volume.csi.as_ref()?.data));
            mounted.chain(pod.devices.iter().filter_map(|device| device.data.as_ref()))
        });
        let names: BTreeSet<String> = of_pod.map(|it| it.driver().unwrap_or_default()).collect();
        names.into_iter().collect()
    }

    /// What is already known.
    fn known<'a>(&'a self, answer: &'a Diagnosis, drivers: &'a [String]) -> Known<'a> {
        let pod = self.run.pod.as_ref();
        let is_of_pod = |record: &&PodRecord| pod.is_some_and(|pod| pod.uid == record.pod.uid);
        let is_read = self.record.iter().any(|record| is_of_pod(&record));
        Known {
            pod,
            drivers,
            // An API server that knows this node's pods, and not this one, has no record of it.
            is_record_read: is_read || pod.is_some() && self.api_answered(),
            api: self.run.start.api.as_deref(),
            complaint: {
                let known = answer.said.iter().rev().find(|said| said.complaint.is_some());
                let last = known.or_else(|| weightiest(answer.said.iter()));
                // The last link of the chain may already have the message.
                let ends = |said: &Said| {
                    let mut links = answer.stages.iter().filter_map(|pod| pod.chain.last());
                    links.any(|link| link.fact() == said.quote("it"))
                };
                last.filter(|said| !ends(said))
            },
            may_be_to_stay: self.may_be_to_stay(),
            has_gone: self.gone().is_some(),
            is_kubelets: {
                let mut holding =
                    answer.causes.iter().filter(|it| it.blocks_deletion == Some(true));
                holding.next().is_some_and(|cause| is_of_kubelet(cause.id))
            },
            is_exhausted: self.is_exhausted(self.now),
        }
    }

    /// The progress of mass deletions.
    pub(super) fn progress(&self, now: Monotonic) -> Vec<Progress> {
        self.trackers.iter().flat_map(|tracker| tracker.progress(now)).collect()
    }

    /// Notes on whether the deletion will be retried.
    fn notes(&self, sample: &NodeSample) -> Vec<String> {
        let mut notes = Vec::new();
        if sample.kubelets.is_empty() {
            notes.push(
                "no kubelet runs on this node: no component removes the pod until one does \
                 (`systemctl status kubelet`)"
                    .into(),
            );
        }
        notes.extend(sample.stopped.iter().map(|pid| {
            format!(
                "kubelet (pid {pid}) is stopped by a signal: it does nothing until it \
                 receives SIGCONT"
            )
        }));
        if !sample.silent.is_empty() {
            let pids: Vec<String> = sample.silent.iter().map(u32::to_string).collect();
            notes.push(format!(
                "the mounts of these processes are not known: pid {}. They hang in execve(2), and the kernel shows \
                 little of them until it returns",
                pids.join(", ")
            ));
        }
        notes.extend(sample.unread.iter().map(|root| {
            format!(
                "kubelet's directory {} cannot be read: which pods it contains is not known",
                safe_path(root)
            )
        }));
        notes.extend(self.nodes.iter().filter_map(|node| {
            let ready = node.ready.as_ref().filter(|ready| ready.status != "True")?;
            let since = ready.since.map(|since| format!(" since {since}")).unwrap_or_default();
            let [name, reason] = [&node.node, &ready.reason].map(|text| safe(text.as_bytes()));
            Some(format!(
                "the API server shows node {name} as not ready{since} ({reason}): while kubelet does not \
                 report, the pod's record stays, whatever is done on this node"
            ))
        }));
        notes.extend(self.record.iter().flat_map(|record| claim::notes(record, sample)));
        notes
    }

    /// The progress of the container in question.
    fn containers(&self) -> Vec<ContainerProgress> {
        let asked = self.run.container.iter().zip(&self.sample);
        asked.map(|(container, sample)| container_stage::stage(container, sample)).collect()
    }

    /// Whether the pod in question may still exist: it has a directory by the last scan, or a scan could not tell,
    /// or the API server has its record, which is being deleted. The same for a container, and for the pod in whose
    /// directory the path in question lies.
    pub fn target_may_be_left(&self) -> bool {
        if self.run.container.is_some() {
            return self.containers().iter().any(|it| it.stage != ContainerStage::Gone);
        }
        if let Some(directory) = &self.run.directory {
            let Some(sample) = &self.sample else { return true };
            let is_at = |root: &PathBuf| directory.starts_with(root);
            return sample.unread.iter().any(is_at) || self.pod_at_directory().is_some();
        }
        let Some(pod) = &self.run.pod else { return false };
        let Some(sample) = &self.sample else { return true };
        // The record of a pod that was gone before the first scan may still exist.
        let may_have_record =
            self.gone().is_none() && self.record.is_none() && !self.api_answered();
        sample.may_have_pod(&pod.uid) || self.left_record().is_some() || may_have_record
    }

    /// The record of the pod in question if nothing else is left: its `deletionTimestamp` has passed, and no scan
    /// has found a directory of the pod since it was read.
    fn left_record(&self) -> Option<&PodRecord> {
        let record = self.record.as_ref()?;
        let uid = &self.run.pod.as_ref()?.uid;
        let is_due = record.deletion.is_some_and(|by| by <= self.run.clock.at(self.now));
        let is_gone = self.sample.as_ref().is_some_and(|sample| !sample.may_have_pod(uid));
        (record.pod.uid == *uid && is_due && is_gone && !self.record_is_old).then_some(record)
    }

    /// The pod in whose directory the path in question lies, if it still exists.
    fn pod_at_directory(&self) -> Option<&PodState> {
        let names: Vec<&OsStr> = self.run.directory.as_ref()?.iter().collect();
        let is_in = |pod: &&PodState| {
            names.windows(2).any(|pair| pair[0] == "pods" && *pair[1] == *pod.uid)
        };
        self.sample.as_ref()?.pods.iter().find(is_in)
    }

    /// Notes on the pod in question that are no cause.
    fn notes_on_target(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.record.as_ref().is_some_and(|record| record.is_mirror) {
            notes.push(
                "it is the mirror pod of a static pod: kubelet recreates its record as long as the pod's manifest \
                 exists (`staticPodPath` in kubelet's configuration). Deleting the record does not end the pod; \
                 removing the manifest does"
                    .into(),
            );
        }
        if let Some(pod) = self.pod_at_directory().filter(|pod| is_unseen(pod)) {
            notes.push(format!(
                "{} is still there, but only a part of it was examined; `podstuck diagnose --pod-uid {}` shows what \
                 holds the pod",
                safe_path(&pod.directory),
                safe(pod.uid.as_bytes())
            ));
        }
        notes
    }

    /// Whether the only result is that no deletion of the pod was requested.
    pub fn pod_is_to_stay(&self) -> bool {
        let mut causes =
            self.ledger.all().filter(|it| it.state != FindingState::Cleared).peekable();
        causes.peek().is_some() && causes.all(pod_record::says_to_stay)
    }

    /// The stages of the pod in question, or of the pods with findings.
    fn stages(&self) -> Vec<PodStage> {
        // Without a scan, nothing is known.
        let Some(sample) = &self.sample else { return Vec::new() };
        let mut pods: Vec<Pod> = match &self.run.pod {
            Some(pod) => vec![pod.clone()],
            None => self.ledger.all().filter_map(|finding| finding.pod.clone()).collect(),
        };
        // In a run about one directory, the rest of its pod is unknown.
        let there = self.pod_at_directory().filter(|pod| !is_unseen(pod));
        if let Some(there) = there.filter(|it| pods.iter().all(|pod| pod.uid != it.uid)) {
            pods.push(there.named());
        }
        pods.sort();
        pods.dedup();
        let stages = pods.iter().filter_map(|pod| stage::stage(pod, sample));
        stages.map(|stage| self.by_record(stage)).collect()
    }

    /// Adds the facts of the API server's record.
    fn by_record(&self, stage: PodStage) -> PodStage {
        let Some((record, by)) = self.left_record().and_then(|it| Some((it, it.deletion?))) else {
            return stage;
        };
        let read = record.read.map(|read| format!("; read at {read:.0}")).unwrap_or_default();
        let done = match record.node {
            Some(_) => {
                "kubelet has done its part on this node, and the record was due for deletion"
            }
            None => "the pod is on no node, and its record was due for deletion",
        };
        PodStage { stage: Stage::Api, fact: format!("{done} by {by:.0}{read}"), ..stage }
    }
}

/// Whether a scan that is restricted to a directory does not show the stage of its pod: it only has the volumes at
/// or below that directory.
fn is_unseen(pod: &PodState) -> bool {
    pod.has_no_volumes() && pod.populated != Some(true)
}
