//! Controls the removal process from the lab's process.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::{layout::Pod, note};

/// A running removal process. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct RemovalProcess {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

/// Maximum wait for its end after it is asked to stop. A deletion on a slow disk may be under way.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The file to which the removal process writes kubelet's log.
pub(super) struct KubeletLog {
    path: PathBuf,
    file: File,
}

impl KubeletLog {
    /// Creates an empty log in the lab's directory.
    pub(super) fn create(pod: &Pod) -> Result<Self> {
        let path = pod.root.join("kubelet.log");
        let file = File::create_new(&path);
        let file = file.with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self { path, file })
    }
}

impl RemovalProcess {
    /// Starts the process and waits until its mounts are made. Its standard error is inherited, or goes to the log.
    pub(super) fn launch(command: io::Result<Command>, log: Option<KubeletLog>) -> Result<Self> {
        let (path, file) = log.map(|log| (log.path, log.file)).unzip();
        let mut child = command
            .and_then(|mut command| {
                command.stdin(Stdio::piped()).stdout(Stdio::piped());
                command.stderr(file.map_or_else(Stdio::inherit, Stdio::from));
                // Ctrl-C goes only to the lab, which then ends this process in an orderly way.
                command.process_group(0).spawn()
            })
            .context("cannot start the removal process")?;
        let input = child.stdin.take();
        let output = child.stdout.take();
        let (sender, lines) = channel();
        let this = Self { child, input, lines };
        let output = output.context("the removal process has no output")?;
        let reader = move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().spawn(reader).context("cannot start a thread")?;
        if this.lines.recv().is_err() {
            if let Some(said) = path.and_then(|path| fs::read_to_string(path).ok()) {
                note(said.trim_end());
            }
            bail!("the removal process could not set up the case; its message is above");
        }
        Ok(this)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Starts the removal.
    pub(super) fn start(&mut self) -> Result<()> {
        match &mut self.input {
            Some(input) => input.write_all(b"start\n").context("cannot start the removal"),
            None => bail!("the removal process has no input"),
        }
    }

    /// Waits for its last line. Asks it to stop as soon as `is_over` returns true.
    pub(super) fn finish(&mut self, is_over: impl Fn() -> bool) -> Result<String> {
        let mut asked: Option<Instant> = None;
        let line = loop {
            match self.lines.recv_timeout(Duration::from_millis(50)) {
                Ok(line) => break line,
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("the removal process ended without a count")
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            match asked {
                None if is_over() => {
                    self.input = None;
                    asked = Some(Instant::now());
                }
                Some(when) if when.elapsed() > EXIT_TIMEOUT => {
                    bail!("the removal process did not end in {EXIT_TIMEOUT:?} and was killed")
                }
                _ => {}
            }
        };
        self.input = None;
        let status = self.child.wait().context("cannot wait for the removal process")?;
        if !status.success() {
            bail!("the removal process failed: {status}");
        }
        Ok(line)
    }
}

impl Drop for RemovalProcess {
    /// The mounts must be gone before the tree is removed. After [`RemovalProcess::finish`], the process has already
    /// ended.
    fn drop(&mut self) {
        // Its helpers end with their input, which releases a process that is blocked on a file system they serve.
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
