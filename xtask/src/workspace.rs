//! The location of the workspace, and the cargo that started this program.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// The workspace's folders.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
}

impl Workspace {
    /// The workspace that this program was compiled in.
    pub(crate) fn locate() -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest
            .parent()
            .with_context(|| format!("{} has no parent folder", manifest.display()))?
            .to_path_buf();
        let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
        let target = root.join(target);
        Ok(Self { root, target })
    }

    /// A cargo command in the workspace's root.
    pub(crate) fn cargo<const N: usize>(&self, arguments: [&str; N]) -> Command {
        // Cargo sets its own path: a plain `cargo` may be another toolchain's.
        let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = Command::new(cargo);
        command
            .args(arguments)
            .current_dir(&self.root)
            // A relative path would mean another folder for a cargo in another directory.
            .env("CARGO_TARGET_DIR", &self.target);
        command
    }
}
