//! Findings about processes that are left of a pod.

use std::{path::Path, sync::Arc};

use crate::{
    cause::Cause,
    causes::{
        network_storage,
        shared::{fuse, kernel_lock, stalled::Silent, thaw::thaw, unit},
        unkillable::{
            causes::{CGROUP_POPULATED, DSTATE, FROZEN_V1, TRACED, ZOMBIE},
            tracker::{Fault, OnNfs, Suspect},
        },
    },
    command::{NAME, Process, Step, View, has_ended, if_same, kill},
    ids,
    model::{
        chain::Who,
        evidence::Source,
        finding::Severity,
        identity::{Actor, Component, Target},
        path::{clip, safe_path},
        pod_group::{Reaper, Task},
        shell::word,
    },
    tracker::TrackerId,
    verdict::Draft,
};

/// Processes named.
const NAMED: usize = 6;
/// Volumes of the pod that may be thawed.
const THAWED: usize = 2;
/// Daemons of the node, which are restarted and not killed.
const DAEMONS: [&str; 4] = ["containerd", "crio", "dockerd", "kubelet"];
/// NFS volumes of the pod that may be unmounted.
const UNMOUNTED: usize = 4;

/// The finding.
pub(crate) fn draft(suspect: &Suspect<'_>, target_id: u64, target: Arc<Target>) -> Draft {
    let task = suspect.task();
    let wait = task.map(super::wait::of_task);
    let cause: &'static Cause = match (suspect.fault, wait) {
        (Fault::Frozen, _) => &FROZEN_V1,
        (Fault::Leftover, _) => &CGROUP_POPULATED,
        (Fault::Zombie { .. }, _) => &ZOMBIE,
        (Fault::Traced { .. }, _) => &TRACED,
        (Fault::Unkillable { .. }, wait) => wait.map_or(&DSTATE, |wait| wait.cause),
    };
    let group = match (&suspect.group.frozen, suspect.fault) {
        (Some(frozen), Fault::Frozen) => frozen,
        (_, Fault::Unkillable { .. } | Fault::Zombie { .. } | Fault::Traced { .. }) => {
            task.map_or(&suspect.group.path, |task| &task.group)
        }
        _ => &suspect.group.path,
    };
    let actor = task.map(|task| Actor {
        pid: task.pid,
        started: Some(task.started),
        comm: task.comm.clone(),
        cgroup: Some(safe_path(&task.group).into_owned()),
        component: Component::Workload,
        pod: target.pod.clone(),
        parent: None,
    });
    let path = group.clone();
    let mut draft =
        Draft::about_state(TrackerId::Unkillable, cause, target_id, target, path, suspect.at);
    draft.actor = actor.map(Arc::new);
    draft.first = suspect.since;
    draft.blocks_deletion = Some(true);
    draft.severity = Severity::Critical;
    match (suspect.fault, task, wait) {
        (Fault::Frozen, ..) => frozen(&mut draft, suspect),
        (Fault::Unkillable { .. }, Some(task), Some(wait)) => {
            unkillable(&mut draft, suspect, task, wait);
        }
        (Fault::Zombie { .. }, Some(init), _) => zombie(&mut draft, suspect, init),
        (Fault::Traced { .. }, Some(task), _) => traced(&mut draft, suspect, task),
        _ => leftover(&mut draft, suspect),
    }
    draft
}

/// Adds what `/proc` says about a process.
fn describe(draft: &mut Draft, task: &Task) {
    let Task { pid, tid, comm, state, .. } = task;
    let end = match (task.killed, task.exiting) {
        (true, _) => ", has SIGKILL pending",
        (false, true) => ", has taken a fatal signal and is ending",
        _ => "",
    };
    let thread = if pid == tid { String::new() } else { format!(", in thread {tid}") };
    let source = Source::proc(format!("/proc/{pid}/task/{tid}/stat"));
    draft.held_by(Who::process(comm, *pid));
    draft.fact(format!("process {pid} ({comm}) is in state {state}{thread}{end}"), source);
}

fn unkillable(draft: &mut Draft, suspect: &Suspect<'_>, task: &Task, wait: &super::wait::Wait) {
    kernel_lock::tell(draft, &task.lock);
    describe(draft, task);
    let place = format!("/proc/{}/task/{}", task.pid, task.tid);
    if let Some(channel) = &task.wait_channel {
        draft.fact(
            format!("it waits in the kernel function {channel}"),
            Source::proc(format!("{place}/wchan")),
        );
    }
    if !task.stack.is_empty() {
        let stack: Vec<&str> = task.stack.iter().take(10).map(String::as_str).collect();
        draft.fact(
            format!("its kernel stack: {}", stack.join(" < ")),
            Source::proc(format!("{place}/stack")),
        );
    }
    if let Some(directory) = &task.directory {
        let directory = safe_path(directory);
        draft.fact(
            format!("its working directory is {directory}"),
            Source::proc(format!("{place}/cwd")),
        );
    }
    duration(draft, suspect);
    draft.explanation = format!(
        "The process was killed but cannot end: it waits in the kernel, where no signal reaches it. By the kernel \
         function's name, it waits for {}. kubelet and the runtime wait for the process, and nothing of the pod is \
         unmounted or removed meanwhile. The process ends by itself as soon as its wait in the kernel ends.",
        wait.what
    );
    let comm = clip(&task.comm, NAME);
    if std::ptr::eq(wait, &raw const super::wait::PAGE) {
        aborts(draft, suspect);
        if !suspect.fuse.is_empty() {
            draft.doubt("whether the page that it waits for belongs to that FUSE file system");
        }
    }
    if std::ptr::eq(wait, &raw const super::wait::FUSE) {
        aborts(draft, suspect);
    }
    if std::ptr::eq(wait, &raw const super::wait::FROZEN) {
        thaws(draft, suspect);
    }
    if wait.may_be_a_disk() {
        disks(draft, suspect);
    }
    if std::ptr::eq(wait, &raw const super::wait::NFS) {
        unmounts(draft, suspect);
    }
    draft.remedy(
        Step::new(
            format!("show where in the kernel {comm} (pid {}) waits", task.pid),
            format!("cat {place}/stack"),
        ),
        "none",
    );
    kernel_lock::release(draft, &task.lock);
    draft.remedy(Step::new(wait.look.1, wait.look.0), "none");
    draft.advice(wait.advice.0, wait.advice.1);
    draft
        .advice(
            "as the last resort, drain the node and reboot it",
            "no signal and no `--force` removes such a process, and a pod that is deleted by force leaves \
             it, its volumes and its mounts behind",
        )
        .affects("every pod of the node");
    if suspect.is_alive {
        draft.doubt(
            "whether it makes progress: it is woken, reads or writes, or its server answers, from time to time",
        );
    }
    draft.rule_out(ids::APPARMOR_SIGNAL_DENIED, "the signal was delivered");
    draft.rule_out(ids::CONTAINER_NOT_KILLED, "the signal was delivered");
    draft.rule_out(ids::CGROUP_V1_FROZEN, "its control group is not frozen");
    draft.rule_out(ids::CGROUP_POPULATED_LEFTOVER, "the process was killed, and cannot end");
    draft.rule_out(ids::DSTATE_PROCESS, "a function of NVIDIA's driver is in its stack");
    draft.rule_out(ids::ZOMBIE_NOT_REAPED, "the process is in state D, and not a zombie");
    let fact = "the process is in state D, and not stopped by a tracer";
    draft.rule_out(ids::TRACER_KEEPS_PROCESS, fact);
    // Without a stack, a lock's name alone may hide the driver behind it.
    if wait.is_known() || !task.stack.is_empty() {
        draft.rule_out(ids::GPU_DRIVER_DSTATE, "it waits in no function of NVIDIA's driver");
    }
}

/// The FUSE mounts of the pod's volumes, whose connections can be aborted. A FUSE server that is killed while it waits for
/// its own file system waits for itself: only the end of the connection ends that.
fn aborts(draft: &mut Draft, suspect: &Suspect<'_>) {
    for (mount, view) in &suspect.fuse {
        let (point, number) = (safe_path(&mount.point), mount.device.minor);
        draft.fact(
            format!("{point}, in a volume of the pod, is a FUSE mount, connection {number}"),
            Source::mountinfo(&mount.source),
        );
        let words = format!("connection {number} belongs to the mount and has waiting requests");
        let is_its = fuse::is_its(*view, mount.id, number);
        let checks = [fuse::control(), is_its, fuse::waits(number)].join(" && ");
        let does = view.says("abort the FUSE connection of", &mount.point);
        draft.remedy(
            Step::new(does, fuse::abort(number)).only_if(checks, words),
            "every request of this file system fails with ECONNABORTED: what the server had not written is lost",
        );
    }
}

/// Adds the block devices that do not answer: the pod's own, or else all of the node, since the function names do not
/// show which device it is. Where none is known not to answer, it may still be one of the pod's.
fn disks(draft: &mut Draft, suspect: &Suspect<'_>) {
    let mut points = Vec::new();
    let mut silent: Vec<Silent<'_>> = Vec::new();
    for (mount, _) in suspect.on_disk.iter().take(THAWED) {
        let (point, what) = (safe_path(&mount.point), &mount.what);
        draft.fact(
            format!("{point}, a volume of the pod, is on a block device: {what}"),
            Source::mountinfo(&mount.source),
        );
        points.push(point);
        silent.extend(suspect.stalled.below(mount.device));
    }
    let is_its = !silent.is_empty();
    if !is_its {
        silent = suspect.stalled.all();
        silent.truncate(NAMED);
    }
    silent.sort_by_key(|it| it.disk.device);
    silent.dedup_by_key(|it| it.disk.device);
    if let [only] = &silent[..]
        && is_its
    {
        draft.waits_for = Some(only.words());
    }
    let doubt =
        if is_its { "" } else { ", if the process waits for it: no volume of the pod is on it" };
    for it in &silent {
        it.tell(draft);
        it.release(draft, doubt);
    }
    if silent.is_empty() && !points.is_empty() {
        draft.advice(
            format!(
                "bring back the device of {}, or the server behind it, if that device does not answer: for a disk on \
                 the network (iSCSI, NVMe over Fabrics, RBD), its session or its controller",
                points.join(" or ")
            ),
            "none; removing the device instead makes its requests fail, and what was not yet written is lost",
        );
    }
}

/// Adds forced unmounts of the pod's NFS volumes: the function names do not show which one it is. The process waits for
/// each of its open files in turn.
fn unmounts(draft: &mut Draft, suspect: &Suspect<'_>) {
    for OnNfs { mount, view, sharers } in suspect.on_nfs.iter().take(UNMOUNTED) {
        draft.fact(
            format!("{}, a volume of the pod, is on {}", safe_path(&mount.point), mount.what),
            Source::mountinfo(&mount.source),
        );
        draft.remedy(
            view.on_mount("umount -f", &mount.point, Some(mount.id))
                .so(", for whose server the process may wait")
                .repeated()
                .forced(sharers.clone()),
            network_storage::FORCED,
        );
    }
}

/// Adds thaws of the pod's file systems: the function names do not show which one is frozen.
fn thaws(draft: &mut Draft, suspect: &Suspect<'_>) {
    for (mount, view) in suspect.on_disk.iter().take(THAWED) {
        draft.remedy(
            thaw(*view, &mount.point, Some(mount.id))
                .so(", for which the process may wait: the command fails where it is not frozen"),
            "low, unless a backup or a snapshot in progress has frozen it: check that first",
        );
    }
}

fn frozen(draft: &mut Draft, suspect: &Suspect<'_>) {
    let file = draft.path.join("freezer.state");
    draft.held_by(Who::object(format!("the frozen control group {}", safe_path(&draft.path))));
    draft.fact("the control group is frozen", Source::proc(safe_path(&file)));
    if let Some(task) = suspect.task() {
        describe(draft, task);
    }
    if let Some(killed) = suspect.killed {
        draft.fact_since(
            "the runtime sent SIGKILL to the container, which ends a frozen process as soon as its group is thawed: \
             the group has been frozen since",
            Source::Log(killed.source.clone()),
            killed.at,
        );
    }
    duration(draft, suspect);
    if suspect.may_be_brief() {
        draft
            .doubt("whether it lasts: a snapshot or a checkpoint freezes a group for some seconds");
    }
    draft.explanation =
        "A process that the cgroup v1 freezer has frozen takes no signal, not even SIGKILL. Something froze the \
         control group (a pause, a checkpoint, or a runc that was interrupted between freezing and thawing), and \
         nothing thaws it. With cgroup v2, a frozen process dies when it is killed."
            .into();
    let file = word(&file);
    draft.remedy(
        Step::new(
            View::OURS.says("thaw the control group", &draft.path),
            format!("echo THAWED > {file}"),
        )
        .verified_by(format!("grep -qx THAWED {file}")),
        "low: the processes continue, and those that were killed end at once. If the pod was paused on purpose, its \
         other processes continue as well",
    );
    let fact = "a frozen process is also in state D, but waits for nothing else";
    draft.rule_out(ids::DSTATE_PROCESS, fact);
    draft.rule_out(ids::GPU_DRIVER_DSTATE, fact);
    draft.rule_out(ids::CGROUP_POPULATED_LEFTOVER, "the group is frozen");
    draft.rule_out(ids::CONTAINER_NOT_KILLED, "a SIGKILL is pending");
}

fn zombie(draft: &mut Draft, suspect: &Suspect<'_>, init: &Task) {
    let Some((zombie, reaper)) = init.zombie() else { return };
    let (name, who) = (zombie.who(), reaper.who());
    let (role, stat) = (reaper.role(), format!("/proc/{}/stat", reaper.pid));
    held_by(draft, reaper);
    draft.must = Some("reap a zombie in the container, or end");
    draft.fact(
        format!(
            "{} has exited, and waits in zap_pid_ns_processes until its PID namespace is empty",
            init.who()
        ),
        Source::proc(format!("/proc/{}/wchan", init.pid)),
    );
    draft.fact(
        format!("{name}, in that namespace, has ended (state {}), and is not reaped", zombie.state),
        Source::proc(format!("/proc/{}/stat", zombie.pid)),
    );
    let state = reaper.state;
    draft.fact(
        format!(
            "its {role}, {who}, is outside the namespace, in state {state}{}",
            of_group(reaper)
        ),
        Source::proc(stat),
    );
    duration(draft, suspect);
    draft.explanation = format!(
        "The container's init process has exited, and the kernel keeps it until its PID namespace is empty. {name} is \
         still in it: it has ended, but its {role} does not collect its exit status. The runtime waits for the init \
         process, and kubelet for the runtime."
    );
    release(draft, reaper, init, &format!(", which does not reap {name}"));
    draft.rule_out(ids::CONTAINER_NOT_KILLED, "the signal was delivered");
    draft.rule_out(ids::DSTATE_PROCESS, "no killed process of the pod is in state D");
    draft.rule_out(ids::SHIM_HUNG, format!("the zombie's {role} is no shim of the pod"));
    draft.rule_out(ids::SHIM_OR_CONTAINERD_STATE_LOST, "the init process of the container exists");
}

fn traced(draft: &mut Draft, suspect: &Suspect<'_>, task: &Task) {
    let Some(tracer) = &task.traced_by else { return };
    let (name, who) = (task.who(), tracer.who());
    held_by(draft, tracer);
    draft.must = Some("continue or detach from a process of the pod, or end");
    draft.fact(
        format!("{name} has taken a fatal signal, and is stopped by its tracer (state t)"),
        Source::proc(format!("/proc/{}/stat", task.pid)),
    );
    draft.fact(
        format!("its tracer is {who}, in state {}{}", tracer.state, of_group(tracer)),
        Source::proc(format!("/proc/{}/status", task.pid)),
    );
    duration(draft, suspect);
    draft.explanation = format!(
        "The kernel notifies a tracer before a process exits, and stops the process until the \
         tracer continues it. {who} does not, and no further signal reaches {name}. The runtime waits for the process, \
         and kubelet for the runtime."
    );
    release(draft, tracer, task, &format!(", which traces {name}"));
    draft.rule_out(ids::CONTAINER_NOT_KILLED, "the signal was delivered");
    draft.rule_out(ids::DSTATE_PROCESS, "no killed process of the pod is in state D");
}

/// Names the process that must act.
fn held_by(draft: &mut Draft, reaper: &Reaper) {
    draft.actor = Some(Arc::new(Actor {
        pid: reaper.pid,
        started: Some(reaper.started),
        comm: reaper.comm.clone(),
        cgroup: reaper.group.clone(),
        component: Component::Other,
        pod: None,
        parent: None,
    }));
    draft.held_by(reaper.who());
}

fn of_group(reaper: &Reaper) -> String {
    reaper.group.as_ref().map_or_else(String::new, |group| {
        format!(", in the control group {}", safe_path(Path::new(group)))
    })
}

/// How to continue or to end a process, so that another one ends.
fn release(draft: &mut Draft, reaper: &Reaper, held: &Task, why: &str) {
    let process = || Process::new(reaper.pid, Some(reaper.started), Some(&reaper.comm));
    let end = has_ended(held.pid);
    if reaper.is_stopped() {
        draft.remedy(
            kill("kill -CONT", process()).so(", which is stopped").verified_by(&end),
            "low: a process that a signal has stopped continues",
        );
    }
    let unit = reaper.group.as_deref().and_then(unit::of);
    if DAEMONS.contains(&reaper.comm.as_str()) {
        draft.remedies.push(unit::restart_of(&reaper.comm, unit, unit::RUNTIME_RISK));
        return;
    }
    let of_unit =
        unit.map_or_else(String::new, |unit| format!(", a process of {}", clip(unit, NAME)));
    draft.remedy(
        kill("kill -KILL", process()).so(why).verified_by(&end),
        format!(
            "ends {}{of_unit}: first check whether its work is needed",
            clip(&reaper.comm, NAME)
        ),
    );
}

fn leftover(draft: &mut Draft, suspect: &Suspect<'_>) {
    draft.severity = Severity::Warning;
    for task in suspect.group.tasks.iter().take(NAMED) {
        describe(draft, task);
        draft.fact(
            format!("process {} is in {}", task.pid, safe_path(&task.group)),
            Source::proc("cgroup.procs"),
        );
    }
    let count = suspect.group.tasks.len();
    if count > NAMED {
        draft.fact(format!("{count} processes in all"), Source::proc("cgroup.procs"));
    }
    let torn_down = if suspect.seen {
        "the pod's volumes were removed while podstuck watched"
    } else {
        "kubelet has started containers of the pod, and no volume and no container's control group is left"
    };
    let source = if suspect.seen { Source::Probe } else { Source::file("kubelet's directory") };
    draft.fact(torn_down, source);
    if !suspect.seen {
        draft.doubt("whether the pod is being torn down, or is only starting");
        // A runtime that names the groups of its containers in its own way leaves the same traces while the pod runs.
        if !suspect.is_to_go {
            draft.lacks("that the deletion of the pod was requested");
        }
    }
    duration(draft, suspect);
    draft.explanation = "kubelet has removed the pod's volumes and now removes its control groups, which fails with \
        EBUSY while a process is in one of them. kubelet has killed the processes that it found there, so this \
        process was put there later, or is only in the group of another controller. podstuck did not see the removal \
        itself fail: it follows the paths of volumes and containers."
        .into();
    let procs = word(draft.path.join("cgroup.procs"));
    let does = View::OURS.says("list the processes of the control group", &draft.path);
    let list = Step::new(does, format!("cat {procs}"));
    draft.remedy(list, "none; then find out what put the process there");
    for task in suspect.group.tasks.iter().take(NAMED) {
        draft.remedy(
            moved_to_the_top(task, &draft.path),
            "low: leaves the process alive, outside the pod's group and its limits",
        );
    }
    for task in suspect.group.tasks.iter().take(NAMED) {
        draft.remedy(
            if_same("kill", Process::thread(task), format!("kill -9 {}", task.pid))
                .so(", which keeps the control group busy")
                .verified_by(has_ended(task.pid)),
            format!("ends {}: first check whether its work is needed", task.comm),
        );
    }
    let fact = "no process that was killed waits in the kernel";
    draft.rule_out(ids::DSTATE_PROCESS, fact);
    draft.rule_out(ids::CGROUP_V1_FROZEN, "the group is not frozen");
}

/// Moves a process from the pod's groups to the root group, in each hierarchy. In version 2, only the root group may
/// have processes beside child groups with controllers; a move to a group between fails with EBUSY
/// (`cgroup_migrate_vet_dst` in kernel/cgroup/cgroup.c).
fn moved_to_the_top(task: &Task, group: &Path) -> Step {
    let pid = task.pid;
    let name = group.file_name().unwrap_or_default();
    let groups = word(Path::new("*").join(name).join("*"));
    let those = format!(
        "find /sys/fs/cgroup -path {groups} -name cgroup.procs -exec grep -qsx {pid} {{}} \";\""
    );
    let act = format!("echo {pid} | tee $({those} -exec stat -c %m/cgroup.procs {{}} \";\")");
    if_same("move", Process::thread(task), act)
        .so(" out of the pod's control groups")
        .verified_by(format!("[ -z \"$({those} -print)\" ]"))
}

fn duration(draft: &mut Draft, suspect: &Suspect<'_>) {
    let seconds = suspect.lasted().as_secs();
    let fact = format!("this has lasted for at least {seconds} s");
    draft.fact_since(fact, Source::Samples, suspect.since);
}
