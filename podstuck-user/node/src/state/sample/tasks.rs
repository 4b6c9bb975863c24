//! What is left in a control group: processes by `/proc/PID/stat`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use procfs::FromBufRead as _;

use super::namespace_members;
use crate::state::{kernel_locks, thread::frames};
use podstuck_confine::{nfs_stats, proc, silent};
use podstuck_model::{
    path::safe,
    pod_group::{Task, Term},
};

/// Threads looked at of one process.
const THREADS: usize = 64;
/// The beginning of the names of an io_uring's workers (`create_worker_thread` in io_uring/io-wq.c), which are threads of
/// its process since Linux 5.12.
pub(in crate::state) const WORKER: &str = "iou-wrk-";
/// `SIGKILL` in a mask of signals.
const KILL: u64 = 1 << 8;
/// `SIGTERM` in a mask of signals.
const TERM: u64 = 1 << 14;
/// `PF_EXITING` of include/linux/sched.h.
const EXITING: u64 = 4;
/// `PF_SIGNALED`: it has taken a fatal signal. A tracer may stop it before it exits (`PTRACE_O_TRACEEXIT`), where `SIGKILL`
/// is not pending any more, and no other signal reaches it.
const SIGNALED: u64 = 0x400;

/// What `/proc` says of a process; `None` for one that has ended. The details are read of one that
/// is to end.
pub(super) fn read(pid: u32, group: &Path) -> Option<Task> {
    let first = thread(pid, pid, group)?;
    let dead = matches!(first.state, 'Z' | 'X');
    let mut worst = first;
    // A first thread that waits in the kernel while it exits has taken its SIGKILL, which is still pending for others.
    if dead || worst.killed || worst.exiting || worst.state == 'D' {
        let others = proc::threads(pid).take(THREADS).filter_map(|tid| thread(pid, tid, group));
        let others: Vec<Task> = others.filter(|other| !matches!(other.state, 'Z' | 'X')).collect();
        // A process lives until its last thread has ended, and its threads wait for the workers of its io_uring
        // (`io_wq_exit_workers` in io_uring/io-wq.c).
        let is_worker = |task: &&Task| task.comm.starts_with(WORKER);
        let mut stuck = others.iter().filter(|other| other.is_unkillable());
        let worker = stuck.clone().find(is_worker);
        let first = if worst.is_unkillable() { None } else { stuck.next() };
        match worker.or(first) {
            Some(other) => worst = other.clone(),
            None if dead => worst = others.first()?.clone(),
            None => {}
        }
    }
    if worst.killed || worst.exiting {
        details(&mut worst);
    }
    if worst.state == 't' {
        worst.traced_by = namespace_members::tracer_of(pid);
    }
    Some(worst)
}

fn thread(pid: u32, tid: u32, group: &Path) -> Option<Task> {
    let place = PathBuf::from(format!("/proc/{pid}/task/{tid}"));
    let stat = silent::read(&place, |place| proc::text(&place.join("stat")).ok())?;
    // The name may hold anything, also brackets.
    let open = stat.iter().position(|byte| *byte == b'(')?;
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    let comm = safe(stat.get(open + 1..close)?).into_owned();
    let fields = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    // Fields 3, 9, 22 and 31 to 34 of proc_pid_stat(5).
    let state = fields.first()?.chars().next()?;
    let (killed, flags) = (number(28)? & KILL != 0, number(6)?);
    let exiting = flags & EXITING != 0 || (state == 't' && flags & SIGNALED != 0);
    // Of few, so that the other files are read of few.
    let dumps = (killed || exiting) && state == 'D' && is_dumping(pid, tid) && is_for_dump(&place);
    Some(Task {
        pid,
        tid,
        comm,
        state,
        term: Some(term([number(28)?, number(29)?, number(30)?, number(31)?])),
        is_init: false,
        killed,
        exiting,
        dumps,
        started: number(19)?,
        woken: None,
        moved: None,
        received: None,
        wait_channel: None,
        stack: Vec::new(),
        lock: Vec::new(),
        directory: None,
        group: group.to_owned(),
        traced_by: None,
        members: Vec::new(),
    })
}

/// Finds the init processes of PID namespaces among those that SIGTERM may not end.
pub(super) fn look_for_inits<'a>(tasks: impl Iterator<Item = &'a mut Task>) {
    for task in tasks.filter(|task| matches!(task.term, Some(Term::Default | Term::Ignored))) {
        task.is_init = namespace_members::is_init(task.pid);
    }
}

/// By the masks of signals that are pending for the thread, blocked, ignored and handled.
fn term(masks: [u64; 4]) -> Term {
    let known = [Term::Pending, Term::Blocked, Term::Ignored, Term::Handled];
    let says = masks.into_iter().zip(known).find(|(mask, _)| mask & TERM != 0);
    says.map_or(Term::Default, |(_, term)| term)
}

/// Whether its process writes a core dump. Until that is done, the kernel has its other threads wait where no signal reaches
/// them, up to Linux 5.15 as ones that are exiting: they are busy, not stuck.
fn is_dumping(pid: u32, tid: u32) -> bool {
    let status = fs::read(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    says_dumping(&String::from_utf8_lossy(&status))
}

/// The functions in which a thread writes the core dump of its process, or waits in for the others to stop (`coredump_wait`,
/// inlined in the two others), and those in which these wait until it is written (the last two up to Linux 5.15).
pub(in crate::state) const DUMPS: [&str; 6] =
    ["coredump_wait", "vfs_coredump", "do_coredump", "coredump_task_exit", "exit_mm", "do_exit"];

/// Whether a thread of such a process waits for the core dump, as far as is visible: one that sleeps in another function is
/// what the dump waits for.
fn is_for_dump(place: &Path) -> bool {
    is_dumps(silent::read(place, |place| proc::utf8(&place.join("wchan"))).as_deref())
}

fn is_dumps(channel: Option<&str>) -> bool {
    let channel = channel.map(str::trim).filter(|it| !it.is_empty() && *it != "0");
    channel.is_none_or(|it| DUMPS.contains(&it))
}

/// The line is there since Linux 4.15.
fn says_dumping(status: &str) -> bool {
    let value = status.lines().find_map(|line| line.strip_prefix("CoreDumping:"));
    value.is_some_and(|value| value.trim() == "1")
}

/// How often a thread went to sleep, and so was woken, by its `status`.
fn woken(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}

/// Everything that a thread's `io` counts, so that whatever it does shows.
fn moved(text: &[u8]) -> Option<u64> {
    let io = procfs::process::Io::from_buf_read(text).ok()?;
    let all = [io.rchar, io.wchar, io.syscr, io.syscw, io.read_bytes, io.write_bytes];
    Some(all.into_iter().fold(0, u64::wrapping_add))
}

fn details(task: &mut Task) {
    let place = PathBuf::from(format!("/proc/{}/task/{}", task.pid, task.tid));
    let text = |name| silent::read(&place, |place| fs::read(place.join(name)).ok());
    let status = text("status").unwrap_or_default();
    task.woken = woken(&String::from_utf8_lossy(&status));
    task.moved = text("io").and_then(|text| moved(&text));
    let channel = text("wchan").map(|name| safe(&name).into_owned());
    task.wait_channel = channel.filter(|name| !name.is_empty() && name != "0");
    let stack = text("stack").unwrap_or_default();
    task.stack = frames(&String::from_utf8_lossy(&stack));
    if task.state == 'D' {
        task.lock = kernel_locks::holders(task.tid);
        let pid = task.pid;
        task.received = silent::read(&place, |_| nfs_stats::received_by_all(pid));
    }
    if task.wait_channel.as_deref() == Some(namespace_members::INIT_WAITS) {
        task.members = namespace_members::beside(task.pid);
    }
    // The link is read, not followed.
    task.directory = silent::read(&place, |place| fs::read_link(place.join("cwd")).ok());
}

#[cfg(test)]
mod tests {
    use nix::unistd::ForkResult;

    use super::*;

    #[test]
    fn own_process_is_alive_and_well() {
        let task = read(std::process::id(), Path::new("/g")).unwrap();
        assert!(!task.killed && !task.exiting && !task.is_unkillable());
        assert!(task.started > 0 && task.group == Path::new("/g"));
        assert_eq!(read(u32::MAX >> 1, Path::new("/g")), None);
    }

    #[test]
    fn who_has_ended_and_was_not_waited_for_is_gone() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = || fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        while !ended().contains(") Z ") {
            std::thread::yield_now();
        }
        assert_eq!(read(child.id(), Path::new("/g")), None);
        child.wait().unwrap();
    }

    #[test]
    fn a_process_lives_until_its_last_thread_has_ended() {
        // SAFETY: the child starts a thread and ends its first one, and comes back to nothing of the parent's.
        let child = match unsafe { nix::unistd::fork() }.unwrap() {
            ForkResult::Parent { child } => child,
            ForkResult::Child => {
                std::thread::spawn(|| std::thread::sleep(std::time::Duration::from_secs(600)));
                loop {
                    // SAFETY: the call ends this thread, and nothing else.
                    unsafe { nix::libc::syscall(nix::libc::SYS_exit, 0) };
                }
            }
        };
        let pid = child.as_raw().cast_unsigned();
        while proc::stat(pid, pid).is_some_and(|(state, _)| state != 'Z') {
            std::thread::yield_now();
        }
        let found = read(pid, Path::new("/g"));
        nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL).unwrap();
        nix::sys::wait::waitpid(child, None).unwrap();
        let found = found.unwrap();
        assert!(found.pid == pid && found.tid != pid && found.is_alive(), "{found:?}");
    }

    #[test]
    fn a_killed_process_that_its_tracer_stops_is_exiting() {
        use nix::libc;
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        let ptrace = |request, data: libc::c_int| {
            // SAFETY: the requests of this test take a process, which is our child, and a number.
            unsafe { libc::ptrace(request, pid.cast_signed(), 0, data) }
        };
        assert_eq!(ptrace(libc::PTRACE_SEIZE, libc::PTRACE_O_TRACEEXIT), 0);
        child.kill().unwrap();
        while proc::stat(pid, pid).is_some_and(|(state, _)| state != 't') {
            std::thread::yield_now();
        }
        let task = read(pid, Path::new("/g"));
        assert_eq!(ptrace(libc::PTRACE_CONT, 0), 0);
        child.wait().unwrap();
        let task = task.unwrap();
        let tracer = task.traced_by.as_ref().unwrap();
        assert!(task.exiting && !task.is_alive(), "{task:?}");
        assert_eq!(tracer.pid.cast_signed(), nix::unistd::gettid().as_raw());
    }

    #[test]
    fn wakeups_of_a_thread_are_counted() {
        assert_eq!(woken("Name:\tx\nvoluntary_ctxt_switches:\t12\n"), Some(12));
        assert_eq!(woken("nonvoluntary_ctxt_switches:\t9\n"), None);
        let own = fs::read_to_string("/proc/thread-self/status").unwrap();
        assert!(woken(&own).is_some());
    }

    #[test]
    fn bytes_read_and_written_by_a_thread_are_counted() {
        let text = b"rchar: 1\nwchar: 20\nsyscr: 300\nsyscw: 4000\nread_bytes: 50000\n\
            write_bytes: 600000\ncancelled_write_bytes: 7\n";
        assert_eq!(moved(text), Some(654_321));
        assert_eq!(moved(b"rchar: 1\n"), None);
        let Ok(before) = fs::read("/proc/thread-self/io") else {
            podstuck_testing::skip("a kernel that does not count what threads read");
            return;
        };
        let now = fs::read("/proc/thread-self/io").unwrap();
        assert!(moved(&now) > moved(&before), "reading counts");
    }

    #[test]
    fn who_dumps_core_says_so() {
        assert!(says_dumping("Name:\tx\nCoreDumping:\t1\nTHP_enabled:\t1\n"));
        assert!(!says_dumping("CoreDumping:\t0\n") && !says_dumping("Name:\tCoreDumping: 1\n"));
        assert!(!is_dumping(std::process::id(), std::process::id()));
        assert!(is_dumps(Some("coredump_task_exit")) && is_dumps(Some("vfs_coredump")));
        assert!(is_dumps(None) && is_dumps(Some("0")), "as before, where it is not visible");
        assert!(!is_dumps(Some("percpu_rwsem_wait")), "the dump waits for this thread");
        let place = PathBuf::from(format!("/proc/{0}/task/{0}", std::process::id()));
        let killed = Task { killed: true, state: 'D', ..read(std::process::id(), &place).unwrap() };
        assert!(killed.is_unkillable() && !Task { dumps: true, ..killed }.is_unkillable());
    }
}
