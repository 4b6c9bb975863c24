//! Processes of the benchmark, none of which outlives it.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use podstuck_process as process;

/// Maximum time for a process to end after it is asked to.
const GRACE: Duration = Duration::from_secs(20);

/// Time after which a signal counts as missed: longer than a normal end takes.
const REPEAT: Duration = Duration::from_secs(1);

/// Whether to interrupt a process a second time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    Yes,
    No,
}

/// Set by Ctrl-C: all waits end, so that the benchmark cleans up.
#[derive(Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    pub(crate) fn listen() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag))
                .with_context(|| format!("cannot handle signal {signal}"))?;
        }
        Ok(Self(flag))
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.came() {
            bail!("interrupted");
        }
        Ok(())
    }

    pub(crate) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A process in its own process group, with its output in files: a pipe would wake its reader during a measurement.
pub(crate) struct Running {
    shown: String,
    child: Child,
    out: PathBuf,
    err: PathBuf,
    interrupt: Interrupt,
}

impl Running {
    pub(crate) fn start(
        mut command: Command,
        folder: &Path,
        name: &str,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let shown = process::show(&command);
        let out = folder.join(format!("{name}.out"));
        let err = folder.join(format!("{name}.err"));
        let create = |path: &Path| {
            File::create(path).with_context(|| format!("cannot create {}", path.display()))
        };
        let child = command
            .stdin(Stdio::null())
            .stdout(create(&out)?)
            .stderr(create(&err)?)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start `{shown}`"))?;
        Ok(Self { shown, child, out, err, interrupt: interrupt.clone() })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Its standard output so far.
    pub(crate) fn printed(&self) -> Result<String> {
        read(&self.out)
    }

    /// Its standard error so far.
    pub(crate) fn complained(&self) -> Result<String> {
        read(&self.err)
    }

    /// Waits until it prints the marker.
    pub(crate) fn wait_for(&mut self, marker: &str, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        while !self.printed()?.contains(marker) {
            if let Some(status) = self.status()? {
                bail!("`{}` ended too early: {status}: {}", self.shown, self.complained()?.trim());
            }
            self.check(deadline)?;
            sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Waits for its end, and calls `each` periodically.
    pub(crate) fn wait(
        &mut self,
        limit: Duration,
        poll: Duration,
        mut each: impl FnMut(),
    ) -> Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.status()? {
                return Ok(status);
            }
            self.check(deadline)?;
            each();
            sleep(poll);
        }
    }

    /// Waits for a successful end.
    pub(crate) fn succeed(
        &mut self,
        limit: Duration,
        poll: Duration,
        each: impl FnMut(),
    ) -> Result<()> {
        let status = self.wait(limit, poll, each)?;
        if !status.success() {
            bail!("`{}` failed: {status}: {}", self.shown, self.complained()?.trim());
        }
        Ok(())
    }

    /// Interrupts it like Ctrl-C; returns the time until its end and the exit status. Some tracers miss a signal at
    /// certain moments and need a second one; others treat a second one as a forced end.
    pub(crate) fn stop(&mut self, again: Again) -> Result<(Duration, ExitStatus)> {
        let holder = holder_of(self.pid());
        let began = Instant::now();
        let pid = Pid::from_raw(self.pid());
        kill(pid, Signal::SIGINT).with_context(|| format!("cannot interrupt `{}`", self.shown))?;
        let mut next = Instant::now() + REPEAT;
        let status = self.wait(GRACE, Duration::from_millis(1), || {
            if again == Again::Yes && Instant::now() > next {
                // It may have just ended, which the next check detects.
                let _ = kill(pid, Signal::SIGINT);
                next += REPEAT;
            }
        })?;
        let took = began.elapsed();
        // The next measurement must not include the cost of its probes.
        let goes_on = |holder: &PathBuf| {
            let status = fs::read_to_string(holder.join("status"));
            status.is_ok_and(|status| !status.contains("State:\tZ"))
        };
        while holder.as_ref().is_some_and(goes_on) {
            self.check(began + GRACE)?;
            sleep(Duration::from_millis(1));
        }
        Ok((took, status))
    }

    fn status(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("waiting for `{}`", self.shown))
    }

    fn check(&self, deadline: Instant) -> Result<()> {
        self.interrupt.check()?;
        if Instant::now() > deadline {
            bail!("`{}` takes too long; it printed: {}", self.shown, self.complained()?.trim());
        }
        Ok(())
    }
}

/// The process that holds podstuck's probes in their hooks. It ends some time after podstuck itself.
fn holder_of(tool: i32) -> Option<PathBuf> {
    let children = |pid: &str| {
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default()
    };
    let server = children(&tool.to_string());
    let all: Vec<String> = server.split_whitespace().map(children).collect();
    let mut all = all.iter().flat_map(|text| text.split_whitespace());
    let is_holder = |pid: &&str| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "holder\n")
    };
    all.find(is_holder).map(|pid| Path::new("/proc").join(pid))
}

impl Drop for Running {
    fn drop(&mut self) {
        // The id of a process that was waited for may belong to another process.
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // The whole group: a traced process would continue without its tracer.
        match killpg(Pid::from_raw(self.pid()), Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => eprintln!("cannot kill `{}`: {errno}", self.shown),
        }
        if let Err(error) = self.child.wait() {
            eprintln!("cannot wait for `{}`: {error}", self.shown);
        }
    }
}

fn read(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
