//! `cargo xtask test`: the lints, the tests of each crate, and the tests against the kernel.

mod longest;
mod names;
mod programs;
mod running;
mod targets;
mod totals;
mod unsteady;

pub(crate) use self::totals::ignored;
pub(crate) use self::unsteady::{FORGIVEN, Unsteady};

use std::path::PathBuf;
use std::thread;

use anyhow::{Result, bail};

use self::running::{ONE_AT_A_TIME, Runner};
use self::targets::Selection;
use crate::build;
use crate::tools::Tools;
use crate::workspace::Workspace;
use crate::{lint, setup};
use podstuck_process::phases::Phases;

/// The workspace member with the tests of the whole program.
const KERNEL_TESTS: &str = "podstuck-tests";
/// The members whose tests use further programs.
const WITH_TOOLS: [&str; 2] = [KERNEL_TESTS, "podstuck-agent"];

/// Runs the tests whose name contains the filter, or the lints and all tests.
pub(crate) fn run(workspace: &Workspace, filter: Option<&str>) -> Result<()> {
    let Some(filter) = filter else { return all(workspace, None) };
    let concerned = targets::concerned(workspace, filter)?;
    if concerned.is_empty() {
        println!("no source has a test of this name: looking in all test programs");
        return all(workspace, Some(filter));
    }
    some(workspace, filter, &concerned)
}

/// Everything is built from the whole workspace: a single package gets its dependencies with fewer features, and they
/// would be compiled again.
fn all(workspace: &Workspace, filter: Option<&str>) -> Result<()> {
    let mut phases = Phases::default();
    let mut runner = Runner::new(workspace, filter)?;
    phases.run("set-up", || setup::run(workspace))?;
    let tools = phases.run("tools", || Tools::ensure(workspace))?;
    if filter.is_none() {
        phases.run("texts", || lint::texts(workspace))?;
    }
    let program = phases.run("building", || {
        let program = build::beside_tests(workspace)?;
        build::tests(workspace)?;
        anyhow::Ok(program)
    })?;
    runner.equip(tools, Some(program));
    thread::scope(|scope| {
        // The tests against the kernel mostly wait.
        let lints = filter.is_none().then(|| scope.spawn(|| lint::clippy_beside(workspace)));
        phases.run("tests of each crate", || {
            runner.run(&["--workspace", "--lib", "--bins"], &[]);
        });
        phases.run("tests against the running kernel", || {
            runner.run_against_the_kernel(&["--workspace", "--test", "*"], true);
        });
        if let Some(lints) = lints {
            phases.run("waiting for the lints", || {
                runner.note(lints.join().unwrap_or_else(|_| bail!("clippy's thread panicked")));
            });
        }
    });
    runner.finish(&phases.to_string())
}

/// Runs test programs that need no probe.
pub(crate) fn programs(workspace: &Workspace, names: &[&str]) -> Result<()> {
    let mut runner = Runner::new(workspace, None)?;
    let mut selection = vec!["--workspace"];
    selection.extend(names.iter().flat_map(|name| ["--test", name]));
    runner.run(&selection, &[]);
    runner.finish("")
}

/// Runs the tests that need a Kubernetes node; they are ignored otherwise.
pub(crate) fn on_the_node(workspace: &Workspace, filter: Option<&str>) -> Result<()> {
    let mut phases = Phases::default();
    let mut runner = Runner::new(workspace, filter)?;
    let tools = phases.run("tools", || Tools::ensure(workspace))?;
    let program = phases.run("building podstuck", || build::beside_tests(workspace))?;
    runner.equip(tools, Some(program));
    phases.run("tests on a Kubernetes node", || {
        let options = [ONE_AT_A_TIME, "--ignored", "--nocapture"];
        runner.run(&["--workspace", "--test", "node"], &options);
    });
    runner.finish(&phases.to_string())
}

/// Runs the tests with real runtimes, with the daemons and clients from this root directory.
pub(crate) fn with_daemons(
    workspace: &Workspace,
    root: PathBuf,
    filter: Option<&str>,
) -> Result<()> {
    let mut phases = Phases::default();
    let mut runner = Runner::new(workspace, filter)?;
    let tools = phases.run("tools", || Tools::ensure(workspace))?;
    let program = phases.run("building podstuck", || build::beside_tests(workspace))?;
    runner.equip(tools, Some(program));
    runner.tell("PODSTUCK_DAEMONS", root);
    phases.run("tests with these daemons", || {
        runner.run_against_the_kernel(&["--workspace", "--test", "runtimes"], false);
    });
    runner.finish(&phases.to_string())
}

/// Runs the test of each lab, which stores a recording in this folder.
pub(crate) fn recording_labs(
    workspace: &Workspace,
    program: PathBuf,
    folder: PathBuf,
) -> Result<()> {
    let mut runner = Runner::new(workspace, None)?;
    runner.equip(Tools::ensure(workspace)?, Some(program));
    runner.tell("PODSTUCK_KEEP_RECORDINGS", folder);
    runner.run_against_the_kernel(&["--workspace", "--test", "labs"], false);
    runner.finish("")
}

/// Builds and runs only the programs that contain matching tests.
fn some(workspace: &Workspace, filter: &str, concerned: &[Selection]) -> Result<()> {
    let mut phases = Phases::default();
    let mut runner = Runner::new(workspace, Some(filter))?;
    for selection in concerned {
        println!("in {} {}", selection.package, selection.flags.join(" "));
    }
    if concerned.iter().any(|selection| selection.with_probes) {
        phases.run("set-up", || setup::run(workspace))?;
    }
    if concerned.iter().any(|selection| WITH_TOOLS.contains(&selection.package.as_str())) {
        let tools = phases.run("tools", || Tools::ensure(workspace))?;
        let program = phases.run("building podstuck", || build::beside_tests(workspace))?;
        runner.equip(tools, Some(program));
    }
    for Selection { package, flags, .. } in concerned {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        phases.run(&format!("testing {package}"), || {
            // Only this package has test programs of these names, but every package has a library.
            if package == KERNEL_TESTS && !flags.contains(&"--lib") {
                runner.run_against_the_kernel(&[&["--workspace"], &flags[..]].concat(), false);
            } else {
                runner.run(&[&["--package", package], &flags[..]].concat(), &[]);
            }
        });
    }
    if runner.has_found_none() {
        println!("none there by this name after all: looking in all test programs");
        return all(workspace, Some(filter));
    }
    runner.finish(&phases.to_string())
}
