//! The processes of a PID namespace whose init process has exited. The kernel kills them all, and init collects the exit
//! status of those that are its children or become so: what stays is a process that cannot exit, or a zombie whose parent or
//! tracer is outside.

use std::path::{Path, PathBuf};

use podstuck_confine::{proc, silent};
use podstuck_model::{
    path::safe,
    pod_group::{Member, Reaper},
};
use procfs::{
    FromRead as _,
    process::{Process, Stat, Status},
};

use crate::identity::cgroup::group_of;

/// The kernel function in which init waits for them.
pub(super) const INIT_WAITS: &str = "zap_pid_ns_processes";
/// Processes of a namespace that are recorded.
const RECORDED: usize = 16;

/// Those beside the init process of a namespace.
pub(super) fn beside(init: u32) -> Vec<Member> {
    let Some(its) = namespace(init) else { return Vec::new() };
    let others = proc::processes().into_iter().filter(|pid| *pid != init);
    let members = others.filter(|pid| namespace(*pid).as_ref() == Some(&its));
    members.filter_map(|pid| member(pid, &its)).take(RECORDED).collect()
}

fn namespace(pid: u32) -> Option<PathBuf> {
    proc::namespace(&place(pid), "pid")
}

fn place(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// The `stat` of a process that answers.
pub(super) fn stat(pid: u32) -> Option<Stat> {
    silent::read(&place(pid), |_| Process::new(pid.cast_signed()).ok()?.stat().ok())
}

fn member(pid: u32, namespace: &Path) -> Option<Member> {
    let stat = stat(pid)?;
    let comm = safe(stat.comm.as_bytes()).into_owned();
    let reaper = has_ended(&stat).then(|| reaper(pid, &stat, namespace)).flatten();
    Some(Member { pid, comm, state: stat.state, reaper })
}

fn reaper(zombie: u32, its: &Stat, of_zombie: &Path) -> Option<Reaper> {
    let tracer = tracer(&place(zombie));
    let pid = tracer.unwrap_or(its.ppid.cast_unsigned());
    // The first process reaps all its children.
    if pid == 1 || namespace(pid)? == of_zombie {
        return None;
    }
    reaping(pid, tracer.is_some())
}

/// The process that traces another one, with what is known of it.
pub(super) fn tracer_of(pid: u32) -> Option<Reaper> {
    reaping(tracer(&place(pid))?, true)
}

fn reaping(pid: u32, traces: bool) -> Option<Reaper> {
    let stat = stat(pid)?;
    Some(Reaper {
        pid,
        started: stat.starttime,
        comm: safe(stat.comm.as_bytes()).into_owned(),
        state: stat.state,
        traces,
        group: group_of(&place(pid)),
    })
}

/// The process that traces another one.
fn tracer(process: &Path) -> Option<u32> {
    u32::try_from(status(process)?.tracerpid).ok().filter(|tracer| *tracer != 0)
}

fn status(process: &Path) -> Option<Status> {
    silent::read(process, |process| Status::from_file(process.join("status")).ok())
}

/// Whether it is the init process of a PID namespace other than this one: `NSpid` has its id in each namespace, this one
/// first (Linux 4.1).
pub(super) fn is_init(pid: u32) -> bool {
    let ids = status(&place(pid)).and_then(|status| status.nspid).unwrap_or_default();
    ids.len() > 1 && ids.last() == Some(&1)
}

/// Whether its parent is to collect its exit: the first thread of a process stands as a zombie, too, as long as
/// another one runs.
pub(super) fn has_ended(stat: &Stat) -> bool {
    stat.state == 'Z' && stat.num_threads <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zombie_whose_threads_run_has_not_ended() {
        let of = |state: char, threads: u32| {
            let text = format!(
                "7 (api) {state} 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 99 {}",
                "0 ".repeat(31)
            );
            has_ended(&Stat::from_read(text.as_bytes()).unwrap())
        };
        assert!(of('Z', 1) && !of('Z', 2) && !of('S', 1));
        assert_eq!(tracer(Path::new("/proc/self")), None);
    }
}
