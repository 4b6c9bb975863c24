//! Makes `bpf(2)` of the thread that reads the tables fail, as a kernel without memory does.

use std::fs;

use nix::{
    libc,
    sys::{
        ptrace::{self, Options},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

pub(super) const UPDATE: u64 = 2;
pub(super) const DELETE: u64 = 3;

/// Its next call of each of these commands, one after the other.
pub(super) fn fail(pid: u32, commands: &[u64]) {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let tables = tasks.filter(|task| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm == "tables\n")
    });
    let tids: Vec<i32> =
        tables.map(|task| task.file_name().to_str().unwrap().parse().unwrap()).collect();
    let [tid] = tids[..] else { panic!("{tids:?}") };
    let tid = Pid::from_raw(tid);
    ptrace::seize(tid, Options::PTRACE_O_TRACESYSGOOD).unwrap();
    ptrace::interrupt(tid).unwrap();
    stopped(tid);
    for command in commands {
        loop {
            ptrace::syscall(tid, None).unwrap();
            stopped(tid);
            let mut registers = ptrace::getregs(tid).unwrap();
            let is_entry = registers.rax.cast_signed() == -i64::from(libc::ENOSYS);
            if is_entry
                && registers.orig_rax.cast_signed() == libc::SYS_bpf
                && registers.rdi == *command
            {
                registers.orig_rax = u64::MAX;
                ptrace::setregs(tid, registers).unwrap();
                ptrace::syscall(tid, None).unwrap();
                stopped(tid);
                let mut registers = ptrace::getregs(tid).unwrap();
                registers.rax = (-i64::from(libc::ENOMEM)).cast_unsigned();
                ptrace::setregs(tid, registers).unwrap();
                break;
            }
        }
    }
    ptrace::detach(tid, None).unwrap();
}

fn stopped(tid: Pid) {
    let status = waitpid(tid, Some(WaitPidFlag::__WALL)).unwrap();
    assert!(
        matches!(status, WaitStatus::PtraceSyscall(_) | WaitStatus::PtraceEvent(..)),
        "{status:?}"
    );
}
