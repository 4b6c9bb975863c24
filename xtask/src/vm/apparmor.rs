//! The AppArmor profiles for guests, whose kernels all enforce AppArmor: compiled here, since the parser needs libraries
//! that a guest does not have.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use podstuck_process::private_apt::PrivateApt;
use podstuck_process::{self as process, folder};

use crate::workspace::Workspace;

/// The Debian release of the parser. Its kernel features are those of Linux 5.10, which newer kernels accept.
const SUITE: &str = "bookworm";
/// The agent's profile, and those of `tests/tests/late/apparmor.rs`.
const PROFILES: [&str; 2] =
    ["podstuck-user/agent/chart/files/apparmor", "tests/tests/late/apparmor.profiles"];

/// Compiles the profiles below a folder; returns the file that a kernel loads.
pub(super) fn policy(workspace: &Workspace, folder: &Path) -> Result<PathBuf> {
    let apt = PrivateApt::new(folder.join("apparmor-apt"))?;
    apt.update(&[SUITE]).context("cannot get Debian's package indexes")?;
    let packages = ["apparmor".to_owned()];
    let root = folder.join("apparmor");
    let stamp = apt.files(&packages)?.join("\n");
    folder::unless_stamped(&root, &stamp, || apt.unpack_all(&packages, &root))?;
    let features = root.join("usr/share/apparmor-features/features");
    let compiled = root.join("policy");
    let mut parser = Command::new(root.join("sbin/apparmor_parser"));
    parser.args(["--skip-kernel-load", "--skip-cache", "--config-file=/dev/null", "--ofile"]);
    parser.arg(&compiled).arg("--kernel-features").arg(&features);
    parser.arg("--policy-features").arg(&features);
    parser.args(PROFILES.map(|profile| workspace.root.join(profile)));
    // It appends.
    fs::write(&compiled, "").with_context(|| format!("cannot write {}", compiled.display()))?;
    process::run(&mut parser)?;
    Ok(compiled)
}
