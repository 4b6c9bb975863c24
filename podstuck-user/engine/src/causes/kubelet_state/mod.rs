//! A kubelet that does not run, or is stopped. Until it runs, every deletion on the node waits: no other component ends
//! a pod, unmounts its volumes or lets its record go.

mod dra;
mod exits;
mod lists;
mod missed;
mod never_started;
mod post_start;
mod pull;
mod refusal;
mod slice;
mod step_fails;
mod suspect;
mod tracker;

use exits::Ends;
pub(crate) use missed::MISSED_DELETION;

use std::{collections::BTreeSet, time::Duration};

use podstuck_common::component::name_hash;

use crate::{
    cause::{Cause, Kind, Origin, TriedWith, absent, hidden, like, or_seen, seen, way},
    causes::shared::{
        halted,
        pending_deletion::{ToGo, Word},
        unit,
    },
    command::Process,
    event::{Event, What},
    family::Family,
    ids,
    model::{
        chain::Who,
        degraded::Feed,
        diagnosis::Stage,
        evidence::Source,
        finding::Severity,
        halted::HaltedKubelet,
        node::{NodeSample, PodState},
        time::Monotonic,
    },
    tracker::{Claim, Context, Steps, Subject, Tracker, TrackerId, TrackerSpec},
    verdict::{Draft, Verdict},
};

/// Its causes and trackers.
pub(crate) static FAMILY: Family = Family {
    causes: &[
        &KUBELET_STOPPED,
        &KUBELET_DOWN,
        &slice::SLICE_TIMES_OUT,
        &missed::MISSED_DELETION,
        &step_fails::STEP_FAILS,
        &never_started::NEVER_STARTED,
        &pull::PULL_PENDING,
        &post_start::HOOK_PENDING,
    ],
    trackers: &[
        TrackerSpec {
            id: TrackerId::KubeletState,
            feeds: &[Feed::Node, Feed::Logs],
            yields: &[],
            new: || Box::<KubeletStates>::default(),
        },
        TrackerSpec {
            id: TrackerId::SliceWait,
            feeds: &[Feed::Node, Feed::Logs],
            yields: &[],
            new: || Box::<slice::SliceWaits>::default(),
        },
        TrackerSpec {
            id: TrackerId::KubeletsPart,
            feeds: &[Feed::Node, Feed::Logs],
            yields: &[],
            new: || Box::<tracker::KubeletsPart>::default(),
        },
    ],
};

/// How long kubelet must be halted: two samples. A debugger stops a process for a moment.
const HALTED: Duration = Duration::from_secs(5);
/// How long kubelet must be gone: systemd restarts a failed service after 10 s (`RestartSec` in kubelet's unit of the
/// Kubernetes packages).
const DOWN: Duration = Duration::from_secs(11);

/// Why kubelet does nothing.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum State<'a> {
    Halted(&'a HaltedKubelet),
    /// It does not run, and may have ended with an error.
    Down(Option<Ends<'a>>),
    /// It ends at each start.
    Ends {
        how: Ends<'a>,
        /// Whether one runs now, which was started a moment ago.
        runs: bool,
    },
}

/// A pod that waits for kubelet.
pub(crate) struct Suspect<'a> {
    pub(crate) pod: &'a PodState,
    pub(crate) state: State<'a>,
    /// The source that says that the pod is to be deleted; `None` for a pod that the run only asks about.
    pub(crate) word: Option<&'a Word>,
    pub(crate) since: Monotonic,
    pub(crate) at: Monotonic,
    /// The distribution that contains kubelet and does not run, and its service.
    pub(crate) stopped: Option<(&'a str, Option<&'a str>)>,
}

#[derive(Default)]
pub(crate) struct KubeletStates {
    /// The halted process, `None` if kubelet is gone, and since when.
    since: Option<(Option<u32>, Monotonic)>,
    to_go: ToGo,
    exits: exits::Exits,
    /// UIDs of pods with a finding.
    reported: BTreeSet<String>,
}

impl KubeletStates {
    fn sampled(&mut self, context: &Context<'_>, sample: &NodeSample, steps: &mut Steps) {
        let before = std::mem::take(&mut self.reported);
        let ends = self.exits.lasting(context, sample);
        let runs = !sample.kubelets.is_empty();
        let ends = ends.map(|how| State::Ends { how, runs });
        let state = ends.or_else(|| state(sample, self.exits.last()));
        let process = state.map(|state| match state {
            State::Halted(kubelet) => Some(kubelet.pid),
            State::Down(_) | State::Ends { .. } => None,
        });
        self.since = process.map(|process| match self.since {
            Some((known, since)) if known == process => (process, since),
            _ => (process, sample.at),
        });
        if let Some((state, (_, since))) = state.zip(self.since) {
            let needed = match state {
                State::Halted(_) => HALTED,
                State::Down(_) => DOWN,
                // Its log has it more than once.
                State::Ends { .. } => Duration::ZERO,
            };
            let lasts = sample.at.since(since) >= needed;
            for pod in sample.pods.iter().filter(|_| lasts) {
                let word = self.to_go.word(&pod.uid);
                let waits = match word {
                    Some(Word::Record(deletion)) => *deletion <= context.calendar,
                    Some(Word::Log(..)) => true,
                    // A node without any kubelet may run its pods in another way.
                    None => {
                        let is_asked = context.asked == Some(&pod.uid);
                        !matches!(state, State::Down(_))
                            && is_asked
                            && !self.to_go.is_to_stay(&pod.uid)
                    }
                };
                if waits {
                    let stopped = unit::stopped(sample);
                    let suspect = Suspect { pod, state, word, since, at: sample.at, stopped };
                    steps.found([draft(&suspect)]);
                    self.reported.insert(pod.uid.clone());
                }
            }
        }
        let (tracker, at) = (self.id(), sample.at);
        let over = before.iter().filter(|uid| !self.reported.contains(*uid));
        let over = over.map(|uid| name_hash(uid.as_bytes()));
        steps.say(over.map(|target_id| Verdict::Over { tracker, target_id, at }));
    }
}

/// The state that all kubelets share; `None` if one of them runs, because the pod may be that one's.
fn state<'a>(sample: &'a NodeSample, ended: Option<Ends<'a>>) -> Option<State<'a>> {
    let halted = |pid: &u32| sample.halted_kubelets.iter().find(|kubelet| kubelet.pid == *pid);
    if sample.kubelets.is_empty() {
        return Some(State::Down(ended));
    }
    let all: Option<Vec<&HaltedKubelet>> = sample.kubelets.iter().map(halted).collect();
    all?.first().map(|first| State::Halted(first))
}

impl Tracker for KubeletStates {
    fn id(&self) -> TrackerId {
        TrackerId::KubeletState
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        self.to_go.listen(context, &event.what);
        match &event.what {
            What::Sample(sample) => self.sampled(context, sample, steps),
            What::Said(said) => self.exits.listen(said),
            _ => {}
        }
    }

    fn explains(&self, subject: &Subject<'_>, _: Claim) -> bool {
        self.reported.contains(subject.pod)
    }

    fn dropped(&self) -> u64 {
        self.to_go.dropped()
    }
}

/// A kubelet that exists and cannot run.
pub(crate) static KUBELET_STOPPED: Cause = Cause {
    id: ids::KUBELET_STOPPED,
    title: "kubelet runs but cannot act: no component ends the pod",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "kubelet's process exists but does nothing: a signal has stopped it, its control \
        group is frozen, or it has used up its file descriptors or the tasks of its control group. Only kubelet ends the pods of \
        its node and unmounts their volumes, so every deletion on the node waits. Running \
        containers continue.",
    confirmed_by: &[
        seen(
            "the process of the node's only kubelet is stopped (state T), or its control group \
            is frozen, or all its file descriptors or all tasks of its control group are in use, for 5 s",
            &[Origin::Proc],
        ),
        seen(
            "the pod's deletionTimestamp has passed, or kubelet's log says that the pod is to be \
            deleted",
            &[Origin::Api, Origin::Log],
        ),
    ],
    log: None,
    look_alikes: &[like(ids::KUBELET_DOWN, "kubelet's process exists")],
    ways_out: &[way("resume kubelet (`kill -CONT`, or thaw its control group)", "")],
    field: &[],
    tried: &[TriedWith::RealKubelet],
    source: &["kubernetes pkg/kubelet/pod_workers.go, SyncTerminatingPod"],
};

/// A kubelet that does not exist.
pub(crate) static KUBELET_DOWN: Cause = Cause {
    id: ids::KUBELET_DOWN,
    title: "no kubelet continues to run on this node: no component ends the pod",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "No kubelet process exists on this node, or each ends soon after its start. Only kubelet ends the pods of its \
        node and unmounts their volumes, so every deletion on the node waits until kubelet is started. \
        Running containers continue.",
    confirmed_by: &[
        absent("no kubelet process exists, for 10 s", Feed::Node),
        or_seen(
            "or kubelet's log has an error with which it ended, within a minute, and more than one such error or restart of \
            its service, and no kubelet has run for 30 s",
            &[Origin::Log],
        ),
        seen(
            "the pod's deletionTimestamp has passed, or kubelet's log says that the pod is to be \
            deleted",
            &[Origin::Api, Origin::Log],
        ),
        hidden(
            "no program that podstuck does not recognize as a kubelet does kubelet's work on \
            this node",
        ),
    ],
    log: None,
    look_alikes: &[like(ids::KUBELET_STOPPED, "no kubelet process exists, or it ends")],
    ways_out: &[
        way("start kubelet; its own log says why it ended", ""),
        way(
            "repair what the error names with which kubelet ended: a checkpoint that it cannot read is moved away",
            "",
        ),
    ],
    field: &["kubernetes#109414"],
    tried: &[TriedWith::RealKubelet, TriedWith::Recording],
    source: &["kubernetes pkg/kubelet/pod_workers.go, SyncTerminatingPod"],
};

/// What would end the pod while no kubelet runs.
const OTHER: &str = "whether a program that podstuck does not recognize as a kubelet does kubelet's work on this node";

/// The finding about one pod.
pub(crate) fn draft(suspect: &Suspect<'_>) -> Draft {
    let Suspect { pod, state, word, since, at, stopped } = suspect;
    let cause = match state {
        State::Halted(_) => &KUBELET_STOPPED,
        State::Down(_) | State::Ends { .. } => &KUBELET_DOWN,
    };
    let (named, directory) = (pod.named(), Some(pod.directory.as_path()));
    let mut draft = Draft::about_pod(TrackerId::KubeletState, cause, named, directory, *at);
    draft.first = *since;
    draft.severity = Severity::Critical;
    draft.blocks_deletion = Some(true);
    draft.is_settled = true;
    let why = match state {
        State::Halted(kubelet) => {
            draft.held_by(Who::component("kubelet", Some(kubelet.pid)));
            let how = halted::go_on(
                &mut draft,
                Process::new(kubelet.pid, kubelet.started, Some("kubelet")),
                &kubelet.halted,
            );
            draft.rule_out(ids::KUBELET_DOWN, "kubelet's process exists");
            format!("kubelet (pid {}) does nothing: its {how}.", kubelet.pid)
        }
        State::Down(ended) => {
            draft.held_by(Who::component("kubelet", None).and(", which does not run"));
            draft.fact("no kubelet process exists on this node", Source::proc("/proc/*/cmdline"));
            if let Some(ends) = ended {
                exits::tell(&mut draft, ends);
            }
            start(&mut draft, *stopped);
            draft.rule_out(ids::KUBELET_STOPPED, "no kubelet process exists");
            draft.doubt(OTHER);
            "No kubelet runs on this node.".to_owned()
        }
        State::Ends { how: ends, runs } => {
            draft.held_by(Who::component("kubelet", None).and(", which ends at each start"));
            exits::tell(&mut draft, ends);
            start(&mut draft, *stopped);
            draft.rule_out(ids::KUBELET_STOPPED, "kubelet ends, and is started again");
            draft.doubt(match runs {
                true => "whether the kubelet that was started a moment ago continues to run",
                false => OTHER,
            });
            "kubelet ends soon after each start, with the error that it logs.".to_owned()
        }
    };
    let seconds = at.since(*since).as_secs();
    draft.fact_since(
        format!("this state has lasted for at least {seconds} s"),
        Source::Samples,
        *since,
    );
    match word {
        Some(word) => word.tell(&mut draft),
        None => draft.doubt("whether the pod is to be deleted: its record was not read"),
    }
    draft.explanation = format!(
        "{why} No other component of the node ends the pod's containers and unmounts its \
        volumes, so every deletion on this node waits until kubelet runs."
    );
    draft
}

/// Adds the start of kubelet: of the distribution that contains it, where that is known.
fn start(draft: &mut Draft, stopped: Option<(&str, Option<&str>)>) {
    const RISK: &str =
        "low: kubelet finds the node's pods and volumes again, and continues their deletion";
    match stopped {
        Some((_, Some(unit))) => {
            draft.remedy(unit::start(unit).so(", which contains kubelet"), RISK);
        }
        Some((distribution, None)) => {
            draft.advice(format!("start {distribution}, which contains kubelet"), RISK);
        }
        None => {
            draft.advice(
                "start kubelet (`systemctl start kubelet`, where it is a service of that name), and read in its log \
                 why it ended (`journalctl -u kubelet`)",
                RISK,
            );
        }
    }
}

#[cfg(test)]
mod lists_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tracker_tests;
