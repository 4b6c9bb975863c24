//! What the tool itself costs.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use anyhow::{Context, Result};
use aya::{
    Ebpf,
    sys::{Stats, enable_stats},
};
use nix::sys::resource::{UsageWho, getrusage};

use crate::model::summary::SelfCost;

/// Measures the run time of the probes while it lives. The kernel then reads the clock twice more
/// for each program run on the whole node, so it is on only when asked for.
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

/// CPU time and memory of this process, and the probes' time per call if there are some and it was measured.
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
    program == "exit" || program.starts_with("fexit_")
}

/// Calls whose return no program saw, because the kernel held programs off on that CPU at that
/// moment (see `tables`). Linux counts them since 6.7; before, they are missed unnoticed.
pub fn skipped(ebpf: &Ebpf) -> u64 {
    let exits = ebpf.programs().filter(|(name, _)| sees_returns(name));
    exits.filter_map(|(_, program)| misses(program.fd().ok()?.as_fd().as_raw_fd())).sum()
}

fn misses(fd: RawFd) -> Option<u64> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    let value = info.lines().find_map(|line| line.strip_prefix("recursion_misses:"))?;
    value.trim().parse().ok()
}
