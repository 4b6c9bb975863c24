//! Programs that the benchmark uses if they are installed; it installs none.

use std::path::PathBuf;
use std::process::Command;

use podstuck_process as process;

/// A program and its Debian package.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
}

pub(crate) const BPFTRACE: Tool = Tool { program: "bpftrace", package: "bpftrace" };
pub(crate) const STRACE: Tool = Tool { program: "strace", package: "strace" };
pub(crate) const PERF: Tool = Tool { program: "perf", package: "linux-perf" };

impl Tool {
    pub(crate) fn find(self) -> Option<PathBuf> {
        process::find(self.program)
    }

    /// Its version, in one line.
    pub(crate) fn version(self) -> String {
        let Some(program) = self.find() else { return self.missing() };
        process::output(Command::new(program).arg("--version"))
            .ok()
            .and_then(|text| text.lines().next().map(str::to_owned))
            .unwrap_or_else(|| format!("{} of unknown version", self.program))
    }

    pub(crate) fn missing(self) -> String {
        format!("{} not installed (Debian package {})", self.program, self.package)
    }
}
