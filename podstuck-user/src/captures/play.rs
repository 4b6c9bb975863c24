//! Simulates a run that begins when a capture was taken, with the capture as its input.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;

use super::capture::{Capture, KUBELET};
use crate::{
    engine::{Engine, Output},
    event::{Event, Run, Thresholds, What},
    live::attribute::Attributor,
    model::{
        call::{Call, Outcome},
        diagnosis::Diagnosis,
        errno::Errno,
        evidence::Certainty,
        hung::Since,
        identity::{Actor, Component},
        mounts::NodeMounts,
        node::NodeSample,
        operation::Operation,
        said::{Heard, Report},
        stuck::StuckThread,
        summary::Start,
        thread::Thread,
        time::{Clock, Monotonic},
    },
};
use podstuck_node::{
    identity::{
        NameSource, PodNames,
        target_roots::{Holds, TargetRoot, TargetRoots},
    },
    scope::Scope,
    state::logs::{
        Attempt,
        captures::{Growing, all_said},
    },
};
use podstuck_testing::samples;

/// Uptime of the node.
const UP: Duration = Duration::from_secs(86_400);
/// Limit of the wait for an answer, in seconds.
const LONGEST: u64 = 250;

fn after(time: Monotonic, seconds: u64) -> Monotonic {
    Monotonic(time.0 + seconds * 1_000_000_000)
}

/// One run.
struct Play<'a> {
    capture: &'a Capture,
    engine: Engine,
    names: Attributor,
}

/// The answer of the run, and the time until it.
pub(super) fn answer(capture: &Capture) -> (Diagnosis, Duration) {
    let begun = Monotonic(UP.as_nanos() as u64);
    let mut play = Play {
        capture,
        engine: Engine::new(run(capture, capture.now, begun)),
        names: names(capture),
    };
    play.take(begun, capture.api());
    let sample = play.sample(begun);
    play.take(begun, What::Sample(sample));
    play.logs(begun);
    for second in 1..LONGEST {
        let now = after(begun, second);
        if let Some(stuck) = play.stuck(begun, now) {
            play.take(now, What::Stuck(Box::new(stuck)));
        }
        play.take(now, What::Counts(Vec::new()));
        if second % 2 == 0 {
            let sample = play.sample(now);
            play.take(now, What::Sample(sample));
        }
        if play.engine.is_firm(now) {
            break;
        }
    }
    (play.engine.diagnosis(), play.engine.window())
}

/// The result of a run that begins before the deletion and reads the logs as they grow: the first finding that is its
/// answer, the time from the first line, or call, that shows the fault; and its other findings.
pub(super) fn live(
    capture: &Capture,
    cause: &str,
    certainty: &str,
) -> (Option<Duration>, Vec<String>) {
    let begun = Monotonic(UP.as_nanos() as u64);
    let deleted = capture.deleted();
    let start = deleted - Duration::from_secs(10);
    let mut play =
        Play { capture, engine: Engine::new(run(capture, start, begun)), names: names(capture) };
    let said = all_said(&capture.case);
    let of_pod = || said.iter().filter(|it| it.said.uid == capture.uid);
    let ended = of_pod().filter(|it| it.said.report == Some(Report::ContainerEnded));
    let ended = ended.map(|it| it.said.at).max();
    let shows = of_pod().filter(|it| it.call.is_some() || it.said.complaint.is_some());
    let first = shows.map(|it| it.said.at).min().or(ended).unwrap_or(deleted);
    let first = if capture.shows_in_record() { capture.now } else { first };
    let mut api = Some(capture.api());
    let heard = Heard { source: "log".into(), since: start, until: start, names_steps: true };
    play.take(begun, What::Heard(Box::new(heard)));
    let (mut logs, mut others) = (Growing::new(&capture.case), Vec::new());
    let since =
        after(begun, ended.map_or(10, |ended| ended.duration_since(start).as_secs() as u64));
    for second in 0..LONGEST {
        let (now, at) = (after(begun, second), start + Duration::from_secs(second));
        if at >= capture.now
            && let Some(api) = api.take()
        {
            play.take(now, api);
        }
        if second % 2 == 0 {
            play.grown(&logs.read(at));
            let sample = play.sample(now);
            let runs = ended.is_some_and(|ended| at < ended) || at < deleted;
            play.take(now, What::Sample(if runs { running(&sample) } else { sample }));
        }
        if now > since
            && let Some(stuck) = play.stuck(since, now)
        {
            play.take(now, What::Stuck(Box::new(stuck)));
        }
        play.take(now, What::Counts(Vec::new()));
        for finding in play.engine.findings() {
            if finding.id.as_str() == cause && words(finding.certainty) == certainty {
                let took = Duration::try_from(at.duration_since(first));
                return (Some(took.unwrap_or_default()), others);
            }
            let finding_text = format!("{} {:?}", finding.id.as_str(), finding.certainty);
            if finding.id.as_str() != cause && !others.contains(&finding_text) {
                others.push(finding_text);
            }
        }
    }
    (None, others)
}

pub(super) fn words(certainty: Certainty) -> String {
    format!("{certainty:?}").to_lowercase()
}

/// A pod whose containers have not ended.
fn running(sample: &NodeSample) -> Arc<NodeSample> {
    let mut sample = sample.clone();
    sample.pods.iter_mut().for_each(|pod| pod.populated = Some(true));
    sample.rootfs.clear();
    sample.into()
}

fn run(capture: &Capture, start: Timestamp, begun: Monotonic) -> Run {
    Run {
        clock: Clock::new(start, begun),
        start: Start { target: Some(format!("pod {}", capture.uid)), ..Start::default() },
        own_mnt_ns: KUBELET.1,
        thresholds: Thresholds::default(),
        one_answer: true,
        pod: Some(capture.record.pod.clone()),
        container: None,
        directory: None,
    }
}

fn names(capture: &Capture) -> Attributor {
    let mut names = PodNames::new(Vec::new(), Box::new(|_, _| Vec::new()));
    let pod = capture.record.pod.clone();
    let (namespace, name) = (pod.namespace.unwrap(), pod.name.unwrap());
    names.learn(NameSource::Api, [(namespace, name, pod.uid)]);
    let mut roots = TargetRoots::new(None);
    roots.add(TargetRoot::of_host("/var/lib/kubelet", Holds::Pods));
    roots.add(TargetRoot::of_host("/run/containerd", Holds::PluginData));
    let scope = Scope { pod: Some(capture.uid.clone()), ..Scope::default() };
    Attributor::new(names, scope, roots, &[])
}

impl Play<'_> {
    fn take(&mut self, at: Monotonic, what: What) {
        for named in self.names.learned() {
            self.engine.take(&Event { at, what: named });
        }
        for output in self.engine.take(&Event { at, what }) {
            if let Output::Query(query) = output {
                let answer = Box::new(self.capture.look(&query, at));
                self.take(at, What::Answer { query, answer });
            }
        }
    }

    fn sample(&mut self, at: Monotonic) -> Arc<NodeSample> {
        let created = self.engine.run().clock.when(self.capture.deleted());
        let mut pod = self.capture.pod();
        self.capture.add_driver(&mut pod, created);
        let tables = [(KUBELET.1, self.capture.mounts.clone().into())].into();
        let sample = NodeSample {
            at,
            begun: Some(at),
            rest: Duration::from_secs(2),
            kubelets: self.capture.kubelets(),
            // Long before the pod existed.
            kubelet_since: Some(Monotonic(UP.as_nanos() as u64 / 2)),
            pods: vec![pod],
            cgroups: self.capture.cgroups(),
            rootfs: self.capture.rootfs(),
            runtimes: self.capture.runtimes(),
            mounts: NodeMounts { tables, host: Some(KUBELET.1) },
            ..NodeSample::default()
        };
        self.names.sample(sample.into(), Arc::default(), &[])
    }

    fn logs(&mut self, now: Monotonic) {
        for attempt in all_said(&self.capture.case) {
            if self.names.is_wanted(&attempt.said.uid) {
                self.take(now, What::Said(Box::new(attempt.said.clone())));
            }
            let end = self.engine.run().clock.when(attempt.said.at);
            if let Some(mut op) = self.names.logged(&attempt, end) {
                op.actor = kubelet();
                self.take(now, What::Logged(Box::new(op)));
            }
        }
        let since = self.capture.deleted();
        let (source, until) = ("log".into(), self.capture.now);
        let heard = Heard { source, since, until, names_steps: true };
        self.take(now, What::Heard(Box::new(heard)));
    }

    /// New log lines: the probes have reported each call that they name.
    fn grown(&mut self, attempts: &[Attempt]) {
        let of_pod = attempts.iter().filter(|it| it.said.uid == self.capture.uid);
        let of_pod: Vec<&Attempt> = of_pod.collect();
        for attempt in &of_pod {
            let end = self.engine.run().clock.when(attempt.said.at);
            let Some(op) = self.names.logged(attempt, end) else { continue };
            let (actor, mnt_ns, logged_in) = (kubelet(), KUBELET.1, None);
            let op = self.capture.seen(Operation { actor, mnt_ns, logged_in, ..op });
            // Go continues with the directory of a file that it could not remove.
            let directory = op.path.parent().filter(|it| self.capture.mounts.top(it).is_some());
            let directory = directory.map(|it| Operation {
                call: Call::UnlinkatDir,
                outcome: Outcome(Errno::EBUSY as u16),
                path: it.into(),
                ..op.clone()
            });
            let removes = op.call != Call::Umount2;
            self.take(end, What::Operation(Box::new(op)));
            if let Some(op) = directory.filter(|_| removes) {
                self.take(end, What::Operation(Box::new(op)));
            }
        }
        for attempt in of_pod {
            let now = self.engine.run().clock.when(attempt.said.at);
            self.take(now, What::Said(Box::new(attempt.said.clone())));
        }
    }

    /// kubelet's thread that waits for a FUSE server, seen there in the first sample.
    fn stuck(&mut self, began: Monotonic, at: Monotonic) -> Option<StuckThread> {
        let mount = self.capture.fuse()?;
        let volume = self.sample(at).pods[0].volumes[0].clone();
        Some(StuckThread {
            thread: Thread { pid: KUBELET.0, tid: KUBELET.0 + 1 },
            syscall: "openat".into(),
            path: Some(mount.point.clone()),
            mount: Some(mount),
            target_id: volume.target_id,
            target: volume.target,
            actor: kubelet(),
            mnt_ns: KUBELET.1,
            began,
            since: Since::FirstLook,
            before_start: true,
            at,
            ..samples::stuck(&["request_wait_answer", "fuse_simple_request", "fuse_send_open"])
        })
    }
}

fn kubelet() -> Arc<Actor> {
    Arc::new(Actor { pid: KUBELET.0, ..samples::actor(Component::Kubelet) })
}
