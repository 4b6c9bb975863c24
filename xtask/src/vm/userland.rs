//! The source of a guest's system programs: this machine, or Debian's packages for other architectures.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use lddtree::DependencyAnalyzer;

use crate::architecture::Architecture;
use podstuck_process as process;
use podstuck_process::private_apt::PrivateApt;

/// The Debian release of the programs.
const SUITE: &str = "bookworm";
/// The packages with busybox and the tools of `initramfs.rs`.
const PACKAGES: [&str; 10] = [
    "busybox-static",
    "bash",
    "e2fsprogs",
    "dmsetup",
    "util-linux",
    "mount",
    "coreutils",
    "runc",
    "lsof",
    "psmisc",
];
const FOLDERS: [&str; 4] = ["bin", "sbin", "usr/bin", "usr/sbin"];

/// The root of the file system that contains them.
pub(super) struct Userland {
    root: PathBuf,
    /// The library folder of this architecture
    libraries: String,
}

impl Userland {
    /// Provides the programs for this architecture, below a folder.
    pub(super) fn get(folder: &Path, architecture: Architecture) -> Result<Self> {
        let libraries = format!("{}-linux-gnu", architecture.of_rust());
        if architecture == Architecture::own() {
            return Ok(Self { root: "/".into(), libraries });
        }
        let apt = PrivateApt::new(folder.join("tools"))?.for_architecture(architecture.of_debian());
        let root = folder.join("root");
        apt.fill_root(SUITE, &PACKAGES, &root)?;
        Ok(Self { root, libraries })
    }

    /// The file of a program.
    pub(super) fn find(&self, program: &str) -> Result<PathBuf> {
        if self.root == Path::new("/") {
            return process::find(program)
                .with_context(|| format!("this machine has no `{program}`"));
        }
        let files = FOLDERS.map(|folder| self.root.join(folder).join(program));
        let found = files.into_iter().find(|file| file.is_file());
        found.with_context(|| format!("no package of {} holds `{program}`", PACKAGES.join(", ")))
    }

    /// A program's libraries and its loader: the file, and its path in the guest.
    pub(super) fn libraries(&self, program: &Path) -> Result<Vec<(PathBuf, PathBuf)>> {
        // The folders of the loader's configuration, which none of these packages contains.
        let folders = ["lib", "usr/lib"].map(|lib| self.root.join(lib).join(&self.libraries));
        let tree = DependencyAnalyzer::new(self.root.clone())
            .library_paths(folders.into())
            .analyze(program)
            .with_context(|| format!("cannot read the libraries of {}", program.display()))?;
        let mut found: Vec<PathBuf> = tree.interpreter.into_iter().map(PathBuf::from).collect();
        found.extend(tree.libraries.into_values().map(|library| library.path));
        let place = |file: PathBuf| {
            let place = file.strip_prefix(&self.root).unwrap_or(&file).to_owned();
            let place = place.strip_prefix("/").unwrap_or(&place).to_owned();
            (self.root.join(&place), place)
        };
        Ok(found.into_iter().map(place).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_brings_its_loader() {
        let own = Userland::get(Path::new("/nowhere"), Architecture::own()).unwrap();
        let found = own.libraries(&own.find("bash").unwrap()).unwrap();
        let is_loader = |place: &Path| place.display().to_string().contains("ld-linux");
        assert!(found.iter().any(|(_, place)| is_loader(place)), "{found:?}");
        assert!(
            found.iter().all(|(file, place)| file.is_file() && place.is_relative()),
            "{found:?}"
        );
    }
}
