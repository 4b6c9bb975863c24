//! A pod that its grace period or a preStop hook still keeps: not stuck yet.

use jiff::{SignedDuration, Timestamp};

use super::{Here, draft, of};
use crate::{
    cause::{Cause, Kind, Origin, TriedWith, or_seen, seen, way},
    command::{NAME, Step},
    ids,
    kubelet_steps::{self, NotAsked},
    model::{
        chain::Who,
        diagnosis::Stage,
        evidence::Source,
        path::{clip, safe},
        pod_record::{ContainerRecord, ContainerState, PodRecord},
    },
    verdict::Draft,
};

/// Tolerated difference between the clocks of a cluster.
const CLOCKS: SignedDuration = SignedDuration::from_secs(5);

/// From this minor version of Kubernetes 1 on, kubelet deducts the time of the preStop hook from the grace period that it
/// gives the runtime (kubernetes#115835). Before, a pod's deletion gave the runtime the whole one again.
const COUNTS_HOOKS: u32 = 28;
/// Maximum number of named processes.
const NAMED: usize = 4;

/// The grace period has not passed.
pub(crate) static IN_GRACE: Cause = Cause {
    id: ids::GRACE_PERIOD_OR_PRESTOP,
    title: "the pod's grace period or preStop hook has not ended (according to the API server or `--pod-json`)",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The pod is not stuck yet: its containers may use the whole grace period to end. Before Kubernetes 1.28, \
        a preStop hook that hangs can add the same time again. Before 1.36, a hook that was begun within a longer grace \
        period is not ended by a deletion with a shorter one.",
    confirmed_by: &[
        seen(
            "metadata.deletionTimestamp, the end of the grace period, has not passed",
            &[Origin::Api],
        ),
        or_seen(
            "or, by kubelet's log, the grace period that kubelet gave the runtime has not passed",
            &[Origin::Log],
        ),
        or_seen(
            "or kubelet has received the deletion and has not asked the runtime to stop a container, and one with a \
             preStop hook runs",
            &[Origin::Log],
        ),
    ],
    log: None,
    look_alikes: &[],
    ways_out: &[
        way("wait", ""),
        way(
            "stop a container that kubelet has not asked the runtime to stop (`crictl stop`)",
            "nothing waits for its preStop hook",
        ),
    ],
    field: &[
        "kubernetes#115817",
        "kubernetes#117373",
        "kubernetes#127339",
        "kubernetes#125880",
        "kubernetes#127188",
    ],
    tried: &[TriedWith::RealKubelet, TriedWith::Recording],
    source: &[
        "kubernetes pkg/kubelet/kuberuntime/kuberuntime_container.go, killContainer",
        "kubernetes CHANGELOG-1.28.md (#115835), CHANGELOG-1.36.md (#136598)",
    ],
};

/// The finding before the end of the grace period.
pub(super) fn in_grace(record: &PodRecord, here: Here<'_>, deletion: Timestamp) -> Draft {
    let mut draft = draft(&IN_GRACE, record, here);
    draft.blocks_deletion = Some(false);
    let left = deletion.duration_since(here.now).as_secs();
    draft.fact(
        format!("its grace period of {} s ends in {left} s, at {deletion}", record.grace_s),
        of(record),
    );
    let hook = match here.kubelet {
        Some(COUNTS_HOOKS..) => "The time of a preStop hook counts, too.",
        Some(_) => {
            "This kubelet is older than 1.28, so that a preStop hook that hangs can add the same time again."
        }
        None => "Before Kubernetes 1.28, a preStop hook that hangs can add the same time again.",
    };
    draft.explanation =
        format!("It is not stuck yet: its containers may take that long to end. {hook}");
    // The two times come from two clocks.
    let requested = kubelet_steps::requested(record).unwrap_or(deletion);
    if requested.duration_since(here.now) > CLOCKS {
        draft.doubt(
            "whether the grace period still runs: by this node's clock the deletion has not been \
            requested yet, so the clocks of node and API server differ",
        );
    }
    match here.not_asked {
        Some(not_asked) => wait_for_turns(&mut draft, record, not_asked),
        None => {
            outlast(&mut draft, here);
            wait_for_ends(&mut draft, record);
        }
    }
    draft
}

/// Names the init processes of containers that SIGTERM does not end.
fn outlast(draft: &mut Draft, here: Here<'_>) {
    let Some(group) = here.group else { return };
    let all = group.tasks.iter().chain(&group.outside);
    let mut all = all.filter(|task| task.outlasts_term() && !group.is_sandboxs(task)).peekable();
    let Some(first) = all.peek() else { return };
    draft.held_by(first.who());
    draft.must = Some("end");
    draft.explanation.push_str(&format!(
        " SIGTERM does not end {}, so that its container uses the whole grace period and ends by SIGKILL, unless its \
         image or the pod names another signal (`STOPSIGNAL`, `stopSignal`). It ends sooner with a handler for SIGTERM, \
         or if it is not the container's first process: below an init process such as tini, or with \
         `shareProcessNamespace`.",
        first.who()
    ));
    for task in all.take(NAMED) {
        let words = task.term_words().unwrap_or_default();
        let file = format!("/proc/{}/status", task.pid);
        draft.fact(
            format!("{}, the first process of its container, {words}", task.who()),
            Source::proc(file),
        );
    }
}

/// Adds the containers that have not ended, where it is not known how far kubelet is.
fn wait_for_ends(draft: &mut Draft, record: &PodRecord) {
    let all: Vec<_> = running(record).collect();
    if let [only] = all[..] {
        let name = clip(&safe(only.name.as_bytes()), NAME);
        draft.held_by(Who::object(format!("the container {name}")));
        draft.must = Some("end");
    }
    for it in all {
        let hook = match it.has_pre_stop {
            true => {
                " and has a preStop hook, which kubelet runs before it asks the runtime to stop the container"
            }
            false => "",
        };
        draft.fact(format!("{} runs{hook}", safe(it.name.as_bytes())), of(record));
        end(draft, it, IN_ITS_TIME);
    }
}

/// What the pod waits for after the end of its grace period, while no SIGKILL was sent: for one more, which the runtime
/// was given after the preStop hook, or for that hook, which kubelet runs for as long as the grace period was when it
/// began (pkg/kubelet/kuberuntime, `executePreStopHook`).
pub(super) fn in_stop(record: &PodRecord, here: Here<'_>, deletion: Timestamp) -> Option<Draft> {
    let mut draft = draft(&IN_GRACE, record, here);
    draft.blocks_deletion = Some(false);
    draft.fact(format!("its deletionTimestamp has passed ({deletion:.0})"), of(record));
    if let Some((ends, log)) = here.stop_ends.filter(|(ends, _)| here.now < *ends) {
        let left = ends.duration_since(here.now).as_secs();
        draft.fact(
            format!(
                "kubelet has asked the runtime to stop a container within a grace period that ends in {left} s, at \
                 {ends:.0}"
            ),
            Source::Log(log.to_owned()),
        );
        draft.explanation = format!(
            "It is not stuck yet: the runtime sends SIGKILL to the container at {ends:.0}. Before Kubernetes 1.28, \
             kubelet gives the runtime the whole grace period where a preStop hook has used it up before."
        );
        running(record).for_each(|it| end(&mut draft, it, BEFORE_ITS_TURN));
        outlast(&mut draft, here);
        return Some(draft);
    }
    let not_asked = here.not_asked?;
    let hooked: Vec<_> = running(record).filter(|it| it.has_pre_stop).collect();
    draft.held_by(hook_of(hooked.first()?));
    draft.fact(not_asked.fact(), Source::Log(not_asked.log.to_owned()));
    for it in &hooked {
        let name = safe(it.name.as_bytes());
        draft.fact(format!("{name} runs and has a preStop hook"), of(record));
        end(&mut draft, it, BEFORE_ITS_TURN);
    }
    draft.doubt("whether the hook still runs: kubelet logs neither its start nor its end");
    draft.explanation = "kubelet waits for a preStop hook, and asks the runtime to stop the container afterwards. It \
        waits as long as the grace period was when the hook began: before Kubernetes 1.36, a later deletion with a \
        shorter one does not end the hook."
        .into();
    Some(draft)
}

fn hook_of(container: &ContainerRecord) -> Who {
    let name = clip(&safe(container.name.as_bytes()), NAME);
    Who::object(format!("the preStop hook of {name}"))
}

/// The containers that run, according to the record.
fn running(record: &PodRecord) -> impl Iterator<Item = &ContainerRecord> {
    let containers = record.containers.as_deref().unwrap_or_default();
    containers.iter().filter(|it| it.state == ContainerState::Running)
}

/// An addition to what a command does, and its risk.
type Early = (&'static str, &'static str);
const IN_ITS_TIME: Early = (
    " before its grace period ends",
    "it loses the time to end by itself, and nothing waits for a preStop hook of it",
);
const BEFORE_ITS_TURN: Early = (
    " before its turn",
    "nothing waits for its preStop hook, and it ends before containers that may need it",
);

/// Adds the end of a container.
fn end(draft: &mut Draft, it: &ContainerRecord, (early, risk): Early) {
    let name = safe(it.name.as_bytes());
    if let Some((is_dockers, id)) = it.docker_and_id() {
        // crictl gives the container no time by default, Docker ten seconds.
        let program = if is_dockers { "docker stop -t 0" } else { "crictl stop" };
        draft.remedy(
            Step::new(
                format!("end the container {}", clip(&name, NAME)),
                format!("{program} {id}"),
            )
            .so(early),
            risk,
        );
    }
}

/// Adds what kubelet waits for: it runs a container's preStop hook before the container is stopped, and stops sidecars
/// after the containers behind them (pkg/kubelet/kuberuntime, `killContainer` and `terminationOrdering`).
fn wait_for_turns(draft: &mut Draft, record: &PodRecord, not_asked: &NotAsked<'_>) {
    draft.fact(not_asked.fact(), Source::Log(not_asked.log.to_owned()));
    if let Some(first) = running(record).find(|it| it.has_pre_stop) {
        draft.held_by(hook_of(first));
    }
    let containers = record.containers.as_deref().unwrap_or_default();
    let mut waits = Vec::new();
    for it in running(record) {
        let name = safe(it.name.as_bytes());
        let behind = containers.iter().skip_while(|other| other.name != it.name).skip(1);
        let mut behind =
            behind.filter(|other| other.id.is_none() && other.state == ContainerState::Waiting);
        waits.push(match behind.next() {
            _ if it.has_pre_stop => format!("{name} runs and has a preStop hook"),
            Some(other) if it.is_sidecar => format!(
                "{name} runs and is a sidecar, which kubelet stops after the containers behind \
                it, and {} was never started",
                safe(other.name.as_bytes())
            ),
            _ => format!("{name} runs"),
        });
        end(draft, it, BEFORE_ITS_TURN);
    }
    for wait in waits {
        draft.fact(wait, of(record));
    }
    draft.explanation = "It is not stuck yet: kubelet waits. kubelet asks the runtime to stop a \
        container after its preStop hook, and a sidecar after the containers behind it, and \
        waits at most for the grace period."
        .into();
}
