//! Programs that `cargo install` provides.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use podstuck_process as process;
use serde_json::Value;

use crate::workspace::Workspace;

/// Settings that shorten the compilation. Measured: 43 s of CPU time instead of 124 for bpf-linker, 80 instead of 208
/// for cargo-deny. The programs' run time of a few seconds is the same: LLVM does the linker's work.
const QUICK: [(&str, &str); 3] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
];

/// A program at its pinned version.
pub(crate) struct CargoTool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Features in place of the default ones; empty for the default ones
    pub(crate) features: &'static [&'static str],
}

impl CargoTool {
    /// Installs the program, unless the pinned version is installed.
    pub(crate) fn ensure(&self, workspace: &Workspace) -> Result<()> {
        let Self { name, version, .. } = self;
        if self.is_installed() {
            println!("{name} {version}: there");
            return Ok(());
        }
        println!("{name} {version}: compiling it, which takes a minute");
        // Not in the workspace's target folder, which would keep the artefacts.
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

    /// The version of a program on `PATH`, if the program exists and prints one.
    pub(crate) fn installed_version(name: &str) -> Option<String> {
        // Called like cargo's subcommands: some of them do not answer otherwise.
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

    /// Whether cargo's record of the installation has the wanted features. A program that was installed in another
    /// way has no record and is accepted.
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

/// Cargo's home directory, with its crates and records.
pub(crate) fn cargo_home() -> Option<PathBuf> {
    env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")))
}

/// Cargo's record of its installations. The format is internal to cargo; if it cannot be read, nothing is known.
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
