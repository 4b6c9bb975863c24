//! Processes one after the other with the same process id, as root may have them.
#![allow(clippy::panic, reason = "a test stops at the first surprise")]

use std::{
    ffi::CString,
    os::unix::ffi::OsStrExt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    libc,
    sys::wait::{WaitStatus, waitpid},
    unistd::Pid,
};

/// How long another process may have an id meanwhile.
const BUSY: Duration = Duration::from_secs(5);

/// A process of this user, with this id if one is given, tries so often to delete what is not there, and ends. Its
/// id.
pub(crate) fn deletes(id: Option<i32>, user: u32, path: &Path, times: u32) -> i32 {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let started = Instant::now();
    let child = loop {
        match start(id) {
            Ok(0) => delete_and_end(user, &path, times),
            Ok(child) => break child,
            Err(Errno::EEXIST) if started.elapsed() < BUSY => {
                thread::sleep(Duration::from_millis(1))
            }
            Err(error) => panic!("a process with the id {id:?}: {error}"),
        }
    };
    let status = waitpid(Pid::from_raw(child), None).unwrap();
    assert_eq!(status, WaitStatus::Exited(Pid::from_raw(child), 0));
    child
}

/// As `fork`, with a given id.
fn start(id: Option<i32>) -> nix::Result<i32> {
    let id = id.as_ref();
    let arguments = libc::clone_args {
        exit_signal: libc::SIGCHLD as u64,
        set_tid: id.map_or(0, |id| std::ptr::from_ref(id) as u64),
        set_tid_size: u64::from(id.is_some()),
        // SAFETY: made of integers.
        ..unsafe { std::mem::zeroed() }
    };
    let size = size_of_val(&arguments);
    // SAFETY: without flags it is `fork`; the child only makes system calls.
    let child = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size) };
    Errno::result(child).map(|child| i32::try_from(child).unwrap())
}

/// Nothing here takes a lock: another thread may have had it when the process was copied.
fn delete_and_end(user: u32, path: &CString, times: u32) -> ! {
    // SAFETY: system calls with integers and a string that lives.
    unsafe {
        if libc::syscall(libc::SYS_setresuid, user, user, user) != 0 {
            libc::_exit(1);
        }
        for _ in 0..times {
            libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, path.as_ptr(), 0);
        }
        libc::_exit(0)
    }
}
