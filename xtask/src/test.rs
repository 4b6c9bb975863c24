//! `cargo xtask test`: the lints, the tests of each crate, and the tests against the kernel.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::unistd::geteuid;

use crate::build::{self, Options};
use crate::tools::Tools;
use crate::totals::Totals;
use crate::workspace::Workspace;
use crate::{lint, process, setup};

/// The workspace's member that tests the whole program.
const KERNEL_TESTS: &str = "podstuck-tests";

/// Runs the tests whose name contains the filter, or the lints and all tests.
pub(crate) fn run(workspace: &Workspace, filter: Option<&str>) -> Result<()> {
    setup::run(workspace)?;
    let tools = Tools::ensure(workspace)?;
    if filter.is_none() {
        lint::check(workspace)?;
    }
    println!("building");
    let program = build::program(workspace, &Options::default())?;

    let cargo_test = |selection: &[&str], options: &[&str], totals: &mut Totals| {
        let mut command = workspace.cargo(["test", "--no-fail-fast"]);
        command.args(selection).arg("--").args(options).args(filter);
        tools.apply(&mut command);
        command.env("PODSTUCK_BIN", &program);
        count(&mut command, totals)
    };
    let mut totals = Totals::default();
    println!("tests of each crate");
    let crates = cargo_test(&["--workspace", "--exclude", KERNEL_TESTS], &[], &mut totals);
    let missing = kernel_tests_lack();
    let kernel = if missing.is_none() {
        println!("tests against the running kernel");
        // One at a time: they count what the whole machine does.
        cargo_test(&["--package", KERNEL_TESTS], &["--test-threads=1"], &mut totals)
    } else {
        Ok(())
    };
    if let Some(missing) = missing {
        println!("NOT RUN: every test of {KERNEL_TESTS}, because {missing}");
    }
    println!("{totals}");
    crates.and(kernel)?;
    if totals == Totals::default() {
        match filter {
            Some(filter) => bail!("no test that can run here has `{filter}` in its name"),
            None => bail!("no test ran"),
        }
    }
    Ok(())
}

/// Why the tests against the kernel cannot run here, if they cannot.
fn kernel_tests_lack() -> Option<&'static str> {
    if !geteuid().is_root() {
        Some("they load probes into the kernel, which takes root")
    } else if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        Some("this kernel has no BTF at /sys/kernel/btf/vmlinux")
    } else {
        None
    }
}

/// Runs cargo test, passes its output on line by line, and counts.
fn count(command: &mut Command, totals: &mut Totals) -> Result<()> {
    let shown = process::show(command);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if let Some(output) = child.stdout.take() {
        let mut lines = BufReader::new(output);
        let mut line = Vec::new();
        let mut stdout = std::io::stdout().lock();
        // A test may print what is not UTF-8.
        while lines.read_until(b'\n', &mut line).with_context(|| format!("reading `{shown}`"))? > 0
        {
            stdout.write_all(&line).context("cannot print")?;
            totals.add_line(&String::from_utf8_lossy(&line));
            line.clear();
        }
    }
    let status = child.wait().with_context(|| format!("waiting for `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed: {status}");
    }
    Ok(())
}
