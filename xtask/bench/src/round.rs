//! One measurement: one workload with one tracer.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use aya::sys::{Stats, enable_stats};
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::place::Volume;
use super::running::{Again, Interrupt, Running};
use super::seen::Seen;
use super::tracer::{Mode, Tracer};
use super::usage;
use super::workload::{Report, Workload, total};

/// Maximum time for a tracer to attach.
pub(crate) const ATTACH_LIMIT: Duration = Duration::from_secs(60);
/// Pause between attaching and the workload.
pub(crate) const SETTLE: Duration = Duration::from_millis(300);
/// Maximum duration of a workload.
const WORKLOAD_LIMIT: Duration = Duration::from_secs(600);
/// Interval between samples of a process during a measurement.
pub(crate) const POLL: Duration = Duration::from_millis(10);

/// The common parameters of all measurements.
pub(crate) struct Bench {
    pub(crate) podstuck: PathBuf,
    /// Another build of podstuck
    pub(crate) before: Option<PathBuf>,
    pub(crate) workload: PathBuf,
    /// The program that plays a kubelet that cannot remove its pods
    pub(crate) stuck: PathBuf,
    /// The folder of the run's files, in memory.
    pub(crate) folder: PathBuf,
    pub(crate) cpu: usize,
    pub(crate) interrupt: Interrupt,
}

/// The subject of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) round: u32,
    pub(crate) workload: Workload,
    pub(crate) tracer: Tracer,
    pub(crate) calls: u64,
    /// Whether to measure the BPF programs' run time, which slows them down.
    pub(crate) program_time: bool,
}

/// The result, as written to the CSV file.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) workload: String,
    pub(crate) tracer: String,
    pub(crate) round: u32,
    /// If true, the time per call is not meaningful.
    pub(crate) program_time: bool,
    pub(crate) calls: u64,
    /// Number of calls that the tracer should have counted.
    pub(crate) truth: u64,
    pub(crate) ns_per_call: f64,
    /// Without the time in which other processes used the processor.
    pub(crate) cpu_ns_per_call: f64,
    pub(crate) program_ns_per_call: Option<f64>,
    /// During the workload.
    pub(crate) tracer_cpu_s: Option<f64>,
    /// From the start to the exit, or to the last sample of a tracer that starts the workload itself.
    pub(crate) tracer_total_cpu_s: Option<f64>,
    pub(crate) rss_kib: Option<u64>,
    pub(crate) seen: Option<u64>,
    pub(crate) seen_of_pod: Option<u64>,
    pub(crate) lost_calls: Option<u64>,
    pub(crate) lost_events: Option<u64>,
    pub(crate) attach_ms: Option<f64>,
    pub(crate) detach_ms: Option<f64>,
    pub(crate) contradiction: Option<String>,
}

impl Bench {
    /// Makes one measurement.
    pub(crate) fn measure(&self, subject: Subject, volume: &Volume) -> Result<Row> {
        let Subject { workload, tracer, .. } = subject;
        let folder = self.folder.join("run");
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        // Disabled when dropped.
        let _stats = subject
            .program_time
            .then(|| enable_stats(Stats::RunTime))
            .transpose()
            .context("cannot switch the measurement of BPF programs on")?;
        let mut row = Row {
            workload: workload.name(),
            tracer: tracer.name(),
            round: subject.round,
            program_time: subject.program_time,
            ..Row::default()
        };
        let before = self.before.as_ref().filter(|_| tracer == Tracer::PodstuckBefore);
        let podstuck = before.unwrap_or(&self.podstuck);
        let (report, seen) = match tracer.mode(workload, podstuck, volume, &folder) {
            Mode::Nothing => (self.run_workload(subject, volume, &folder)?, None),
            Mode::Beside { command, marker } => {
                let began = now_ms()?;
                let mut running = Running::start(command, &folder, "tracer", &self.interrupt)?;
                running.wait_for(marker, ATTACH_LIMIT)?;
                row.attach_ms = Some(now_ms()? - began);
                std::thread::sleep(SETTLE);
                let programs = usage::programs(running.pid())?;
                let (cpu_s, program_ns) =
                    (usage::group_cpu_s(running.pid()), usage::program_ns(&programs)?);
                let report = self.run_workload(subject, volume, &folder)?;
                let program_ns = usage::program_ns(&programs)?.saturating_sub(program_ns);
                row.program_ns_per_call =
                    subject.program_time.then(|| program_ns as f64 / report.calls.max(1) as f64);
                row.tracer_cpu_s = Some((usage::group_cpu_s(running.pid()) - cpu_s).max(0.0));
                row.rss_kib = Some(usage::group_rss_kib(running.pid()));
                let before = usage::children_cpu_s()?;
                // bpftrace 0.17 misses a signal that arrives just before it begins to wait.
                let again = if tracer.is_podstuck() { Again::No } else { Again::Yes };
                row.detach_ms = Some(running.stop(again)?.0.as_secs_f64() * 1e3);
                row.tracer_total_cpu_s = Some(usage::children_cpu_s()? - before);
                let (printed, complained) = (running.printed()?, running.complained()?);
                (report, Seen::read(tracer, workload, &printed, &complained, &folder)?)
            }
            Mode::Around(mut command) => {
                let inner = workload.command(&self.workload, volume, subject.calls, self.cpu);
                command.arg(inner.get_program()).args(inner.get_args());
                let began = now_ms()?;
                let mut running = Running::start(command, &folder, "tracer", &self.interrupt)?;
                let pid = running.pid();
                let mut samples: Vec<(f64, f64)> = Vec::new();
                running.succeed(WORKLOAD_LIMIT, POLL, || {
                    row.rss_kib = usage::rss_kib(pid).or(row.rss_kib);
                    // Not the children's time after waiting: whether that contains the workload's time depends on
                    // whether the tracer waits for the workload.
                    samples.extend(now_ms().ok().zip(usage::cpu_s(pid)));
                })?;
                let over = now_ms()?;
                let (printed, complained) = (running.printed()?, running.complained()?);
                let report = parse(&printed)?;
                let up = report.up_ns as f64 / 1e6;
                let cpu_s = |at: Option<&(f64, f64)>| at.map(|sample| sample.1);
                let before = cpu_s(samples.iter().rfind(|sample| sample.0 <= up)).unwrap_or(0.0);
                row.tracer_total_cpu_s = cpu_s(samples.last());
                row.tracer_cpu_s = row.tracer_total_cpu_s.map(|total| total - before);
                row.attach_ms = Some(up - began);
                row.detach_ms = Some(over - report.over_ns as f64 / 1e6);
                (report, Seen::read(tracer, workload, &printed, &complained, &folder)?)
            }
        };
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
        let truth = report.truth();
        row.calls = report.calls;
        row.ns_per_call = report.ns_per_call;
        row.cpu_ns_per_call = report.cpu_ns_per_call;
        row.truth = total(&truth);
        if let Some(seen) = seen {
            row.contradiction = seen.contradiction(tracer, &truth);
            row.seen = Some(seen.calls);
            row.seen_of_pod = seen.of_pod.as_ref().map(total);
            row.lost_calls = Some(seen.lost_calls);
            row.lost_events = Some(seen.lost_events);
        }
        Ok(row)
    }

    fn run_workload(&self, subject: Subject, volume: &Volume, folder: &Path) -> Result<Report> {
        let command = subject.workload.command(&self.workload, volume, subject.calls, self.cpu);
        let mut running = Running::start(command, folder, "workload", &self.interrupt)?;
        running.succeed(WORKLOAD_LIMIT, POLL, || {})?;
        parse(&running.printed()?)
    }
}

/// Parses the output of the workload's program.
pub(crate) fn parse(printed: &str) -> Result<Report> {
    serde_json::from_str(printed.trim())
        .with_context(|| format!("the workload printed something else than a report: {printed}"))
}

/// The clock that the workload's program reads as well.
pub(crate) fn now_ms() -> Result<f64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).context("cannot read the clock")?;
    Ok(Duration::from(now).as_secs_f64() * 1e3)
}
