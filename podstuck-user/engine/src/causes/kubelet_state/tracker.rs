//! Which deletions wait inside kubelet, or between kubelet and the record: kubelet has not learned of the deletion,
//! fails by itself at a step before all others, or never started the pod. Nothing on the node is in the way, so
//! kubelet's log is the only source, and no finding is more than likely; except that kubelet's own list of its pods
//! ([`super::lists`]) shows whether kubelet has learned of the deletion.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use podstuck_common::component::name_hash;

use crate::{
    bounded::Bounded,
    causes::{
        kubelet_state::{
            lists::{Lists, Shown},
            missed::missed,
            never_started::never_started,
            post_start, pull,
            step_fails::step_fails,
            suspect::{FRESH, LATE, Suspect, VERY_LATE},
        },
        shared::repeated::Repeated,
    },
    event::{Event, What},
    kubelet_steps::{self, KubeletSteps},
    model::{
        identity::Component,
        node::{NodeSample, PodState},
        pod_record::PodRecord,
        said::{Level, Said, template},
    },
    tracker::{Context, Steps, Tracker, TrackerId},
    verdict::{Draft, Verdict},
};

/// Pods whose complaints are remembered, and kinds of complaints for each pod.
const PODS: usize = 1024;
const KINDS: usize = 8;

/// Records and complaints of all pods.
#[derive(Default)]
pub(crate) struct KubeletsPart {
    records: BTreeMap<String, (PodRecord, String)>,
    /// By UID: kubelet's complaints, one for each kind.
    complaints: Bounded<String, Vec<Repeated>, PODS>,
    /// By UID: dockerd's last error about a request.
    of_dockerd: Bounded<String, Said, PODS>,
    /// UIDs of pods with a finding.
    found: BTreeSet<String>,
    lists: Lists,
}

impl KubeletsPart {
    fn said(&mut self, context: &Context<'_>, said: &Said) {
        if said.report.is_some() || said.uid.is_empty() {
            return;
        }
        match said.component {
            Component::Kubelet => {}
            Component::Dockerd if said.text.starts_with("Handler for GET ") => {
                let last = self.of_dockerd.or_insert_with(said.uid.clone(), || said.clone());
                if said.at >= last.at {
                    last.clone_from(said);
                }
                return;
            }
            _ => return,
        }
        let at = context.when(said.at);
        let kinds = self.complaints.or_insert_with(said.uid.clone(), Vec::new);
        let kind = template(&said.text);
        match kinds.iter_mut().find(|known| template(&known.said.text) == kind) {
            Some(known) => {
                known.note(context, said);
            }
            None => {
                if kinds.len() >= KINDS {
                    kinds.remove(0);
                }
                let mut new = Repeated::begin(said, at);
                new.note(context, said);
                kinds.push(new);
            }
        }
    }

    fn sampled(&mut self, context: &Context<'_>, sample: &NodeSample, steps: &mut Steps) {
        let before = std::mem::take(&mut self.found);
        let mut overdue = BTreeMap::new();
        // Without a runtime, kubelet cannot see that there is no container.
        let runtime_answers = sample.gone.is_empty()
            && sample.runtimes.iter().all(|runtime| runtime.halted.is_none());
        for pod in &sample.pods {
            let Some(kubelet) = acting_kubelet(context.kubelet_steps, &pod.uid, sample) else {
                continue;
            };
            let groups = sample.cgroups.iter().filter(|group| group.uid == pod.uid);
            let is_killed =
                groups.flat_map(|group| &group.tasks).any(|task| task.killed && task.is_alive());
            let seen = Seen { pod, kubelet, runtime_answers, is_killed, sample };
            if self.is_overdue(context, &seen) {
                overdue.insert(pod.uid.clone(), kubelet);
            }
            let Some(draft) = self.judge(context, &seen) else { continue };
            self.found.insert(pod.uid.clone());
            steps.found([draft]);
        }
        let (tracker, at) = (self.id(), sample.at);
        steps.ask(self.lists.due(tracker, &overdue, context.now));
        let over = before.iter().filter(|uid| !self.found.contains(*uid));
        let over = over.map(|uid| name_hash(uid.as_bytes()));
        steps.say(over.map(|target_id| Verdict::Over { tracker, target_id, at }));
    }

    /// Whether kubelet's list shows more than is known: the log has no receipt of the deletion.
    fn is_overdue(&self, context: &Context<'_>, seen: &Seen<'_>) -> bool {
        let Some(known) = self.records.get(&seen.pod.uid) else { return false };
        let late = known.0.deletion.map(|by| context.calendar.duration_since(by));
        let is_late = late.is_some_and(|late| late >= LATE);
        let has_received = context.kubelet_steps.has_received(&seen.pod.uid);
        is_late && !seen.is_killed && !is_elsewhere(known) && !has_received
    }

    fn judge(&self, context: &Context<'_>, seen: &Seen<'_>) -> Option<Draft> {
        let &Seen { pod, kubelet, sample, .. } = seen;
        let at = sample.at;
        let record = self.records.get(&pod.uid);
        if record.is_some_and(is_elsewhere) {
            return None;
        }
        let record = record.map(|(record, _)| record);
        let now = context.calendar;
        let late = record.and_then(|it| it.deletion).map(|by| now.duration_since(by));
        let none = Vec::new();
        let complaints = self.complaints.get(&pod.uid).unwrap_or(&none);
        let dockerd = self.of_dockerd.get(&pod.uid);
        let suspect = Suspect { pod, record, dockerd, kubelet, now: context.now, at };
        if late.is_none_or(|late| late >= LATE)
            && record.is_none_or(|record| record.deletion.is_some())
            && let Some(draft) = step_fails(context, &suspect, complaints)
        {
            return Some(draft);
        }
        let (record, late) = record.zip(late)?;
        if late >= VERY_LATE
            && seen.runtime_answers
            && let Some(draft) = never_started(&suspect, record, complaints)
        {
            return Some(draft);
        }
        // A SIGKILL shows that the runtime was asked for the end.
        if late < LATE || seen.is_killed {
            return None;
        }
        let requested = kubelet_steps::requested(record);
        let grace = Duration::from_secs(record.grace_s);
        let steps = context.kubelet_steps;
        let shown = self.lists.shown(&pod.uid, kubelet, context.now);
        if matches!(shown, Shown::Missed { .. }) {
            return missed(context, &suspect, record, late, &shown);
        }
        let not_asked = steps.not_asked(&pod.uid, requested, grace, now);
        let is_failing = |complaint: &Repeated| {
            complaint.said.level == Level::Error && context.now.since(complaint.last) <= FRESH
        };
        if let Some(draft) = post_start::draft(&suspect, record, steps, sample) {
            return Some(draft);
        }
        if seen.runtime_answers
            && !complaints.iter().any(is_failing)
            && let Some(draft) = pull::draft(&suspect, record, not_asked.as_ref(), sample)
        {
            return Some(draft);
        }
        missed(context, &suspect, record, late, &shown)
    }
}

impl Tracker for KubeletsPart {
    fn id(&self) -> TrackerId {
        TrackerId::KubeletsPart
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Said(said) => self.said(context, said),
            What::Record { record, node } => {
                let known = (PodRecord::clone(record), node.clone());
                self.records.insert(record.pod.uid.clone(), known);
            }
            What::Node(node) => {
                node.missing.iter().for_each(|pod| drop(self.records.remove(&pod.uid)));
            }
            What::Sample(sample) => self.sampled(context, sample, steps),
            What::Answer { query, answer } => {
                self.lists.answered(query, answer, event.at);
                // Scans may be seconds apart.
                if let Some(sample) = context.sample {
                    self.sampled(context, sample, steps);
                }
            }
            _ => {}
        }
    }

    fn dropped(&self) -> u64 {
        self.complaints.dropped() + self.of_dockerd.dropped()
    }
}

/// The process ID of the pod's kubelet, of several kubelets the one whose log names the pod; `None` if it is halted.
fn acting_kubelet(steps: &KubeletSteps, uid: &str, sample: &NodeSample) -> Option<u32> {
    let by_log = || {
        let (_, rest) = steps.log(uid)?.split_once("(pid ")?;
        rest.split_once(')')?.0.parse().ok().filter(|pid| sample.kubelets.contains(pid))
    };
    let pid = match sample.kubelets[..] {
        [pid] => Some(pid),
        _ => by_log(),
    };
    pid.filter(|pid| sample.halted_kubelets.iter().all(|halted| halted.pid != *pid))
}

/// Whether the pod's record is not that of a pod of this node.
fn is_elsewhere((record, here): &(PodRecord, String)) -> bool {
    record.is_mirror || record.node.as_ref().is_some_and(|node| node != here)
}

/// A pod in the last sample.
struct Seen<'a> {
    pod: &'a PodState,
    kubelet: u32,
    runtime_answers: bool,
    /// A SIGKILL is pending for a process of the pod.
    is_killed: bool,
    sample: &'a NodeSample,
}
