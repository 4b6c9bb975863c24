//! Which machines there are, and running them side by side.

use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use procfs::{Current, Meminfo};

use crate::architecture::Architecture;
use crate::vm::guest::{End, Guest};
use crate::vm::kernels::Kernel;
use crate::vm::kind::Kind;
use crate::vm::offer::{Flavour, Name, Series};
use crate::vm::report::{self, Outcome, Report};
use crate::vm::selection::{self, Tests};

/// The kernel whose types are hidden, and which is locked down, or else the last one of the run.
const REFUSING_SERIES: Series = (6, 12);
/// Before it, arm64 has no `fentry` on a function of the kernel (`DYNAMIC_FTRACE_WITH_DIRECT_CALLS`).
const FENTRY_ON_ARM64: Series = (6, 4);
/// Measured: starting podstuck takes about ten times as long as on the machine itself.
const SLOWDOWN: u32 = 10;
/// Measured: a guest waits about half of its time.
const GUESTS_PER_PROCESSOR: usize = 2;
/// The longest test takes about a minute.
const TEST_LIMIT: Duration = Duration::from_secs(240);
const GUEST_LIMIT: Duration = Duration::from_secs(1800);

/// One machine to boot.
#[derive(Clone)]
pub(super) struct Machine {
    pub(super) architecture: Architecture,
    pub(super) kernel: Name,
    pub(super) cgroup: u8,
    pub(super) btf: bool,
    pub(super) kind: Kind,
    /// Whether kprobes are tried, too.
    with_kprobes: bool,
    tests: Tests,
    image: PathBuf,
    initramfs: PathBuf,
}

impl Machine {
    /// Those that boot these kernels, given from the oldest to the newest.
    pub(super) fn all_with(
        architecture: Architecture,
        kernels: &[(Kernel, PathBuf)],
        breadth: Breadth,
    ) -> Vec<Self> {
        let Breadth { all_attacks, kprobes_everywhere } = breadth;
        let mut machines = Vec::new();
        let names = kernels.iter().map(|(kernel, _)| kernel.name);
        let mut for_clouds = names.filter(|name| name.flavour == Flavour::Cloud);
        let oldest = for_clouds.next();
        let ends = [oldest, for_clouds.next_back().or(oldest)];
        for (kernel, initramfs) in kernels {
            let is_end = ends.contains(&Some(kernel.name));
            let machine = |cgroup, tests| Self {
                architecture,
                kernel: kernel.name,
                cgroup,
                btf: true,
                kind: Kind::Usual,
                with_kprobes: kprobes_everywhere,
                tests,
                image: kernel.image.clone(),
                initramfs: initramfs.clone(),
            };
            let tests = if is_end { selection::AT_THE_ENDS } else { selection::BETWEEN };
            machines.push(Self { with_kprobes: is_end || kprobes_everywhere, ..machine(2, tests) });
            if is_end {
                machines.push(machine(1, selection::WITH_CGROUP_V1));
                let usual = machine(2, selection::AT_ONCE);
                machines.push(Self { kind: Kind::AtOnce, ..usual });
                let usual = machine(2, selection::FAULTS);
                machines.push(Self { kind: Kind::Faulty, with_kprobes: true, ..usual });
                let attacks = if all_attacks { selection::ALL_ATTACKS } else { selection::ATTACKS };
                let usual = machine(2, attacks);
                machines.push(Self { kind: Kind::Attacked, ..usual });
            }
        }
        // Those that take longest begin first.
        machines.sort_by_key(|machine| machine.tests.first != selection::AT_THE_ENDS.first);
        machines.extend(Self::that_refuse(&machines).into_iter().flatten());
        machines
    }

    /// The one whose kernel keeps its types to itself, and the one whose kernel keeps its memory.
    fn that_refuse(machines: &[Self]) -> Option<[Self; 2]> {
        let usual = machines.iter().find(|machine| machine.kernel.series == REFUSING_SERIES);
        let like = usual.or(machines.last())?.clone();
        let like = Self { cgroup: 2, kind: Kind::Usual, with_kprobes: true, ..like };
        let locked_down =
            Self { kind: Kind::LockedDown, tests: selection::LOCKED_DOWN, ..like.clone() };
        Some([Self { btf: false, tests: selection::WITHOUT_BTF, ..like }, locked_down])
    }

    /// As a person would say it.
    pub(super) fn name(&self) -> String {
        let btf = if self.btf { "" } else { ", BTF hidden" };
        let says = self.kind.says();
        format!("Linux {}, cgroup v{}{btf}{says}", self.system(), self.cgroup)
    }

    /// Its kernel, and its processors unless they are the usual ones.
    pub(super) fn system(&self) -> String {
        if self.architecture == Architecture::own() {
            self.kernel.to_string()
        } else {
            format!("{} {}", self.kernel, self.architecture.of_debian())
        }
    }

    fn file_name(&self) -> String {
        let btf = if self.btf { "" } else { "-no-btf" };
        let system = self.system().replace(' ', "-");
        format!("{system}-cgroup{}{btf}{}.log", self.cgroup, self.kind.file_name())
    }

    /// Whether probes cannot be had here: with `fentry` they need the kernel's types, and what tells directories by
    /// kprobes does.
    pub(super) fn refuses(&self, backend: &str) -> bool {
        self.kind == Kind::LockedDown || (!self.btf && backend != "tracepoint")
    }

    /// Why nothing is tried with this backend, if nothing is.
    pub(super) fn leaves_out(&self, backend: &str) -> Option<&'static str> {
        let is_old =
            self.architecture == Architecture::Arm64 && self.kernel.series < FENTRY_ON_ARM64;
        match backend {
            "fentry" if is_old => Some("not there"),
            "kprobe" if !self.with_kprobes => Some("elsewhere"),
            _ => None,
        }
    }
}

/// How much of what takes long is tried.
#[derive(Clone, Copy)]
pub(super) struct Breadth {
    /// All attacks, or only those that the probes decide.
    pub(super) all_attacks: bool,
    /// Kprobes in all machines, or only where their hooks differ: on the oldest and on the newest kernel, with many
    /// calls under way, and without the kernel's types.
    pub(super) kprobes_everywhere: bool,
}

/// How to run them.
pub(super) struct Plan<'a> {
    pub(super) backends: &'a [String],
    pub(super) filter: Option<&'a str>,
    pub(super) at_once: Option<usize>,
    pub(super) logs: &'a Path,
}

/// What became of a machine.
pub(super) struct Outcomes {
    pub(super) machine: Machine,
    pub(super) end: End,
    pub(super) wall: Duration,
    pub(super) report: Report,
    /// The console's last lines
    pub(super) tail: Vec<String>,
    /// What the kernel said when it died; in a machine that finished, the first time that it ran
    pub(super) panic: Option<Vec<String>>,
}

impl Outcomes {
    /// Whether it came to its end, ran tests with each backend, none failed, and no probe was missing that can be
    /// had there.
    pub(super) fn is_good(&self, backends: &[String]) -> bool {
        let ran = |name: &String| {
            self.report.backends.iter().any(|b| b.name == *name && !b.tests.is_empty())
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

/// Runs all, as many at a time as fit.
pub(super) fn run(
    machines: &[Machine],
    plan: &Plan<'_>,
    stop: &AtomicBool,
) -> Result<Vec<Outcomes>> {
    let at_once = plan.at_once.map_or_else(room, Ok)?.clamp(1, machines.len().max(1));
    println!("{} machines, {at_once} at a time", machines.len());
    // The long ones first, so that none of them runs alone in the end.
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
                    // Nobody listens only when all is over.
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

/// How many machines the processors and the free memory are good for.
fn room() -> Result<usize> {
    let processors = thread::available_parallelism().context("cannot count processors")?.get();
    let memory = Meminfo::current().context("cannot read /proc/meminfo")?;
    let free = memory.mem_available.unwrap_or(memory.mem_free);
    let busy = processors * GUESTS_PER_PROCESSOR;
    Ok(busy.min(usize::try_from(free / Guest::MEMORY).unwrap_or(usize::MAX)))
}

impl Machine {
    /// Runs it, and again if its kernel died: the emulator has such faults of its own. A death
    /// is always told, and dying each time is failing.
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
             podstuck.slowdown={SLOWDOWN} podstuck.test_limit={}",
            self.cgroup,
            if self.btf { "shown" } else { "hidden" },
            self.tests.first,
            self.tests.again,
            backends.join(","),
            TEST_LIMIT.as_secs(),
        );
        if self.kind == Kind::LockedDown {
            arguments.push_str(" lockdown=confidentiality");
        }
        if let Some(filter) = plan.filter {
            arguments.push_str(&format!(" podstuck.filter={filter}"));
        }
        let guest = Guest {
            architecture: self.architecture,
            kernel: &self.image,
            initramfs: &self.initramfs,
            arguments: &arguments,
            at_once: self.kind == Kind::AtOnce,
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
        let panic = if report.done { None } else { before_panic(&console) };
        Ok(Outcomes { machine: self.clone(), end, wall, report, tail, panic })
    }
}

/// What the kernel said when it died, and what led to it.
fn before_panic(console: &str) -> Option<Vec<String>> {
    const LED_TO_IT: usize = 60;
    let lines: Vec<&str> = console.lines().collect();
    let at = lines.iter().position(|line| line.contains("Kernel panic"))?;
    let told = &lines[at.saturating_sub(LED_TO_IT)..=at];
    Some(told.iter().map(|line| line.trim_end().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::report::{Backend, Test};

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
        Outcomes { machine, end, wall, report, tail, panic: None }.is_good(&names)
    }

    #[test]
    fn a_missing_probe_is_a_failure_where_it_can_be_had() {
        assert!(!is_good(Kind::Usual, true, "fentry"));
        assert!(!is_good(Kind::AtOnce, true, "tracepoint"));
        assert!(!is_good(Kind::Usual, false, "tracepoint"));
        assert!(is_good(Kind::Usual, false, "fentry"));
        assert!(is_good(Kind::LockedDown, true, "tracepoint"));
    }
}
