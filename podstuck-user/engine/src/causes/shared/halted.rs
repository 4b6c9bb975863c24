//! Daemons that are kept from running, and the remedies.

use crate::{
    command::{Process, Step, View, if_same, kill},
    model::{evidence::Source, halted::Halted, path::safe_path, shell::word},
    verdict::Draft,
};

/// Adds how a process is kept from running, and the remedy. Returns the reason as words that follow "its". For a process
/// that waits in the kernel, nothing is added.
pub(crate) fn go_on(draft: &mut Draft, process: Process<'_>, halted: &Halted) -> &'static str {
    let pid = process.pid();
    let of = format!("/proc/{pid}");
    match halted {
        Halted::Stopped => {
            draft.fact(format!("process {pid} is stopped"), Source::proc(format!("{of}/stat")));
            let step = kill("kill -CONT", process).so(", which is stopped");
            draft.remedy(
                step.verified_by(format!("! grep -q '^State:.[Tt]' {of}/status")),
                "low: the process continues where it was stopped",
            );
            "process is stopped, by a signal or a debugger"
        }
        Halted::Frozen { group } => {
            let path = safe_path(group);
            draft.fact(
                format!("the control group {path} of process {pid} is frozen"),
                Source::proc("control groups"),
            );
            let (file, thawed) = if group.iter().any(|name| name == "freezer") {
                ("freezer.state", "THAWED")
            } else {
                ("cgroup.freeze", "0")
            };
            let file = word(group.join(file));
            draft.remedy(
                Step::new(
                    View::OURS.says("thaw the control group", group),
                    format!("echo {thawed} > {file}"),
                )
                .verified_by(format!("grep -qx {thawed} {file}")),
                "low, unless a snapshot is being taken just now: ask who froze it",
            );
            "control group is frozen, as for a checkpoint or a snapshot"
        }
        Halted::NoDescriptors { open, most, hard } => {
            draft.fact(
                format!("process {pid} has {open} file descriptors open, of {most} allowed"),
                Source::proc(format!("{of}/fd and {of}/limits")),
            );
            let more = open.max(most).saturating_mul(2);
            let limit = match hard {
                Some(hard) if *hard < more => format!("{more}:{more}"),
                _ => format!("{more}:"),
            };
            let raise = format!("prlimit --pid {pid} --nofile={limit}");
            let step = if_same("raise the limit of open files of", process, raise);
            draft.remedy(
                step.verified_by(format!(
                    "[ \"$(ls {of}/fd | wc -l)\" -lt \"$(prlimit --pid {pid} --nofile --output SOFT --noheadings)\" ]"
                )),
                "low: the process continues at once. A process that leaks descriptors uses up \
                these, too",
            );
            draft.advice(
                format!(
                    "find out what it keeps open (`ls -l {of}/fd`), and raise LimitNOFILE of its service"
                ),
                "none",
            );
            "process has used up its file descriptors, so it accepts no connection, opens no \
            file and starts no program"
        }
        Halted::NoTasks { group, tasks, most } => {
            let path = safe_path(group);
            draft.fact(
                format!(
                    "the control group {path} of process {pid} has {tasks} of the {most} tasks that it may have"
                ),
                Source::proc("control groups"),
            );
            let (max, current) = (word(group.join("pids.max")), word(group.join("pids.current")));
            let more = tasks.max(most).saturating_mul(2);
            let does = View::OURS.says("raise the limit of tasks of the control group", group);
            draft.remedy(
                Step::new(does, format!("echo {more} > {max}"))
                    .verified_by(format!("[ \"$(cat {current})\" -lt \"$(cat {max})\" ]")),
                "low: the process continues at once. Whatever starts tasks without end uses up these, too",
            );
            draft.advice(
                format!(
                    "find out what fills the group (`systemd-cgls {path}`), and raise TasksMax of its service, or the \
                     limit of the container that it is in"
                ),
                "none",
            );
            "control group has as many tasks as it may, so it starts no program and no thread"
        }
        Halted::Waits { .. } => "thread waits in the kernel",
    }
}
