//! A container whose runtime gave up waiting for its end, and whose process was not killed.

use std::time::Duration;

use crate::{
    causes::{
        runtime::{suspect::Suspect, verdict},
        shared::holders::is_same_pod,
    },
    command::{Process, Step, kill},
    ids,
    model::{
        chain::Who, evidence::Source, path::safe_path, pod_group::Task, runtime::Shim,
        said::Complaint, shell::is_object_name, time::Monotonic,
    },
    verdict::Draft,
};

/// A killed process ends within milliseconds, and within this time on a busy node.
pub(super) const LASTS: Duration = Duration::from_secs(5);
/// Processes named.
const NAMED: usize = 4;

/// The container's processes, the oldest first, or else those outside the pod's control groups. `None` if there are no processes, if one was killed or cannot run, or
/// if the sandbox has a kernel of its own.
pub(super) fn alive<'a>(suspect: &'a Suspect<'_>) -> Option<Vec<&'a Task>> {
    let (id, group) = suspect.container().zip(suspect.group())?;
    let mut tasks: Vec<&Task> = group.tasks.iter().filter(|task| task.is_in(id)).collect();
    if tasks.is_empty() {
        tasks.extend(&group.outside);
    }
    let runs = group.frozen.is_none() && suspect.halted_shim().is_none();
    if suspect.has_own_kernel() == Some(true) {
        return None;
    }
    let all_live = runs && tasks.iter().all(|task| task.is_alive());
    tasks.sort_by_key(|task| (task.started, task.pid));
    (all_live && !tasks.is_empty()).then_some(tasks)
}

/// The processes of these containers, the oldest first; `None` as for [`alive`].
pub(super) fn alive_in<'a>(
    suspect: &'a Suspect<'_>,
    containers: &[String],
) -> Option<Vec<&'a Task>> {
    let group = suspect.group()?;
    let is_in = |task: &&Task| containers.iter().any(|id| task.is_in(id)) && task.is_alive();
    let mut tasks: Vec<&Task> = group.tasks.iter().filter(is_in).collect();
    tasks.sort_by_key(|task| (task.started, task.pid));
    let can_run = group.frozen.is_none() && suspect.has_own_kernel() != Some(true);
    (can_run && !tasks.is_empty()).then_some(tasks)
}

/// Adds a second deletion with a grace period that kubelet can count.
fn shorten(draft: &mut Draft, suspect: &Suspect<'_>) {
    const RISK: &str =
        "low: kubelet asks the runtime again, and the containers have 30 s to end by themselves";
    let pod = draft.target.pod.clone();
    let named = pod.as_ref().and_then(|it| Some((it.namespace.as_deref()?, it.name.as_deref()?)));
    let uid = suspect.pod.uid.as_str();
    let named =
        named.filter(|(namespace, name)| [*namespace, *name, uid].into_iter().all(is_object_name));
    let Some((namespace, name)) = named else {
        draft.advice("delete the pod again with a grace period of 30 s (`kubectl delete pod NAME --grace-period=30`)", RISK);
        return;
    };
    let act =
        format!("kubectl --namespace {namespace} delete pod {name} --grace-period=30 --wait=false");
    let step = Step::new("delete the pod again, with a grace period that kubelet can count", act);
    let check = is_same_pod(namespace, name, uid);
    draft.remedy(step.only_if(check, "the record is still this pod's".into()), RISK);
}

/// Whether an error says that the whole timeout passed: the grace period and two minutes for kubelet, the grace period
/// for CRI-O. A cancelled wait may have been shorter.
pub(super) fn has_waited(error: &str) -> bool {
    let words = ["DeadlineExceeded", "deadline exceeded", "timeout reached after"];
    words.iter().any(|words| error.contains(words))
}

/// Adds the doubt that the grace period may not be over.
pub(super) fn doubt_grace(draft: &mut Draft) {
    draft.doubt("whether the pod's grace period is over: the wait for the container was cancelled");
}

/// Adds the living processes as facts.
pub(super) fn live(draft: &mut Draft, tasks: &[&Task], of: &str, is_outside: bool) {
    for task in tasks.iter().take(NAMED) {
        let Task { pid, state, .. } = task;
        let term = task.term_words().map(|term| format!(", {term}")).unwrap_or_default();
        let text = format!(
            "process {} of the {of} is alive: state {state}{term}, no SIGKILL is pending",
            task.who()
        );
        draft.fact(text, Source::proc(format!("/proc/{pid}/stat")));
        if is_outside {
            let text = format!(
                "process {} is in the control group {}, outside the pod's: a signal to the container's control group \
                 does not reach it",
                task.who(),
                safe_path(&task.group)
            );
            draft.fact(text, Source::proc(format!("/proc/{pid}/cgroup")));
        }
    }
    if let Some(more) = tasks.len().checked_sub(NAMED).filter(|more| *more > 0) {
        draft.fact(format!("{more} more processes are alive"), Source::proc("control groups"));
    }
}

/// Describes the living processes, and how to end them.
pub(super) fn words(
    draft: &mut Draft,
    suspect: &Suspect<'_>,
    tasks: &[&Task],
    killed: Option<(Monotonic, &str)>,
) {
    let Some(first) = tasks.first() else { return };
    let is_outside = suspect.group().is_some_and(|group| group.is_outside(first));
    live(draft, tasks, if is_outside { "pod" } else { "container" }, is_outside);
    if is_outside {
        draft.lacks("that it is a process of this container");
    }
    let who = first.who();
    draft.held_by(match suspect.endless {
        Some(_) => Who::component("kubelet", None),
        None => who.clone(),
    });
    if let Some((at, log)) = killed {
        draft.fact_since("the runtime logged that it sent SIGKILL", Source::Log(log.into()), at);
        draft.doubt("where that SIGKILL went: gVisor and Kata send it inside their sandbox");
    }
    // Each program that the shim starts has its working directory.
    let homeless = suspect
        .shim()
        .filter(|shim| shim.lost_directory && suspect.complaint == Complaint::KillFails);
    let is_unknown = suspect.logged.said.text.contains("container does not exist");
    draft.explanation = match suspect.complaint {
        Complaint::NoAnswer if suspect.endless.is_some() => format!(
            "The pod's grace period, {} s, is longer than kubelet can count: the timeout of its request to stop the \
             container overflows, and the request ends before it is sent. No signal reaches {who}. kubelet retries, and \
             each attempt fails in the same way.",
            suspect.endless.unwrap_or_default()
        ),
        Complaint::KillFails => {
            let why = match homeless {
                Some(shim) => format!(
                    ": the working directory of {}, the shim that starts it, is deleted, and the OCI runtime asks for it first",
                    shim.who()
                ),
                None if is_unknown => {
                    ": it does not know the container, as where the program of this path is another one than the one that \
                     made the container, or looks elsewhere for its state"
                        .to_owned()
                }
                None => String::new(),
            };
            format!(
                "The OCI runtime, which the shim or the runtime starts to signal the container, fails before it sends a \
                 signal{why}. {who} keeps running. kubelet retries, and each attempt fails in the same way."
            )
        }
        Complaint::SignalRefused => format!(
            "The kernel refuses the runtime's signal to {who} with EPERM. runc runs as root, so a security module \
             refuses the signal, or an agent that protects its own processes in the kernel; or the runtime's service has \
             no CAP_KILL, and the process another user. kubelet retries, and each attempt fails in the same way."
        ),
        Complaint::StateLost => format!(
            "The runtime fails to end the container before it sends a signal: it no longer finds the container, and \
             {who} keeps running. kubelet retries, and each attempt fails in the same way."
        ),
        _ => format!(
            "The runtime's wait for the container to end has run out, and no SIGKILL has reached {who}. While an \
             earlier stop of the container is pending in the runtime, kubelet's next attempts fail in the same way."
        ),
    };
    let is_refused = suspect.complaint == Complaint::SignalRefused;
    if let Some(seconds) = suspect.endless {
        draft.must =
            Some("ask the runtime to stop the container, with a timeout that it can count");
        let fact = format!("its grace period is {seconds} s; kubelet can count to about 292 years");
        draft.fact(fact, Source::Record);
        shorten(draft, suspect);
    }
    if suspect.complaint == Complaint::StateLost {
        draft.doubt("whether the runtime continues by itself once the process has ended: it does not find the \
            container");
    }
    if is_refused {
        draft.advice(
            "lift the protection that refuses the signal (for a security agent, in its console or maintenance mode): \
             kubelet's next attempt then succeeds",
            "the node lacks that protection while it is lifted",
        );
        draft.doubt(
            "which security module or agent refuses, or whether CAP_KILL is missing (`CapabilityBoundingSet=` of the runtime's \
             service): the kernel does not say",
        );
    }
    if suspect.complaint == Complaint::KillFails && homeless.is_none() {
        draft.advice(
            match is_unknown {
                true => {
                    "have the command that the error names call the OCI runtime that made the container: kubelet's next \
                     attempt then succeeds"
                }
                false => "repair what the OCI runtime's error names: kubelet's next attempt then succeeds",
            },
            "none",
        );
        draft.doubt("whether the runtime removes the container once its process has ended: the same program removes it");
    }
    let process = Process::thread(first);
    let risk = "low for a pod that is to be deleted: the container ends at once, without its own clean-up. kubelet \
        wants the same after the grace period";
    let step = kill("kill -9", process);
    draft.remedy(if is_refused { step.so(", which may be refused as well") } else { step }, risk);
    if let Some(shim) = homeless {
        let Shim { pid, started, comm, .. } = shim;
        let fact = format!("the working directory of {}, the shim, is deleted", shim.who());
        draft.fact(fact, Source::proc(format!("/proc/{pid}/cwd")));
        let step = kill("kill -9", Process::new(*pid, Some(*started), Some(comm)));
        draft.remedy(
            step.so(", in whose directory the OCI runtime cannot remove the container either"),
            verdict::KILL_SHIM,
        );
    }
    if suspect.endless.is_none() {
        verdict::restart(draft, suspect);
    }
    draft.rule_out(ids::SHIM_OR_CONTAINERD_STATE_LOST, "the container's process exists");
    draft.rule_out(ids::DSTATE_PROCESS, "no SIGKILL is pending: the process was not killed");
    draft.rule_out(ids::ZOMBIE_NOT_REAPED, "the container's processes are alive");
    let fact = "the container's processes have taken no fatal signal";
    draft.rule_out(ids::TRACER_KEEPS_PROCESS, fact);
    draft.rule_out(ids::CGROUP_V1_FROZEN, "the pod's control group is not frozen");
    draft.rule_out(ids::SHIM_HUNG, verdict::NO_HALTED_SHIM);
    draft.rule_out(ids::SANDBOX_NOT_STOPPED, verdict::NODES_OWN_KERNEL);
}
