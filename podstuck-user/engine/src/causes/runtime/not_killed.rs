//! A container whose runtime gave up waiting for its end, and whose process was not killed.

use std::time::Duration;

use crate::{
    causes::runtime::{suspect::Suspect, verdict},
    command::{Process, kill},
    ids,
    model::{
        evidence::Source, path::safe_path, pod_group::Task, runtime::Shim, said::Complaint,
        time::Monotonic,
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
    draft.held_by(who.clone());
    if let Some((at, log)) = killed {
        draft.fact_since("the runtime logged that it sent SIGKILL", Source::Log(log.into()), at);
        draft.doubt("where that SIGKILL went: gVisor and Kata send it inside their sandbox");
    }
    // Each program that the shim starts has its working directory.
    let homeless = suspect
        .shim()
        .filter(|shim| shim.lost_directory && suspect.complaint == Complaint::KillFails);
    draft.explanation = match suspect.complaint {
        Complaint::KillFails => {
            let why = match homeless {
                Some(shim) => format!(
                    ": the working directory of {}, the shim that starts it, is deleted, and the OCI runtime asks for it first",
                    shim.who()
                ),
                None => String::new(),
            };
            format!(
                "The OCI runtime, which the shim starts to signal the container, fails before it sends a signal{why}. {who} \
                 keeps running. kubelet retries, and each attempt fails in the same way."
            )
        }
        Complaint::SignalRefused => format!(
            "The kernel refuses the runtime's signal to {who} with EPERM. runc runs as root, so a security module \
             refuses the signal, or an agent that protects its own processes in the kernel. kubelet retries, and \
             each attempt fails in the same way."
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
        draft.doubt("which security module or agent refuses: the kernel does not say");
    }
    if suspect.complaint == Complaint::KillFails && homeless.is_none() {
        draft.advice(
            "repair what the OCI runtime's error names: kubelet's next attempt then succeeds",
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
    verdict::restart(draft, suspect);
    draft.rule_out(ids::SHIM_OR_CONTAINERD_STATE_LOST, "the container's process exists");
    draft.rule_out(ids::DSTATE_PROCESS, "no SIGKILL is pending: the process was not killed");
    draft.rule_out(ids::ZOMBIE_NOT_REAPED, "the container's processes are alive");
    let fact = "the container's processes have taken no fatal signal";
    draft.rule_out(ids::TRACER_KEEPS_PROCESS, fact);
    draft.rule_out(ids::CGROUP_V1_FROZEN, "the pod's control group is not frozen");
    draft.rule_out(ids::SHIM_HUNG, verdict::NO_HALTED_SHIM);
    draft.rule_out(ids::SANDBOX_NOT_STOPPED, verdict::NODES_OWN_KERNEL);
}
