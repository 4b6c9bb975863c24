//! Programs that `cargo install` brings.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use podstuck_process as process;
use serde_json::Value;

use crate::workspace::Workspace;

/// Compiled for a short compilation: measured, 43 s of CPU for bpf-linker and not 124, 80 for cargo-deny
/// and not 208. What they do here takes the same few seconds: the linker's work is done by LLVM.
const QUICK: [(&str, &str); 3] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
];

/// A program at the one version that we work with.
pub(crate) struct CargoTool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Instead of its default ones; none means those
    pub(crate) features: &'static [&'static str],
}

impl CargoTool {
    /// Installs the program, unless the pinned version is there.
    pub(crate) fn ensure(&self, workspace: &Workspace) -> Result<()> {
        let Self { name, version, .. } = self;
        if self.is_installed() {
            println!("{name} {version}: there");
            return Ok(());
        }
        println!("{name} {version}: compiling it, which takes a minute");
        // Not into the workspace's target folder, which would keep the build's leftovers.
        let mut install = workspace.cargo(["install", name, "--version", version, "--locked"]);
        if !self.features.is_empty() {
            install.args(["--no-default-features", "--features", &self.features.join(",")]);
        }
        let by_hand = process::show(&install);
        process::run(install.env_remove("CARGO_TARGET_DIR").envs(QUICK))
            .with_context(|| format!("cannot install {name}; by hand: `{by_hand}`"))?;
        if !self.is_installed() {
            bail!("{name} {version} is installed but not found: put cargo's bin folder on PATH");
        }
        Ok(())
    }

    /// The version of a program on `PATH`, if it is there and says one.
    pub(crate) fn installed_version(name: &str) -> Option<String> {
        // As cargo calls its own: not all of them answer otherwise.
        let subcommand = name.strip_prefix("cargo-");
        let mut ask = Command::new(name);
        let printed = process::output(ask.args(subcommand).arg("--version")).ok()?;
        let is_version = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
        printed.split_whitespace().find(is_version).map(str::to_owned)
    }

    fn is_installed(&self) -> bool {
        Self::installed_version(self.name).as_deref() == Some(self.version)
            && cargos_record().is_none_or(|record| self.fits(&record))
    }

    /// Whether what cargo noted at the installation has our features. A program that came in
    /// another way has no note, and is taken as it is.
    fn fits(&self, record: &Value) -> bool {
        let ours = format!("{} {} ", self.name, self.version);
        let installs = record["installs"].as_object().into_iter().flatten();
        let mut noted = installs.filter(|(package, _)| package.starts_with(&ours));
        noted.all(|(_, note)| {
            let mut features: Vec<&str> = note["features"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            features.sort_unstable();
            let mut wanted = self.features.to_vec();
            wanted.sort_unstable();
            features == wanted
        })
    }
}

/// Where cargo has its crates and its notes.
pub(crate) fn cargo_home() -> Option<PathBuf> {
    env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")))
}

/// Where `cargo install` notes how it built what. Its form is cargo's own business: where it cannot
/// be read, nothing is known.
fn cargos_record() -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(cargo_home()?.join(".crates2.json")).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_program_with_other_features_is_another_program() {
        let tool = CargoTool { name: "linker", version: "1.2.3", features: &["b", "a"] };
        let with = |package: &str, features: &[&str]| json!({"installs": {package: {"features": features, "no_default_features": true}}});
        assert!(tool.fits(&with("linker 1.2.3 (registry)", &["a", "b"])));
        assert!(!tool.fits(&with("linker 1.2.3 (registry)", &[])));
        assert!(tool.fits(&with("linker 1.2.4 (registry)", &[])), "not what is on PATH");
        assert!(tool.fits(&json!({"installs": {}})), "not installed by cargo");
    }

    #[test]
    fn a_program_is_asked_for_its_version() {
        assert!(CargoTool::installed_version("cargo").is_some_and(|version| version.contains('.')));
        assert_eq!(CargoTool::installed_version("no-such-program-anywhere"), None);
    }
}
