//! What the tool itself costs.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use anyhow::{Context, Result};
use aya::{
    Ebpf,
    programs::ProgramType,
    sys::{Stats, enable_stats},
};
use nix::sys::resource::{UsageWho, getrusage};

use podstuck_confine::facts;
use podstuck_model::summary::SelfCost;

/// Measures the run time of the probes while it lives. The kernel then reads the clock twice more for each program
/// run on the whole node, so it is on only when asked for.
pub struct ProgramTimes {
    _enabled: OwnedFd,
}

impl ProgramTimes {
    /// Switches the kernel's measurement on. Needs `CAP_SYS_ADMIN`.
    pub fn enable() -> Result<Self> {
        let enabled =
            enable_stats(Stats::RunTime).context("switching BPF run time statistics on")?;
        Ok(Self { _enabled: enabled })
    }
}

/// CPU time and memory of this process, and the probes' time per call if there are probes and it was measured.
pub fn measure(ebpf: Option<&Ebpf>, measured: Option<&ProgramTimes>) -> SelfCost {
    let cpu_s = getrusage(UsageWho::RUSAGE_SELF)
        .map(|usage| {
            let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
            seconds(usage.user_time()) + seconds(usage.system_time())
        })
        .unwrap_or(0.0);
    let rss_bytes = procfs::process::Process::myself()
        .and_then(|me| me.statm())
        .map(|statm| statm.resident * procfs::page_size())
        .unwrap_or(0);
    SelfCost { cpu_s, rss_bytes, bpf_ns_per_call: measured.and_then(|_| ns_per_call(ebpf?)) }
}

/// Time of all programs over the runs of the exit programs: every call has one.
fn ns_per_call(ebpf: &Ebpf) -> Option<f64> {
    let mut total_ns = 0.0;
    let mut calls = 0;
    for (name, program) in ebpf.programs() {
        let Ok(info) = program.info() else { continue };
        total_ns += info.run_time().as_nanos() as f64;
        if sees_returns(name) {
            calls += info.run_count();
        }
    }
    (calls > 0).then(|| total_ns / calls as f64)
}

/// Whether a program is on the return of a call.
fn sees_returns(program: &str) -> bool {
    program == "exit" || program.starts_with("fexit_") || program.starts_with("kretprobe_")
}

/// The first kernel that counts how often it skipped a program on a tracepoint or a kprobe (`trace_call_bpf` in
/// kernel/trace/bpf_trace.c). Before, the counter exists, for programs by `fentry` (5.12), and stays 0.
const COUNTS_ALL: (u32, u32) = (6, 7);

/// Whether a program is on the entry of a call: it has a twin on the return, or is a tracepoint of one.
fn sees_entries(program: &str) -> bool {
    let of_function = program.strip_prefix("fentry_").or(program.strip_prefix("kprobe_"));
    program.starts_with("enter_") || of_function.is_some_and(|name| !name.starts_with("security_"))
}

/// Calls that programs did not see, because the kernel skipped them on that CPU at that moment (see `tables`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Skipped {
    /// Calls whose entry was missed.
    pub entries: u64,
    /// Calls whose return was missed.
    pub returns: u64,
}

impl Skipped {
    /// The difference to an earlier value.
    pub fn since(self, then: Self) -> Self {
        let Self { entries, returns } = self;
        Self {
            entries: entries.saturating_sub(then.entries),
            returns: returns.saturating_sub(then.returns),
        }
    }
}

/// The kernel's own count; `None` when it does not count all of them.
pub fn skipped(ebpf: &Ebpf) -> Option<Skipped> {
    let release = facts::release();
    let of = |concerned: fn(&str) -> bool| -> Option<u64> {
        let loaded = ebpf.programs().filter_map(|(name, program)| {
            let fd = program.fd().ok().filter(|_| concerned(name))?;
            Some((program.prog_type(), fd.as_fd().as_raw_fd()))
        });
        loaded.map(|(kind, fd)| misses(kind, &release, &fdinfo(fd)?)).sum()
    };
    Some(Skipped { entries: of(sees_entries)?, returns: of(sees_returns)? })
}

fn fdinfo(fd: RawFd) -> Option<String> {
    std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()
}

fn misses(kind: ProgramType, release: &str, fdinfo: &str) -> Option<u64> {
    if kind != ProgramType::Tracing && facts::version(release)? < COUNTS_ALL {
        return None;
    }
    let value = fdinfo.lines().find_map(|line| line.strip_prefix("recursion_misses:"))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_on_the_entry_of_a_call_or_on_its_return() {
        let programs = ["enter_rmdir", "exit", "fentry_rmdir", "fexit_rmdir", "kprobe_umount"];
        assert_eq!(programs.map(sees_entries), [true, false, true, false, true]);
        assert!(programs.iter().all(|name| sees_entries(name) != sees_returns(name)));
        for beside in ["kprobe_security_path_rmdir", "executed", "after_kretprobe"] {
            assert!(!sees_entries(beside) && !sees_returns(beside), "{beside}");
        }
    }

    #[test]
    fn a_count_that_the_kernel_lacks_is_not_zero() {
        const INFO: &str = "pos:\t0\nprog_type:\t5\nrecursion_misses:\t7\n";
        use ProgramType::{KProbe, TracePoint, Tracing};
        assert_eq!(misses(TracePoint, "6.12.1-amd64", INFO), Some(7));
        assert_eq!(misses(KProbe, "6.7.0", INFO), Some(7));
        assert_eq!(
            [TracePoint, KProbe].map(|kind| misses(kind, "6.1.0-30-amd64", INFO)),
            [None; 2]
        );
        assert_eq!(misses(Tracing, "6.1.0-30-amd64", INFO), Some(7));
        assert_eq!(misses(Tracing, "5.10.0-30-amd64", "pos:\t0\n"), None);
        assert_eq!(misses(TracePoint, "unknown", INFO), None);
    }
}
