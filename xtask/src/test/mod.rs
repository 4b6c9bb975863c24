//! `cargo xtask test`: the lints, the tests of each crate, and the tests against the kernel.

mod longest;
mod programs;
mod running;
mod totals;
mod unsteady;

pub(crate) use self::totals::ignored;
pub(crate) use self::unsteady::{FORGIVEN, Unsteady};

use std::path::PathBuf;
use std::thread;

use anyhow::{Result, bail};

use self::running::{ONE_AT_A_TIME, Runner};
use crate::build;
use crate::tools::Tools;
use crate::workspace::Workspace;
use crate::{lint, setup};
use podstuck_process::phases::Phases;

/// Which tests.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Run only the tests whose name contains this, and do not lint
    pub(crate) filter: Option<String>,
    /// Build and run only the tests of this package
    #[arg(short, long, value_name = "NAME")]
    pub(crate) package: Vec<String>,
    /// Build and run only this test program
    #[arg(long, value_name = "NAME")]
    pub(crate) test: Vec<String>,
}

impl Options {
    /// The test programs, as arguments of `cargo test`. Without a package, from the whole workspace: a single package
    /// gets its dependencies with fewer features, and they would be compiled again.
    fn selection(&self) -> Vec<&str> {
        let mut words: Vec<&str> =
            self.package.iter().flat_map(|name| ["--package", name]).collect();
        if words.is_empty() {
            words.push("--workspace");
        }
        if self.test.is_empty() {
            words.push("--tests");
        }
        words.extend(self.test.iter().flat_map(|name| ["--test", name]));
        words
    }

    fn selects_all(&self) -> bool {
        self.filter.is_none() && self.package.is_empty() && self.test.is_empty()
    }
}

/// Runs the selected tests, or the lints and all tests.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let mut phases = Phases::default();
    phases.run("set-up", || setup::run(workspace))?;
    if options.selects_all() {
        phases.run("texts", || lint::texts(workspace))?;
    }
    let mut runner = equipped(workspace, options.filter.as_deref(), &mut phases)?;
    let programs =
        phases.run("building tests", || programs::build(workspace, &options.selection()))?;
    let (of_crates, against_the_kernel) = programs.into_iter().partition(|it| it.is_of_a_crate);
    thread::scope(|scope| {
        // The tests against the kernel mostly wait.
        let lints = options.selects_all().then(|| scope.spawn(|| lint::clippy_beside(workspace)));
        phases.run("tests of each crate", || runner.run(of_crates, &[]));
        phases.run("tests against the running kernel", || {
            runner.run_against_the_kernel(against_the_kernel);
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
    let mut runner = Runner::new(None)?;
    let mut selection = vec!["--workspace"];
    selection.extend(names.iter().flat_map(|name| ["--test", name]));
    runner.run(programs::build(workspace, &selection)?, &[]);
    runner.finish("")
}

/// A runner with what the tests start.
fn equipped<'a>(
    workspace: &Workspace,
    filter: Option<&'a str>,
    phases: &mut Phases,
) -> Result<Runner<'a>> {
    let mut runner = Runner::new(filter)?;
    let tools = phases.run("tools", || Tools::ensure(workspace))?;
    let program = phases.run("building podstuck", || build::beside_tests(workspace))?;
    runner.equip(tools, Some(program));
    Ok(runner)
}

/// Runs the tests that need a Kubernetes node; they are ignored otherwise.
pub(crate) fn on_the_node(workspace: &Workspace, filter: Option<&str>) -> Result<()> {
    let mut phases = Phases::default();
    let mut runner = equipped(workspace, filter, &mut phases)?;
    phases.run("tests on a Kubernetes node", || {
        let options = [ONE_AT_A_TIME, "--ignored", "--nocapture"];
        runner.run(programs::build(workspace, &["--workspace", "--test", "node"])?, &options);
        anyhow::Ok(())
    })?;
    runner.finish(&phases.to_string())
}

/// Runs the tests with real runtimes, with the daemons and clients from this root directory.
pub(crate) fn with_daemons(
    workspace: &Workspace,
    root: PathBuf,
    filter: Option<&str>,
) -> Result<()> {
    let mut phases = Phases::default();
    let mut runner = equipped(workspace, filter, &mut phases)?;
    runner.tell("PODSTUCK_DAEMONS", root);
    phases.run("tests with these daemons", || {
        let programs = programs::build(workspace, &["--workspace", "--test", "runtimes"])?;
        runner.run_against_the_kernel(programs);
        anyhow::Ok(())
    })?;
    runner.finish(&phases.to_string())
}
