//! Scripts with which shells ask the program for completions: also causes, labs and pods of the node.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use podstuck_process as process;

/// The script of a shell.
pub(super) struct Completion {
    pub(super) shell: &'static str,
    /// The folder in which the shell looks for the scripts of packages, below `/usr/share`
    pub(super) folder: &'static str,
    /// The file name that the shell looks for there
    pub(super) name: &'static str,
    pub(super) text: String,
}

const SHELLS: [(&str, &str, &str); 3] = [
    ("bash", "bash-completion/completions", "podstuck"),
    ("zsh", "zsh/vendor-completions", "_podstuck"),
    ("fish", "fish/vendor_completions.d", "podstuck.fish"),
];

/// The script of each shell.
pub(super) fn of(program: &Path) -> Result<Vec<Completion>> {
    let made = |(shell, folder, name)| {
        let mut ask = Command::new(program);
        // The script calls the program by the name with which it was called here: the bare name, from `PATH`.
        let text = process::output(ask.arg0("podstuck").env("COMPLETE", shell))?;
        Ok(Completion { shell, folder, name, text })
    };
    SHELLS.into_iter().map(made).collect()
}
