//! A sandbox that is a kernel of its own (Kata Containers, gVisor), and that its runtime cannot stop: only its shim can
//! reach the processes in it.

use crate::{
    causes::runtime::{causes::SANDBOX_STAYS, not_killed, suspect::Suspect, verdict},
    command::{Process, kill},
    ids,
    model::{evidence::Source, pod_group::Task, runtime::Shim},
    verdict::Draft,
};

pub(super) const RISK: &str = "low for a pod that is to be deleted: its containers end at once, without their own clean-up, and the \
    runtime cleans up after them";

/// The finding, if the pod has such a sandbox and its processes live.
pub(super) fn draft(suspect: &Suspect<'_>) -> Option<Draft> {
    let group = suspect.group()?;
    let shim = group.shims.iter().find(|shim| shim.has_own_kernel() && !shim.is_halted())?;
    if group.frozen.is_some() {
        return None;
    }
    let mut tasks: Vec<&Task> = group.tasks.iter().filter(|task| task.pid != shim.pid).collect();
    if !tasks.iter().all(|task| task.is_alive()) {
        return None;
    }
    tasks.sort_by_key(|task| (task.started, task.pid));
    let mut draft = verdict::about(&SANDBOX_STAYS, suspect);
    verdict::lacks_again(&mut draft, suspect);
    words(&mut draft, shim, &tasks);
    verdict::restart(&mut draft, suspect);
    Some(draft)
}

fn words(draft: &mut Draft, shim: &Shim, tasks: &[&Task]) {
    not_killed::live(draft, tasks, "sandbox", false);
    let (own, Shim { pid, comm, state, .. }) = (shim.who(), shim);
    draft.fact(
        format!("{own}, the shim of the sandbox, is alive: state {state}"),
        Source::proc(format!("/proc/{pid}/stat")),
    );
    let (who, what) = match tasks.first() {
        Some(first) => {
            let first = first.who();
            (
                own.clone().and(&format!(", with {first}")),
                format!("which does not answer, or refuses ({first})"),
            )
        }
        None => (own.clone(), "which has no other process left".to_owned()),
    };
    draft.held_by(who);
    draft.explanation = format!(
        "The pod's containers run in a sandbox with its own kernel, and only its shim, {own}, can stop them. Each \
         stop fails: the shim passes it to the sandbox, {what}. kubelet retries, and unmounts nothing until the \
         sandbox is stopped."
    );
    let busy = ", which its shim cannot stop";
    if let Some(first) = tasks.first() {
        draft.remedy(kill("kill -9", Process::thread(first)).so(busy), RISK);
    }
    let process = Process::new(*pid, Some(shim.started), Some(comm));
    draft.remedy(kill("kill -9", process).so(", so that the runtime cleans up after it"), RISK);
    draft.doubt(
        "whether the shim waits for its sandbox or has lost it: podstuck cannot query the shim",
    );
    draft.rule_out(ids::SHIM_HUNG, verdict::NO_HALTED_SHIM);
    draft.rule_out(ids::SHIM_OR_CONTAINERD_STATE_LOST, "the shim of the sandbox exists");
    draft.rule_out(
        ids::CONTAINER_NOT_KILLED,
        "the sandbox, not the node's kernel, delivers signals to its containers",
    );
}
