//! Runs machines concurrently.

use std::cmp::Reverse;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use procfs::{Current, Meminfo};

use crate::test::FORGIVEN;
use crate::vm::guest::{End, Guest};
use crate::vm::kind::Kind;
use crate::vm::machine::Machine;
use crate::vm::report::{self, Outcome, Report};

/// Measured: podstuck takes about ten times as long to start as on the machine itself.
const SLOWDOWN: u32 = 10;
/// Measured: a guest is idle about half of its time.
const GUESTS_PER_PROCESSOR: usize = 2;
/// The longest test takes about a minute.
const TEST_LIMIT: Duration = Duration::from_secs(240);
/// The longest takes 1,800 s with three others beside it: with `PREEMPT_RT` all tests are three times as slow.
const GUEST_LIMIT: Duration = Duration::from_secs(2700);

/// How to run the machines.
pub(super) struct Plan<'a> {
    pub(super) backends: &'a [String],
    pub(super) filter: Option<&'a str>,
    pub(super) at_once: Option<usize>,
    pub(super) logs: &'a Path,
}

/// The result of a machine.
pub(super) struct Outcomes {
    pub(super) machine: Machine,
    pub(super) end: End,
    pub(super) wall: Duration,
    pub(super) report: Report,
    /// The console's last lines
    pub(super) tail: Vec<String>,
    /// The kernel's messages before it died, or a note that it never started; for a machine that finished, those of
    /// its first run
    pub(super) panic: Option<Vec<String>>,
}

impl Outcomes {
    /// Whether it finished, ran tests with each backend (with a filter there may be none), no test failed, and no
    /// available probe was missing.
    pub(super) fn is_good(&self, backends: &[String], filter: Option<&str>) -> bool {
        let ran = |name: &String| {
            let mut of_it = self.report.backends.iter().filter(|b| b.name == *name);
            of_it.any(|b| filter.is_some() || !b.tests.is_empty())
        };
        let failed = |outcome: &Outcome| *outcome == Outcome::Failed;
        self.report.done
            && backends.iter().filter(|name| self.machine.leaves_out(name).is_none()).all(ran)
            && self.report.backends.iter().all(|backend| {
                let is_whole = backend.missing.is_empty() || self.machine.refuses(&backend.name);
                is_whole && backend.count(failed) == 0
            })
    }
}

/// Runs all machines, as many concurrently as fit.
pub(super) fn run(
    machines: &[Machine],
    plan: &Plan<'_>,
    stop: &AtomicBool,
) -> Result<Vec<Outcomes>> {
    let at_once = plan.at_once.map_or_else(room, Ok)?.clamp(1, machines.len().max(1));
    println!("{} machines, {at_once} at a time", machines.len());
    // The long ones first, so that none of them runs alone at the end.
    let mut order: Vec<(usize, &Machine)> = machines.iter().enumerate().collect();
    order.sort_by_key(|(_, machine)| {
        Reverse((machine.cgroup, machine.btf, machine.tests.first.len()))
    });
    let next = AtomicUsize::new(0);
    let (sender, finished) = channel();
    let mut results: Vec<(usize, Result<Outcomes>)> = thread::scope(|scope| {
        for _ in 0..at_once {
            let (sender, next, order) = (sender.clone(), &next, &order);
            scope.spawn(move || {
                loop {
                    let turn = next.fetch_add(1, Ordering::Relaxed);
                    let Some((number, machine)) = order.get(turn) else { return };
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    // Fails only if the receiver has ended.
                    let _ = sender.send((*number, machine.run_again_after_panic(plan, stop)));
                }
            });
        }
        drop(sender);
        finished.iter().inspect(|(_, result)| announce(result)).collect()
    });
    if stop.load(Ordering::Relaxed) {
        bail!("interrupted; the machines are ended");
    }
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

fn announce(result: &Result<Outcomes>) {
    if let Ok(outcomes) = result {
        let seconds = outcomes.wall.as_secs();
        let end = if outcomes.report.done { "finished" } else { "did not finish" };
        println!("{}: {end} after {seconds} s", outcomes.machine.name());
    }
}

/// Number of machines for which processors and free memory suffice.
fn room() -> Result<usize> {
    let processors = thread::available_parallelism().context("cannot count processors")?.get();
    let memory = Meminfo::current().context("cannot read /proc/meminfo")?;
    let free = memory.mem_available.unwrap_or(memory.mem_free);
    let busy = processors * GUESTS_PER_PROCESSOR;
    Ok(busy.min(usize::try_from(free / Guest::MEMORY).unwrap_or(usize::MAX)))
}

impl Machine {
    /// Runs the machine, and repeats the run if its kernel died, because the emulator has faults of its own. A death
    /// is always reported; if every run ends with one, the machine has failed.
    fn run_again_after_panic(&self, plan: &Plan<'_>, stop: &AtomicBool) -> Result<Outcomes> {
        let mut first_panic = None;
        for run in 1.. {
            let outcomes = self.run(plan, stop)?;
            let Some(panic) = outcomes.panic.clone().filter(|_| run < self.kind.runs()) else {
                let panic = outcomes.panic.or(first_panic);
                return Ok(Outcomes { panic, ..outcomes });
            };
            first_panic.get_or_insert(panic);
            let log = plan.logs.join(self.file_name());
            fs::rename(&log, log.with_extension(format!("panic{run}.log")))
                .with_context(|| format!("cannot rename {}", log.display()))?;
        }
        bail!("no machine was run")
    }

    fn run(&self, plan: &Plan<'_>, stop: &AtomicBool) -> Result<Outcomes> {
        let log = plan.logs.join(self.file_name());
        let backends = plan.backends.iter().map(String::as_str);
        let backends: Vec<&str> = backends.filter(|name| self.leaves_out(name).is_none()).collect();
        let mut arguments = format!(
            "podstuck.cgroup={} podstuck.btf={} podstuck.tests={} podstuck.tests_again={} podstuck.backends={} \
             podstuck.slowdown={SLOWDOWN} podstuck.test_limit={} podstuck.again={}",
            self.cgroup,
            if self.btf { "shown" } else { "hidden" },
            self.tests.first,
            self.tests.again,
            backends.join(","),
            TEST_LIMIT.as_secs(),
            FORGIVEN,
        );
        if self.kind == Kind::LockedDown {
            arguments.push_str(" lockdown=confidentiality");
        }
        if self.kind == Kind::Confined {
            arguments.push_str(" security=selinux podstuck.selinux=enforced");
        }
        if let Kind::Runtimes(runtime) = self.kind {
            arguments.push_str(&format!(
                " podstuck.disk=yes podstuck.oci_runtime={}",
                runtime.program()
            ));
        }
        if let Some(filter) = plan.filter {
            arguments.push_str(&format!(" podstuck.filter={filter}"));
        }
        let guest = Guest {
            architecture: self.architecture,
            kernel: &self.image,
            initramfs: &self.initramfs,
            disk: self.disk.as_deref(),
            arguments: &arguments,
            at_once: self.kind == Kind::AtOnce,
            many_possible: self.kind == Kind::ManyPossible,
            log: &log,
            limit: GUEST_LIMIT,
        };
        let begin = Instant::now();
        let end = guest.run(stop)?;
        let wall = begin.elapsed();
        let console = fs::read(&log).with_context(|| format!("cannot read {}", log.display()))?;
        let console = String::from_utf8_lossy(&console);
        let mut tail: Vec<String> =
            console.lines().rev().take(15).map(|line| line.trim_end().to_owned()).collect();
        tail.reverse();
        let report = report::read(&console);
        let panic = match (report.done, end) {
            (true, _) => None,
            (false, End::Silent) => Some(vec!["it said nothing, and was killed".to_owned()]),
            (false, _) => before_panic(&console),
        };
        Ok(Outcomes { machine: self.clone(), end, wall, report, tail, panic })
    }
}

/// The kernel's last messages before it died.
fn before_panic(console: &str) -> Option<Vec<String>> {
    const LED_TO_IT: usize = 60;
    let lines: Vec<&str> = console.lines().collect();
    let at = lines.iter().position(|line| line.contains("Kernel panic"))?;
    let printed = &lines[at.saturating_sub(LED_TO_IT)..=at];
    Some(printed.iter().map(|line| line.trim_end().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::architecture::Architecture;
    use crate::vm::offer::{Flavour, Name};
    use crate::vm::report::{Backend, Test};
    use crate::vm::selection;

    fn is_good(kind: Kind, btf: bool, backend: &str) -> bool {
        let tests = selection::BETWEEN;
        let architecture = Architecture::Amd64;
        let kernel = Name { series: (6, 12), flavour: Flavour::Cloud };
        let (image, initramfs) = (PathBuf::new(), PathBuf::new());
        let machine = Machine {
            architecture,
            kernel,
            cgroup: 2,
            btf,
            kind,
            with_kprobes: true,
            tests,
            image,
            initramfs,
            disk: None,
        };
        let passed =
            Test { name: "a".into(), outcome: Outcome::Passed, seconds: 1.0, output: Vec::new() };
        let backend = Backend {
            name: backend.into(),
            missing: vec!["rmdir: no".into()],
            tests: vec![passed],
            ..Backend::default()
        };
        let names = [backend.name.clone()];
        let report = Report { done: true, backends: vec![backend], ..Report::default() };
        let (end, wall) = (End::Off, Duration::ZERO);
        let tail = Vec::new();
        Outcomes { machine, end, wall, report, tail, panic: None }.is_good(&names, None)
    }

    #[test]
    fn a_missing_probe_is_a_failure_where_it_can_be_had() {
        assert!(!is_good(Kind::Usual, true, "fentry"));
        assert!(!is_good(Kind::AtOnce, true, "tracepoint"));
        assert!(!is_good(Kind::Usual, false, "tracepoint"));
        assert!(is_good(Kind::Usual, false, "fentry"));
        assert!(is_good(Kind::LockedDown, true, "tracepoint"));
        assert!(is_good(Kind::Confined, true, "tracepoint"));
        assert!(!is_good(Kind::Confined, true, "fentry"));
    }
}
