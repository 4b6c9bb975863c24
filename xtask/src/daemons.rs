//! `cargo xtask daemons`: the tests with the real runtimes of another Debian release.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use podstuck_process::private_apt::PrivateApt;

use crate::workspace::Workspace;
use crate::{setup, test};

/// The default release.
pub(crate) const SUITE: &str = "forky";
/// The runtimes that the tests start, as prefixes of the packages' file names.
const DAEMONS: [&str; 5] = ["docker.io_", "containerd_", "runc_", "crun_", "podman_"];
/// The daemons, and the programs that they and the tests need under `/usr`.
const PACKAGES: [&str; 17] = [
    "docker.io",
    "docker-cli",
    "containerd",
    "runc",
    "crun",
    "podman",
    "bash",
    "busybox-static",
    "dash",
    "coreutils",
    "util-linux",
    "mount",
    "kmod",
    "procps",
    "e2fsprogs",
    "iptables",
    "tar",
];

/// Which ones.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The release: forky has Docker 28, containerd 2.1 and Podman 5.8, trixie Docker 26 and
    /// containerd 1.7
    #[arg(long, default_value = SUITE)]
    suite: String,
    /// Only the tests whose name contains this
    filter: Option<String>,
}

/// Unpacks them separately from the machine's own, and runs the tests.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    setup::run(workspace)?;
    let root = unpacked(workspace, &options.suite)?;
    test::with_daemons(workspace, root, options.filter.as_deref()).map(|()| ExitCode::SUCCESS)
}

/// The root of a file system with the daemons and their dependencies.
pub(crate) fn unpacked(workspace: &Workspace, suite: &str) -> Result<PathBuf> {
    let folder = workspace.target.join("daemons");
    let root = folder.join(suite);
    let files = PrivateApt::new(folder.join("apt"))?.fill_root(suite, &PACKAGES, &root)?;
    let is_tested = |file: &&String| DAEMONS.iter().any(|name| file.starts_with(name));
    for file in files.iter().filter(is_tested) {
        println!("{file}");
    }
    Ok(root)
}
