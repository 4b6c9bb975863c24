//! `cargo xtask demo`: a stuck deletion, diagnosed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;

use crate::build;
use crate::setup;
use crate::workspace::Workspace;
use podstuck_process as process;

/// The case that is shown; `cargo xtask pictures` shows the same.
pub(crate) const CASE: &str = "immutable-attribute";
/// The exit status of `watch` with a finding.
const FINDING: i32 = 1;
/// Time for the probes to attach before the case begins.
const HEAD_START: Duration = Duration::from_secs(2);
/// The watch takes 25 s, and longer on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);
/// Time for a child to clean up after it is asked to end.
const GRACE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(100);
const LINES: usize = 10;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Builds, watches the lab's case, and shows the exported files.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    if !geteuid().is_root() {
        bail!("the demo loads probes into the kernel, which takes root");
    }
    setup::run(workspace)?;
    // An optimized build takes minutes and makes no visible difference for one pod. The tests use the same build.
    let program = build::beside_tests(workspace)?;
    let seconds =
        SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is off")?.as_secs();
    let export = workspace.target.join("demo").join(seconds.to_string());
    fs::create_dir_all(&export).with_context(|| format!("cannot create {}", export.display()))?;

    note_interrupts()?;
    let mut watch = Command::new(&program);
    watch.args(["watch", "--output", "text", "--duration", "25s", "--export"]).arg(&export);
    let mut watch = Running::start(watch)?;
    // A watch that cannot start fails at once.
    let deadline = Instant::now() + HEAD_START;
    while Instant::now() < deadline {
        watch.expect_running()?;
        sleep(POLL);
    }
    let mut lab = Command::new(&program);
    lab.args(["lab", CASE, "--duration", "18s"]).stdout(Stdio::piped());
    let mut lab = Running::start(lab)?;
    let uid = lab.pod()?;
    let deadline = Instant::now() + LIMIT;
    let lab = lab.wait(deadline)?;
    let watch = watch.wait(deadline)?;

    if !lab.success() {
        bail!("the lab failed: {lab}");
    }
    if watch.code() != Some(FINDING) {
        bail!("the watch was to find the lab's pod and to exit with {FINDING}: {watch}");
    }
    // Another pod of this machine may be stuck as well.
    let findings = export.join("findings.jsonl");
    let text = fs::read_to_string(&findings)
        .with_context(|| format!("the watch left no {}", findings.display()))?;
    if !is_found(&text, &uid) {
        bail!("{} has no finding {CASE} about the lab's pod, {uid}", findings.display());
    }
    show(&export)
}

/// A child process that is ended when this is dropped.
pub(crate) struct Running {
    shown: String,
    child: Child,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let shown = process::show(&command);
        println!("$ {shown}");
        let child = command.spawn().with_context(|| format!("cannot start `{shown}`"))?;
        Ok(Self { shown, child })
    }

    /// The UID of the lab's pod, from the line that the lab prints before the removal. Its output is shown.
    fn pod(&mut self) -> Result<String> {
        let output = self.child.stdout.take().context("the lab has no output")?;
        let mut lines = BufReader::new(output).lines().map_while(Result::ok).inspect(|line| {
            println!("{line}");
        });
        let ready = lines.next().context("the lab ended before it was ready")?;
        let ready: Value = serde_json::from_str(&ready).context("the lab's first line")?;
        let uid = ready["pod_uid"].as_str().context("the lab's first line has no pod_uid")?;
        // Runs until the lab ends, whose writes must not block.
        thread::spawn(move || lines.for_each(drop));
        Ok(uid.to_owned())
    }

    fn status(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("waiting for `{}`", self.shown))
    }

    pub(crate) fn expect_running(&mut self) -> Result<()> {
        if INTERRUPTED.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        match self.status()? {
            None => Ok(()),
            Some(status) => bail!("`{}` ended too early: {status}", self.shown),
        }
    }

    fn wait(&mut self, deadline: Instant) -> Result<ExitStatus> {
        loop {
            if let Some(status) = self.status()? {
                return Ok(status);
            }
            if INTERRUPTED.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            if Instant::now() > deadline {
                bail!("`{}` does not end", self.shown);
            }
            sleep(POLL);
        }
    }
}

impl Drop for Running {
    /// Asks the child to end, so that it can clean up, and kills it if it does not.
    fn drop(&mut self) {
        let Ok(pid) = i32::try_from(self.child.id()) else { return };
        // The id of a child that was waited for may belong to another process.
        if !matches!(self.child.try_wait(), Ok(None))
            || kill(Pid::from_raw(pid), Signal::SIGTERM).is_err()
        {
            return;
        }
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            sleep(POLL);
        }
        eprintln!("`{}` does not end by itself: killing it", self.shown);
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            eprintln!("cannot kill `{}`: {error}", self.shown);
        }
    }
}

extern "C" fn interrupted(_signal: nix::libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Notes Ctrl-C instead of being killed, so that the children are ended first.
pub(crate) fn note_interrupts() -> Result<()> {
    let action =
        SigAction::new(SigHandler::Handler(interrupted), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: the handler only stores to an atomic, which a signal handler may do.
        unsafe { sigaction(signal, &action) }.with_context(|| format!("cannot handle {signal}"))?;
    }
    Ok(())
}

/// Whether a finding is the case's and about this pod.
fn is_found(findings: &str, uid: &str) -> bool {
    let mut findings = findings.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    findings.any(|it| it["id"] == CASE && it["pod"]["uid"] == uid)
}

fn show(export: &Path) -> Result<()> {
    println!("\nIn {}:", export.display());
    process::run(Command::new("find").arg(export).args(["-type", "f", "-printf", "%8s  %P\\n"]))?;
    let histograms = export.join("histograms.csv");
    let text = fs::read_to_string(&histograms)
        .with_context(|| format!("the watch left no {}", histograms.display()))?;
    println!("\nThe first lines of {}:", histograms.display());
    for line in text.lines().take(LINES) {
        println!("{line}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_labs_own_pod_counts() {
        let line = |id: &str, uid: &str| format!(r#"{{"id":"{id}","pod":{{"uid":"{uid}"}}}}"#);
        let others = [line(CASE, "b"), line("mass-deletion", "a"), "cut {".into()].join("\n");
        assert!(!is_found(&others, "a"));
        assert!(is_found(&format!("{others}\n{}", line(CASE, "a")), "a"));
    }
}
