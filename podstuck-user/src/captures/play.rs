//! A run that begins when a capture was taken, and sees what is in it.

use std::{sync::Arc, time::Duration};

use super::capture::{Capture, KUBELET};
use crate::{
    attribute::Attributor,
    engine::{Engine, Output},
    event::{Event, Run, Thresholds, What},
    identity::{
        NameSource, PodNames,
        target_roots::{Holds, TargetRoot, TargetRoots},
    },
    model::{
        diagnosis::Diagnosis,
        hung::{Phase, Since},
        identity::{Actor, Component},
        mounts::NodeMounts,
        node::NodeSample,
        said::Heard,
        stuck::StuckThread,
        summary::Start,
        thread::Thread,
        time::{Clock, Monotonic},
    },
    scope::Scope,
    state::logs::captures_tests::all_said,
};

/// The node was booted so long before.
const UP: Duration = Duration::from_secs(86_400);
/// The longest that anybody waits for an answer.
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

/// What the run answers, and after how long.
pub(super) fn answer(capture: &Capture) -> (Diagnosis, Duration) {
    let begun = Monotonic(UP.as_nanos() as u64);
    let mut play =
        Play { capture, engine: Engine::new(run(capture, begun)), names: names(capture) };
    let record = Box::new(capture.record.clone());
    play.take(begun, What::Record { record, node: "kc-node".into() });
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

fn run(capture: &Capture, begun: Monotonic) -> Run {
    Run {
        clock: Clock::new(capture.now, begun),
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
        let created = self.engine.run().clock.when(self.capture.record.deletion.unwrap());
        let mut pod = self.capture.pod();
        self.capture.add_driver(&mut pod, created);
        let tables = [(KUBELET.1, self.capture.mounts.clone().into())].into();
        let sample = NodeSample {
            at,
            begun: Some(at),
            rest: Duration::from_secs(2),
            kubelets: vec![KUBELET.0],
            // Long before the pod was there.
            kubelet_since: Some(Monotonic(UP.as_nanos() as u64 / 2)),
            pods: vec![pod],
            cgroups: self.capture.cgroups(),
            rootfs: self.capture.rootfs(),
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
            if let Some(mut op) = self.names.told(&attempt, end) {
                op.actor = kubelet();
                self.take(now, What::Told(Box::new(op)));
            }
        }
        let since = self.capture.record.deletion.unwrap() - Duration::from_secs(2);
        let heard = Heard { source: "log".into(), since, until: self.capture.now };
        self.take(now, What::Heard(Box::new(heard)));
    }

    /// kubelet's thread that waits for a FUSE server, which was seen there at the first look.
    fn stuck(&mut self, began: Monotonic, at: Monotonic) -> Option<StuckThread> {
        let mount = self.capture.fuse()?;
        let volume = self.sample(at).pods[0].volumes[0].clone();
        Some(StuckThread {
            thread: Thread { pid: KUBELET.0, tid: KUBELET.0 + 1 },
            phase: Phase::InSyscall,
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
            over: false,
            times: None,
            wait_channel: Some("request_wait_answer".into()),
            stack: ["request_wait_answer", "fuse_simple_request", "fuse_send_open"]
                .map(str::to_owned)
                .into(),
            progress: None,
            disks: Vec::new(),
        })
    }
}

fn kubelet() -> Arc<Actor> {
    let comm = "kubelet".into();
    let actor = Actor {
        pid: KUBELET.0,
        started: None,
        comm,
        cgroup: None,
        component: Component::Kubelet,
        pod: None,
        parent: None,
    };
    actor.into()
}
