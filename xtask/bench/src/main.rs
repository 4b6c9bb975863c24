//! Compares the cost of tracers. `cargo xtask bench` builds the measured programs and starts this one.

mod compare;
mod endurance;
mod machine;
mod picture;
mod place;
mod round;
mod running;
mod seen;
mod start_up;
mod stats;
mod stuck;
mod table;
mod tool;
mod tracer;
mod usage;
mod workload;

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::available_parallelism;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand, ValueEnum};

use self::compare::Choice;
use self::place::Place;
use self::round::Bench;
use self::running::Interrupt;
use self::tracer::{LADDER, Tracer};
use self::workload::Workload;

/// Measure what tracers cost, side by side.
#[derive(Parser)]
#[command(
    name = "cargo xtask bench",
    bin_name = "cargo xtask bench",
    args_conflicts_with_subcommands = true
)]
struct Options {
    #[command(subcommand)]
    other: Option<Other>,
    /// How often to measure each tracer on each workload
    #[arg(long, default_value_t = 10)]
    rounds: u32,
    /// Only these workloads
    #[arg(long, value_enum, num_args = 1.., value_delimiter = ',')]
    workload: Vec<Workload>,
    /// Only these tracers; no tracer is always among them
    #[arg(long, value_enum, num_args = 1.., value_delimiter = ',')]
    tracer: Vec<Tracer>,
    /// Measure another build of podstuck, too, in the same run
    #[arg(long, value_name = "PROGRAM", required_if_eq("tracer", "podstuck-before"))]
    before: Option<PathBuf>,
    /// Multiply the number of calls
    #[arg(long, default_value_t = 1.0, value_parser = scale)]
    scale: f64,
}

#[derive(Subcommand)]
enum Other {
    /// Ten million deletions, and five million in 100,000 directories: every one is to be counted
    Endurance {
        /// Multiply the number of deletions
        #[arg(long, default_value_t = 1.0, value_parser = scale)]
        scale: f64,
    },
    /// What each step of podstuck's programs costs: builds of the real code without the later steps
    Ladder {
        /// How often to measure each step on each workload
        #[arg(long, default_value_t = 10)]
        rounds: u32,
        /// On these workloads
        #[arg(long, value_enum, num_args = 1.., value_delimiter = ',', default_values = ["tmpfs", "busy", "two-writers", "storm"])]
        workload: Vec<Workload>,
        /// Multiply the number of calls
        #[arg(long, default_value_t = 1.0, value_parser = scale)]
        scale: f64,
    },
    /// How soon each of many pods that are stuck at once is named
    Stuck {
        /// How many pods
        #[arg(long, default_value_t = 200)]
        pods: usize,
        /// How often each is tried, once a second
        #[arg(long, default_value_t = 20)]
        attempts: u32,
        /// How many errors kubelet's log has in every second round
        #[arg(long, default_value_t = 2000)]
        log_lines: usize,
        /// How often to measure
        #[arg(long, default_value_t = 3)]
        rounds: u32,
    },
    /// How long podstuck takes to start to count, and to end
    StartUp {
        /// How often to measure
        #[arg(long, default_value_t = 10)]
        rounds: u32,
    },
}

fn main() -> ExitCode {
    let options = Options::parse();
    if env::var_os("PODSTUCK_BENCH_CHECK").is_some() {
        return ExitCode::SUCCESS;
    }
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without the backtrace that returning the error from `main` would add.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures, prints, and writes files into the results folder.
fn run(options: &Options) -> Result<()> {
    let results = path_from("PODSTUCK_BENCH_RESULTS")?;
    fs::create_dir_all(&results).with_context(|| format!("cannot create {}", results.display()))?;
    let interrupt = Interrupt::listen()?;
    let mut place = Place::enter()?;
    let bench = Bench {
        podstuck: path_from("PODSTUCK_BIN")?,
        before: options.before.clone(),
        workload: path_from("PODSTUCK_WORKLOAD_BIN")?,
        stuck: path_from("PODSTUCK_STUCK_BIN")?,
        folder: place.folder().to_path_buf(),
        // The last processor: the first one handles the machine's interrupts.
        cpu: available_parallelism().map_or(0, |cpus| cpus.get() - 1),
        interrupt,
    };
    match &options.other {
        None => {
            let mut tracers = chosen(&options.tracer, |tracer| tracer.step().is_none());
            tracers.retain(|tracer| *tracer != Tracer::PodstuckBefore);
            tracers.extend(bench.before.is_some().then_some(Tracer::PodstuckBefore));
            let choice = Choice {
                rounds: options.rounds,
                scale: options.scale,
                workloads: chosen(&options.workload, |_| true),
                tracers,
            };
            compare::run(&bench, &mut place, &choice, &results)
        }
        Some(Other::Ladder { rounds, workload, scale }) => {
            let (rounds, scale, workloads) = (*rounds, *scale, workload.clone());
            let choice = Choice { rounds, scale, workloads, tracers: LADDER.into() };
            compare::run(&bench, &mut place, &choice, &results)
        }
        Some(Other::Endurance { scale }) => endurance::run(&bench, &mut place, *scale, &results),
        Some(Other::Stuck { pods, attempts, log_lines, rounds }) => {
            let (pods, attempts) = (*pods, *attempts);
            let choice = stuck::Choice { pods, attempts, log_lines: *log_lines, rounds: *rounds };
            stuck::run(&bench, &mut place, &choice, &results)
        }
        Some(Other::StartUp { rounds }) => start_up::run(&bench, &mut place, *rounds, &results),
    }
}

/// The selected values and always the first one; without a selection, all usual ones.
fn chosen<T: ValueEnum + PartialEq>(wanted: &[T], is_usual: impl Fn(&T) -> bool) -> Vec<T> {
    let all = T::value_variants().iter().enumerate();
    let chosen = all.filter(|(at, one)| {
        if wanted.is_empty() { is_usual(one) } else { wanted.contains(one) || *at == 0 }
    });
    chosen.map(|(_, one)| one.clone()).collect()
}

/// A path from an environment variable that xtask sets; the options are the user's.
fn path_from(variable: &str) -> Result<PathBuf> {
    let value = env::var_os(variable);
    let value = value.with_context(|| {
        format!("{variable} is not set; `cargo xtask bench` builds what is measured and sets it")
    })?;
    Ok(value.into())
}

fn scale(text: &str) -> Result<f64, String> {
    let scale: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if scale > 0.0 && scale.is_finite() { Ok(scale) } else { Err("must be above 0".to_owned()) }
}
