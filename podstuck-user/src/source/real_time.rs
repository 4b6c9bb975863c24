//! Not being preempted where that would blind the probes.

use std::io;

use nix::libc;

/// The lowest: everything else of real time goes first.
const PRIORITY: libc::c_int = 1;

/// Lets the calling thread run before all ordinary ones, so that none takes its CPU while it is in
/// the kernel. Needs `CAP_SYS_NICE`, and a cgroup with real-time bandwidth where the kernel hands
/// that out by cgroup (`CONFIG_RT_GROUP_SCHED`). The kernel still lets other threads have 5 % of
/// each CPU (`sched_rt_runtime_us`). Children do not inherit it.
pub(super) fn enable() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: PRIORITY };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the parameters live through the call, which reads them only; 0 is this thread.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
