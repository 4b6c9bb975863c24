//! Runs `podstuck watch`. It is started once; when it ends, the agent ends, too.

use std::{path::Path, process::Stdio};

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use rustix::process::{Signal as Parents, set_parent_process_death_signal};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, ChildStdout, Command},
};

/// Maximum length of a line, in bytes. A longer line is split.
const LONGEST: u64 = 1 << 20;

/// A watch of the whole node.
pub(crate) struct Watch {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Watch {
    /// Starts the watch. It writes its files into `export` and ends with this process.
    ///
    /// # Errors
    /// Fails if the program cannot be started.
    pub(crate) fn start(
        program: &Path,
        export: &Path,
        pin: Option<&Path>,
        options: &[String],
    ) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["watch", "--low-overhead", "--output", "json", "--export"]).arg(export);
        if let Some(pin) = pin {
            command.arg("--pin").arg(pin);
        }
        command.args(options);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let agent = std::process::id();
        // SAFETY: between fork and exec it makes two system calls and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                set_parent_process_death_signal(Some(Parents::TERM))?;
                // The agent may have ended before the signal was set.
                let lives =
                    rustix::process::getppid().is_some_and(|pid| pid.as_raw_pid() as u32 == agent);
                if lives { Ok(()) } else { Err(std::io::ErrorKind::NotFound.into()) }
            });
        }
        let mut child =
            command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let out = child.stdout.take().context("`podstuck watch` has no standard output")?;
        Ok(Self { child, lines: BufReader::new(out) })
    }

    /// Its process id; `None` after it has ended.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Reads the next line, including its end; false when the watch has ended. Not cancellation-safe.
    ///
    /// # Errors
    /// Fails if the pipe cannot be read.
    pub(crate) async fn line(&mut self, line: &mut Vec<u8>) -> std::io::Result<bool> {
        line.clear();
        let length = (&mut self.lines).take(LONGEST).read_until(b'\n', line).await?;
        Ok(length > 0)
    }

    /// Sends SIGTERM.
    pub(crate) fn stop(&self) {
        if let Some(pid) = self.id() {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), Signal::SIGTERM);
        }
    }

    /// Waits for its end; returns the exit status as text.
    pub(crate) async fn end(mut self) -> String {
        match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }
}
