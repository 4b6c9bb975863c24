//! A pod whose slice kubelet has had systemd stop, while systemd's signal about it does not reach kubelet. kubelet logs
//! that after 30 s, at each attempt.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    backoff,
    cause::{Cause, Kind, Origin, TriedWith, absent, hidden, log, seen, way},
    causes::shared::{
        repeated::{OfPods, Repeated},
        unit::restart_kubelet,
    },
    command::Step,
    event::{Event, What},
    ids,
    model::{
        chain::Who,
        degraded::Feed,
        diagnosis::Stage,
        evidence::Source,
        finding::Severity,
        identity::{Component, Pod},
        node::{NodeSample, PodState},
        said::Said,
        shell::word,
    },
    tracker::{Context, Steps, Tracker, TrackerId},
    verdict::{Draft, Verdict},
};

/// kubelet's attempts are apart by its backoff at most, and each waits for 30 s.
const FRESH: Duration = backoff::CAP.saturating_mul(2);
/// runc's error (opencontainers/cgroups, systemd/common.go, `stopUnit`).
const WORDS: &str = "Timed out while waiting for systemd to remove ";

/// A signal of systemd's that does not come.
pub(crate) static SLICE_TIMES_OUT: Cause = Cause {
    id: ids::SLICE_REMOVAL_TIMES_OUT,
    title: "kubelet waits for systemd to report that the pod's slice is removed, and the wait times out",
    stage: Stage::Cgroup,
    kind: Kind::Cause,
    meaning: "With the systemd cgroup driver kubelet asks systemd to stop the pod's slice, and \
        waits 30 s for that job's signal. Two parts of kubelet ask for the same slice at the \
        same time, and only one of them receives the signal; or systemd does not stop the slice. \
        kubelet's sync of the pod fails, and kubelet retries later.",
    confirmed_by: &[
        seen(
            "kubelet's log says, more than once, that kubelet timed out while waiting for \
            systemd to remove the pod's slice",
            &[Origin::Log],
        ),
        absent("no process of the pod is left", Feed::Node),
        hidden("kubelet's next attempt fails as well"),
    ],
    log: log("kubelet", "Timed out while waiting for systemd to remove kubepods-...slice"),
    look_alikes: &[],
    ways_out: &[
        way("wait: kubelet's next attempt finds no slice, and continues", ""),
        way("stop a slice that still exists", ""),
        way("restart kubelet", "containers keep running"),
    ],
    field: &["kubernetes#108891", "kubernetes#135825"],
    tried: &[TriedWith::Test],
    source: &[
        "opencontainers/cgroups systemd/common.go, stopUnit",
        "go-systemd dbus/methods.go, startJob",
        "kubernetes pkg/kubelet/kubelet.go, SyncTerminatedPod",
    ],
};

/// What is left of a pod's control groups.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    Slice,
    Nothing,
    Unknown,
}

/// Timeouts that kubelet logs, by pod UID.
#[derive(Default)]
pub(crate) struct SliceWaits {
    said: OfPods,
    /// By UID: the target ID of the finding.
    found: BTreeMap<String, u64>,
}

impl SliceWaits {
    fn sampled(&mut self, context: &Context<'_>, sample: &NodeSample, steps: &mut Steps) {
        let (tracker, at) = (TrackerId::SliceWait, sample.at);
        let mut before = std::mem::take(&mut self.found);
        for (uid, said) in self.said.iter() {
            let state = sample.pod(uid);
            let has_processes = state.is_some_and(|state| state.populated == Some(true));
            let is_fresh = context.now.since(said.last) <= FRESH;
            let Some(slice) = slice(&said.said).filter(|_| is_fresh && !has_processes) else {
                continue;
            };
            // Only for the pod in question does every sample have the control groups.
            let is_asked = context.asked == Some(uid.as_str());
            let is_there = sample.cgroups.iter().any(|group| group.uid == *uid);
            let is_gone = is_asked && !is_there && state.is_some_and(|it| it.populated.is_some());
            let left = if is_there {
                Left::Slice
            } else if is_gone {
                Left::Nothing
            } else {
                Left::Unknown
            };
            let draft = draft(said, slice, uid, sample, left);
            before.remove(uid);
            self.found.insert(uid.clone(), draft.target_id);
            steps.found([draft]);
        }
        let over = before.into_values();
        steps.say(over.map(|target_id| Verdict::Over { tracker, target_id, at }));
    }
}

impl Tracker for SliceWaits {
    fn id(&self) -> TrackerId {
        TrackerId::SliceWait
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Said(said) if slice(said).is_some() => self.said.note(context, said),
            What::Sample(sample) => self.sampled(context, sample, steps),
            _ => {}
        }
    }

    fn dropped(&self) -> u64 {
        self.said.dropped()
    }
}

/// The slice's name in the line, if it is that of the pod's own slice.
fn slice(said: &Said) -> Option<&str> {
    let (_, rest) = said.text.split_once(WORDS)?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name = rest.split(|c| !is_name(c)).next()?;
    let own = format!("pod{}.slice", said.uid.replace('-', "_"));
    let is_own = !said.uid.is_empty() && name.ends_with(&own) && !name.starts_with('-');
    (said.component == Component::Kubelet && is_own).then_some(name)
}

fn draft(said: &Repeated, slice: &str, uid: &str, sample: &NodeSample, left: Left) -> Draft {
    let unnamed = || Pod { uid: uid.to_owned(), namespace: None, name: None };
    let pod = sample.pod(uid).map_or_else(unnamed, PodState::named);
    let mut draft = Draft::about_pod(TrackerId::SliceWait, &SLICE_TIMES_OUT, pod, None, sample.at);
    (draft.severity, draft.blocks_deletion) = (Severity::Warning, Some(true));
    draft.held_by(Who::object(format!("systemd's signal that {slice} is removed")));
    draft.must = Some("reach kubelet");
    said.tell(&mut draft);
    if said.lines < 2 {
        draft.lacks("that kubelet logs it again: its next attempt may succeed");
    }
    match sample.pod(uid).map(|state| state.populated) {
        Some(Some(_)) => {
            draft.fact(
                "no process is left in the pod's control groups",
                Source::proc("control groups"),
            );
        }
        Some(None) => {
            draft.lacks("that no process of the pod is left: its control groups could not be read")
        }
        None => draft.fact("the pod has no directory below kubelet's root", Source::Samples),
    }
    let is_gone = "no control group of the pod is left: systemd has removed the slice";
    match left {
        Left::Nothing => draft.fact(is_gone, Source::proc("control groups")),
        Left::Slice => {
            draft.fact("the slice's control group is still there", Source::proc("control groups"));
        }
        Left::Unknown => {}
    }
    draft.explanation = match left {
        Left::Nothing => {
            "systemd has removed the slice, and kubelet still waits for the signal of that job. \
            Another part of kubelet that waited for the same job has received it. kubelet's next \
            attempt finds no slice, and continues."
        }
        _ => {
            "kubelet has asked systemd to stop the pod's slice, and has not received the signal \
            that the job is done. If the slice is gone, another part of kubelet that waited for \
            the same job has received that signal, and kubelet's next attempt continues without \
            it."
        }
    }
    .into();
    if left != Left::Nothing {
        let name = word(slice);
        let show = format!("systemctl status --no-pager {name}; systemctl list-jobs --no-pager");
        draft.remedy(
            Step::new("show whether systemd still has the pod's slice, and its jobs", show),
            "none",
        );
        draft.remedy(
            Step::new("if the pod's slice still exists, stop it", format!("systemctl stop {name}")),
            "low: no process of the pod is left in it, and kubelet has asked for the same",
        );
    }
    draft.advice(
        "if the slice is gone, wait for kubelet's next attempts (two minutes apart at most)",
        "none",
    );
    let then = "it then no longer waits for the signal";
    draft.remedies.push(restart_kubelet(Some(sample), then));
    draft.doubt(match left {
        Left::Unknown => "whether the slice is still there: systemd was not asked",
        _ => "whether kubelet's next attempt succeeds",
    });
    draft
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{
        model::{evidence::Certainty, time::Monotonic},
        testing::{Alone, found, holder_of, pod_state},
    };

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
    const SLICE: &str = "kubepods-besteffort-pod0f0e0d0c_1111_2222_3333_444455556666.slice";

    /// As in kubernetes issue 135825.
    fn said(slice: &str, times: u64) -> Said {
        let text = format!(
            "Error syncing pod, skipping: failed to delete cgroup paths for [kubepods besteffort pod{UID}] : unable to \
             destroy cgroup paths for cgroup [kubepods besteffort pod{UID}] : {WORDS}{slice}"
        );
        let at = Timestamp::from_second(590).unwrap();
        Said { times, ..Said::new(Component::Kubelet, "log of kubelet", UID, at, &text) }
    }

    fn verdict(said: Said, second: u64, state: Option<PodState>) -> Option<Draft> {
        let mut alone = Alone::<SliceWaits>::new();
        alone.take(Monotonic(600_000_000_000), What::Said(said.into()));
        let now = Monotonic(second * 1_000_000_000);
        let pods = state.into_iter().collect();
        let sample = NodeSample { at: now, pods, ..NodeSample::default() };
        found(alone.take(now, What::Sample(sample.into())).verdicts).pop()
    }

    #[test]
    fn a_signal_that_does_not_come_is_what_kubelet_waits_for() {
        for state in [None, Some(PodState { populated: Some(false), ..pod_state(UID) })] {
            let draft = verdict(said(SLICE, 2), 600, state).unwrap();
            assert_eq!(
                (draft.id(), draft.certainty()),
                ("slice-removal-times-out", Certainty::Likely)
            );
            assert!(holder_of(&draft.held_by).contains(SLICE));
            let commands: Vec<&str> =
                draft.remedies.iter().filter_map(|it| it.command.as_deref()).collect();
            assert_eq!(commands[1], format!("systemctl stop {SLICE}"));
        }
        let once = verdict(said(SLICE, 1), 600, None).unwrap();
        assert_eq!(once.certainty(), Certainty::Possible, "the next attempt may succeed");
    }

    #[test]
    fn a_slice_that_is_gone_needs_no_command() {
        let state = PodState { populated: Some(false), ..pod_state(UID) };
        let said = said(SLICE, 2);
        let mut repeated = Repeated::begin(&said, Monotonic(1));
        repeated.lines = 2;
        let sample = NodeSample { at: Monotonic(2), pods: vec![state], ..NodeSample::default() };
        let of = |left| draft(&repeated, SLICE, UID, &sample, left);
        let gone = of(Left::Nothing);
        assert!(gone.remedies.iter().all(|it| it.command.is_none()));
        assert!(gone.evidence.iter().any(|it| it.fact.contains("has removed the slice")));
        assert!(of(Left::Slice).evidence.iter().any(|it| it.fact.contains("still there")));
        assert_eq!(gone.certainty(), Certainty::Likely, "{:?}", gone.not_known());
    }

    #[test]
    fn another_slice_or_a_pod_that_runs_is_another_matter() {
        let runs = PodState { populated: Some(true), ..pod_state(UID) };
        assert!(verdict(said(SLICE, 2), 600, Some(runs)).is_none());
        assert!(verdict(said("kubepods-besteffort.slice", 2), 600, None).is_none());
        let other = said(&SLICE.replace("0f0e", "1f0e"), 2);
        assert!(verdict(other, 600, None).is_none());
        let hostile = said(&format!("$(id)-{SLICE}"), 2);
        assert!(verdict(hostile, 600, None).is_none());
    }
}
