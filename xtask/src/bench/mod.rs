//! `cargo xtask bench`: what tracers cost, side by side.

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
mod table;
mod tool;
mod tracer;
mod usage;
mod workload;

use std::fs;
use std::path::PathBuf;
use std::thread::available_parallelism;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use self::place::Place;
use self::round::Bench;
use self::running::Interrupt;
use self::tracer::Tracer;
use self::workload::Workload;
use crate::build;
use crate::workspace::Workspace;
use crate::{process, setup};

/// What to measure.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
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
    /// How long podstuck takes to start to count, and to end
    StartUp {
        /// How often to measure
        #[arg(long, default_value_t = 10)]
        rounds: u32,
    },
}

/// Measures, prints, and leaves files in `target/bench`.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    setup::run(workspace)?;
    let podstuck =
        build::program(workspace, &build::Options { release: true, ..Default::default() })?;
    let workload = workload_program(workspace)?;
    let results = workspace.target.join("bench");
    fs::create_dir_all(&results).with_context(|| format!("cannot create {}", results.display()))?;
    let interrupt = Interrupt::listen()?;
    let mut place = Place::enter()?;
    let bench = Bench {
        podstuck,
        workload,
        folder: place.folder().to_path_buf(),
        // The last one: the first has the machine's interrupts.
        cpu: available_parallelism().map_or(0, |cpus| cpus.get() - 1),
        interrupt,
    };
    match options.other {
        None => compare::run(&bench, &mut place, options, &results),
        Some(Other::Endurance { scale }) => endurance::run(&bench, &mut place, scale, &results),
        Some(Other::StartUp { rounds }) => start_up::run(&bench, &mut place, rounds, &results),
    }
}

fn workload_program(workspace: &Workspace) -> Result<PathBuf> {
    let name = "podstuck-workload";
    process::run(&mut workspace.cargo([
        "build",
        "--release",
        "--package",
        "podstuck-tests",
        "--bin",
        name,
    ]))?;
    let program = workspace.target.join("release").join(name);
    if !program.is_file() {
        bail!("cargo built no {}", program.display());
    }
    Ok(program)
}

fn scale(text: &str) -> Result<f64, String> {
    let scale: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if scale > 0.0 && scale.is_finite() { Ok(scale) } else { Err("must be above 0".to_owned()) }
}
