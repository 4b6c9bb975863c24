//! The runtimes of another release of Debian's; `cargo xtask daemons`: the tests with real runtimes, with those.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use podstuck_process::private_apt::PrivateApt;

use crate::workspace::Workspace;
use crate::{setup, test};

/// The one that is taken unless another is asked for.
pub(crate) const SUITE: &str = "forky";
/// What the tests start of them, as the names of their files begin.
const DAEMONS: [&str; 5] = ["docker.io_", "containerd_", "runc_", "crun_", "podman_"];
/// The daemons, and what stands under `/usr` that they and the tests start.
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

/// Unpacks them beside the machine's own, and runs the tests.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    setup::run(workspace)?;
    let root = unpacked(workspace, &options.suite)?;
    test::with_daemons(workspace, root, options.filter.as_deref()).map(|()| ExitCode::SUCCESS)
}

/// The root of a file system that has them, and what they need.
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
