//! The links of the runtime, of a shim and of the processes that they have not ended.

use jiff::Timestamp;

use super::{
    facts::{Facts, RUNTIMES},
    link::{CONTAINER, halted, logged, seen},
};
use crate::{
    model::{
        chain::{Link, LinkFact, Who},
        identity::Component,
        node::PodState,
        path::{clip, safe, safe_path},
        pod_group::{PodGroup, Reaper, Task},
        runtime::{Runtime, Shim, Unreaped},
        said::Said,
        time::Clock,
        waiting::Part,
    },
    wait_channel,
    waits::{COLLECTED, GO_ON, hidden, inside},
};

/// Maximum number of a pod's processes that are named beside the first.
pub(super) const NAMED: usize = 4;

/// What a shim must do.
pub(super) const SHIM_MUST: &str = "end the pod's processes and report their end";

/// The links of the runtime and of the processes that it has not ended.
pub(super) fn of_containers(state: &PodState, facts: &Facts<'_>) -> Vec<Link> {
    // A command of the runtime for the sandbox: the shim is not called before it returns.
    if let Some(hung) = facts.waits.hung_command(facts.clock)
        && hung.by.part == Part::Daemon
    {
        return facts.waits.follow(hung.by.pid, "stop the pod's sandbox", facts.clock).links;
    }
    let group = facts.sample.cgroups.iter().find(|group| group.uid == state.uid);
    let is_outside = |task: &Task| group.is_some_and(|group| group.is_outside(task));
    // The sandbox's own process ends last, unless it is where the runtime's signal may not reach it.
    let is_sandboxs = |task: &Task| group.is_some_and(|group| group.is_sandboxs(task));
    let mut tasks: Vec<&Task> =
        group.iter().flat_map(|group| group.tasks.iter().chain(&group.outside)).collect();
    // The frozen group may be one container's, or lie below it.
    let is_killed = tasks.iter().any(|task| task.killed);
    let runs = |task: &Task| {
        is_killed && !task.killed && group.is_some_and(|group| group.frozen.is_some())
    };
    tasks.sort_by_key(|task| {
        (runs(task), is_sandboxs(task), is_outside(task), task.started, task.pid)
    });
    let shim = group.and_then(|group| shim_of(group));
    // With a complaint, the sandbox's own process is not the reason: it ends when the runtime or kubelet continues.
    let is_left =
        !tasks.is_empty() && tasks.iter().all(|task| is_sandboxs(task) && task.is_alive());
    let complains = facts.last_of(&RUNTIMES).or_else(|| facts.last_of(&[Component::Kubelet]));
    if is_left && complains.is_some() && shim.is_none_or(|shim| !shim.is_halted()) {
        tasks.clear();
    }
    let mut links: Vec<Link> = of_runtime(&state.uid, &tasks, facts).into_iter().collect();
    let waits = facts.waits.shim(facts.clock).filter(|_| !shim.is_some_and(Shim::is_halted));
    if let Some(pid) = waits {
        links.extend(facts.waits.follow(pid, SHIM_MUST, facts.clock).links);
        return links;
    }
    // The shim has no part in the runtime's failure.
    if let Some(shim) = shim.filter(|_| !tasks.is_empty() || !is_left) {
        tasks.retain(|task| task.pid != shim.pid);
        links.push(of_shim(shim, tasks.len(), facts.clock));
        // The other processes end once the tracer releases that one.
        if let Some(tracer) = shim.unreaped.iter().find_map(of_tracer) {
            links.push(tracer);
            return links;
        }
    }
    let Some(first) = tasks.first() else { return links };
    let frozen = group.and_then(|group| group.frozen.as_deref()).filter(|_| !is_outside(first));
    let (waits_for, mut fact) = match frozen {
        Some(group) => (
            Some(format!("the control group {} to be thawed", safe_path(group))),
            "its control group is frozen".to_owned(),
        ),
        // The sandbox's own process ends last, when the runtime stops the sandbox.
        None if is_sandboxs(first) && first.is_alive() => {
            (Some("the runtime to stop the pod's sandbox".to_owned()), of_task(first, None).1)
        }
        None => of_task(first, facts.kill_at),
    };
    if is_outside(first) {
        fact.push_str(&format!(
            "; it is in the control group {}, outside the pod's",
            safe_path(&first.group)
        ));
    }
    if let Some(container) = facts.container_of(first) {
        fact = format!("of the container {}; {fact}", clip(&safe(container.as_bytes()), CONTAINER));
    }
    let others: Vec<String> =
        tasks.iter().skip(1).take(NAMED).map(|task| task.who().to_string()).collect();
    if !others.is_empty() {
        let more = tasks.len() - 1 - others.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        fact.push_str(&format!("; also alive: {}{more}", others.join(", ")));
    }
    let source = format!("/proc/{}/task/{}/stat", first.pid, first.tid);
    let followed = match frozen {
        Some(_) => Vec::new(),
        None => facts.waits.of_task(first.pid, facts.clock),
    };
    let in_kernel = followed.first().filter(|_| first.state == 'D');
    let waits_for = waits_for.or_else(|| in_kernel?.waits_for.clone());
    let hidden = waits_for.is_none().then(hidden);
    let who = first.who().started(facts.clock.after_boot(first.started));
    let mut link = Link { not_visible: hidden, ..seen(who, "end", waits_for, fact, &source) };
    link.facts.extend(followed.iter().take(NAMED).filter_map(own_wait));
    links.push(link);
    links
}

/// What a process waits for by itself, or one that it waits for.
fn own_wait(link: &Link) -> Option<LinkFact> {
    let fact = format!("{} waits for {} ({})", link.who, link.waits_for.as_ref()?, link.fact());
    Some(LinkFact { fact, source: link.source() })
}

/// The shim of a pod: one that is halted or has unreaped children before others.
pub(super) fn shim_of(group: &PodGroup) -> Option<&Shim> {
    let is_idle = |shim: &&Shim| shim.is_halted() || !shim.unreaped.is_empty();
    group.shims.iter().find(is_idle).or_else(|| group.shims.first())
}

pub(super) fn of_shim(shim: &Shim, left: usize, clock: &Clock) -> Link {
    let Shim { pid, comm, state, .. } = shim;
    let who = Who::process(safe(comm.as_bytes()), *pid).started(clock.after_boot(shim.started));
    let (waits_for, fact) = match (&shim.unreaped[..], &shim.wait_channel) {
        _ if shim.is_stopped() => (Some(GO_ON.to_owned()), "it is stopped".into()),
        (_, Some(channel)) => (Some(wait_channel::words(&[], channel)), format!("state {state}")),
        ([child, ..], _) => {
            let fact = format!("{} has ended, but its exit status is not collected", child.who());
            let name = child.who().name;
            let tracer = child.traced_by.as_ref().map(Reaper::who);
            (tracer.map(|tracer| format!("{tracer}, which traces {name}, to detach")), fact)
        }
        ([], None) if left > 0 => {
            (Some("these processes to end".to_owned()), format!("it is alive: state {state}"))
        }
        ([], None) => (None, format!("it is alive: state {state}; no other process of the pod is")),
    };
    let not_visible = waits_for.is_none().then(|| inside(comm));
    Link { not_visible, ..seen(who, SHIM_MUST, waits_for, fact, &format!("/proc/{pid}/stat")) }
}

/// The link of a tracer that hides a process's exit from its parent.
pub(super) fn of_tracer(child: &Unreaped) -> Option<Link> {
    let tracer = child.traced_by.as_ref()?.who();
    let name = child.who();
    let must = format!("detach from {name}, or end");
    let fact = format!("it traces {name}, which has ended, and has not collected its exit status");
    Some(seen(tracer, &must, None, fact, &format!("/proc/{}/status", child.pid)))
}

/// What a process of a container waits for, and the fact that says so. The runtime sends SIGKILL at `kill_at`, if that is
/// known and to come.
fn of_task(task: &Task, kill_at: Option<Timestamp>) -> (Option<String>, String) {
    let term = task.term_words().map(|term| format!(", {term}")).unwrap_or_default();
    let kill = if task.killed { "SIGKILL is pending" } else { "no SIGKILL is pending" };
    let fact = format!("state {}{term}, {kill}", task.state);
    let channel = task.wait_channel.as_deref();
    let waits_for = match task.state {
        'D' => channel.map(|channel| wait_channel::words(&[], channel)),
        't' if let Some(tracer) = &task.traced_by => {
            let or = if task.exiting { "" } else { ", or SIGKILL" };
            let tracer = tracer.who();
            Some(format!("{tracer}, which traces it, to continue it{or}"))
        }
        'T' | 't' => Some(GO_ON.to_owned()),
        'Z' | 'X' => Some(COLLECTED.to_owned()),
        _ if !task.members.is_empty() => Some(of_members(task)),
        _ if task.is_alive() => {
            let when = kill_at.map(|at| format!(" at {at:.0}, when the grace period ends"));
            Some(format!("SIGKILL{}, unless it exits by itself", when.unwrap_or_default()))
        }
        _ => None,
    };
    (waits_for, fact)
}

/// What the init process of a PID namespace waits for when it has exited.
fn of_members(init: &Task) -> String {
    if let Some((zombie, reaper)) = init.zombie() {
        let who = reaper.who();
        return format!("{who} to reap {}", zombie.who());
    }
    let left: Vec<String> =
        init.members.iter().take(NAMED).map(|it| it.who().to_string()).collect();
    format!("the end of its PID namespace's other processes: {}", left.join(", "))
}

/// The runtime that complains about the pod, or else dockerd if the pod's shims are its, or else the first one.
pub(super) fn runtime<'a>(uid: &str, facts: &Facts<'a>) -> Option<&'a Runtime> {
    let of_pod = facts.sample.cgroups.iter().filter(|group| group.uid == uid);
    let is_dockers = || of_pod.flat_map(|group| &group.shims).any(Shim::is_dockers);
    let its = facts.last_of(&RUNTIMES).map(|said| said.component);
    let its = its.or_else(|| is_dockers().then_some(Component::Dockerd));
    let all = &facts.sample.runtimes;
    all.iter()
        .find(|it| Some(it.component) == its)
        .or_else(|| all.first().filter(|_| its.is_none()))
}

/// The link of a runtime that answers kubelet's requests with an error.
pub(super) fn of_answer(uid: &str, said: &Said, facts: &Facts<'_>) -> Option<Link> {
    let runtime = runtime(uid, facts)?;
    let who = Who::component(runtime.component.name(), Some(runtime.pid))
        .started(facts.clock.after_boot(runtime.started));
    let must = "answer kubelet's requests about the pod without an error";
    let fact = said.quote(said.component.name());
    Some(seen(who, must, None, fact, &said.source))
}

pub(super) fn of_runtime(uid: &str, tasks: &[&Task], facts: &Facts<'_>) -> Option<Link> {
    const MUST: &str = "end the pod's processes";
    const SANDBOX: &str = "stop the pod's sandbox";
    let ended = facts.ended_container(uid).filter(|_| tasks.is_empty());
    let ended = ended.map(|it| clip(&safe(it.name.as_bytes()), CONTAINER));
    let must = match &ended {
        Some(name) => &format!("stop the container {name}"),
        None if tasks.is_empty() => SANDBOX,
        None => MUST,
    };
    let Some(runtime) = runtime(uid, facts) else {
        let who = Who::component(facts.sample.gone.first()?.component.name(), None);
        let (its_start, fact) =
            ("its start".to_owned(), "it does not run, but its shims do".into());
        return Some(seen(who, must, Some(its_start), fact, "/proc"));
    };
    let who = Who::component(runtime.component.name(), Some(runtime.pid))
        .started(facts.clock.after_boot(runtime.started));
    if let Some(why) = &runtime.halted {
        return Some(seen(who, must, None, halted(why), "/proc"));
    }
    let waits_for = match tasks.len() {
        0 => None,
        1 => Some("a process of the pod to end".to_owned()),
        count => Some(format!("{count} processes of the pod to end")),
    };
    let mut fact = "it runs, and no error that it logged about the pod is known".to_owned();
    if let Some(name) = ended {
        fact.push_str(&format!("; no process of the container {name} is left"));
    }
    Some(logged(seen(who, must, waits_for, fact, "/proc"), facts.last_of(&RUNTIMES)))
}
