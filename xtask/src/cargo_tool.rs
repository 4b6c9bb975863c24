//! Programs that `cargo install` brings.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::workspace::Workspace;

/// A program at the one version that we work with.
pub(crate) struct CargoTool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}

impl CargoTool {
    /// Installs the program, unless the pinned version is there.
    pub(crate) fn ensure(&self, workspace: &Workspace) -> Result<()> {
        let Self { name, version } = self;
        if self.is_installed() {
            println!("{name} {version}: there");
            return Ok(());
        }
        println!("{name} {version}: compiling it, which takes minutes");
        let by_hand = format!("cargo install {name} --version {version} --locked");
        // Not into the workspace's target folder, which would keep the build's leftovers.
        let mut install = workspace.cargo(["install", name, "--version", version, "--locked"]);
        process::run(install.env_remove("CARGO_TARGET_DIR"))
            .with_context(|| format!("cannot install {name}; by hand: `{by_hand}`"))?;
        if !self.is_installed() {
            bail!("{name} {version} is installed but not found: put cargo's bin folder on PATH");
        }
        Ok(())
    }

    fn is_installed(&self) -> bool {
        process::output(Command::new(self.name).arg("--version"))
            .is_ok_and(|printed| printed.split_whitespace().any(|word| word == self.version))
    }
}
