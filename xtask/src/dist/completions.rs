//! What makes shells ask the program for what can be typed: causes, labs and pods of the node, too.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use podstuck_process as process;

/// A shell's script.
pub(super) struct Completion {
    pub(super) shell: &'static str,
    /// The folder where that shell looks for what packages bring, below `/usr/share`
    pub(super) folder: &'static str,
    /// The name that it looks for there
    pub(super) name: &'static str,
    pub(super) text: String,
}

const SHELLS: [(&str, &str, &str); 3] = [
    ("bash", "bash-completion/completions", "podstuck"),
    ("zsh", "zsh/vendor-completions", "_podstuck"),
    ("fish", "fish/vendor_completions.d", "podstuck.fish"),
];

/// One for each shell.
pub(super) fn of(program: &Path) -> Result<Vec<Completion>> {
    let made = |(shell, folder, name)| {
        let mut ask = Command::new(program);
        // The script calls the program as it was called itself: by its name alone, from `PATH`.
        let text = process::output(ask.arg0("podstuck").env("COMPLETE", shell))?;
        Ok(Completion { shell, folder, name, text })
    };
    SHELLS.into_iter().map(made).collect()
}
