//! The resources that a tracer uses.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use aya::programs::loaded_programs;
use nix::sys::resource::{UsageWho, getrusage};
use procfs::process::{Process, all_processes};

/// CPU time so far of the living threads of a process group, in seconds.
pub(crate) fn group_cpu_s(group: i32) -> f64 {
    members(group).filter_map(|process| threads_cpu_s(&process)).sum()
}

/// The same of one process; `None` if it has ended.
pub(crate) fn cpu_s(pid: i32) -> Option<f64> {
    threads_cpu_s(&Process::new(pid).ok()?)
}

/// From `schedstat`, because the clock ticks of `stat` are longer than a short workload.
fn threads_cpu_s(process: &Process) -> Option<f64> {
    let times = process.tasks().ok()?.filter_map(|task| task.ok()?.schedstat().ok());
    let nanoseconds: u64 = times.map(|times| times.sum_exec_runtime).sum();
    (nanoseconds > 0).then_some(nanoseconds as f64 / 1e9)
}

/// CPU time of all children that were waited for so far, with their descendants', in seconds.
pub(crate) fn children_cpu_s() -> Result<f64> {
    let usage =
        getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot read the children's CPU time")?;
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// Resident memory of one process in KiB; `None` if it has ended.
pub(crate) fn rss_kib(pid: i32) -> Option<u64> {
    Process::new(pid).and_then(|process| process.status()).ok()?.vmrss
}

/// Resident memory of a process group in KiB.
pub(crate) fn group_rss_kib(group: i32) -> u64 {
    members(group).filter_map(|process| process.status().ok()?.vmrss).sum()
}

fn members(group: i32) -> impl Iterator<Item = Process> {
    all_processes()
        .into_iter()
        .flatten()
        .flatten()
        .filter(move |process| process.stat().is_ok_and(|stat| stat.pgrp == group))
}

/// The BPF programs that a process holds; those of other processes are not its cost.
pub(crate) fn programs(pid: i32) -> Result<BTreeSet<u32>> {
    let folder = format!("/proc/{pid}/fdinfo");
    let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read {folder}"))?;
    Ok(entries
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path()).ok())
        .filter_map(|text| {
            text.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok())
        })
        .collect())
}

/// Run time of the programs so far, in nanoseconds.
pub(crate) fn program_ns(programs: &BTreeSet<u32>) -> Result<u128> {
    let mut sum = 0;
    for info in loaded_programs() {
        let info = info.context("cannot list the BPF programs")?;
        if programs.contains(&info.id()) {
            sum += info.run_time().as_nanos();
        }
    }
    Ok(sum)
}
