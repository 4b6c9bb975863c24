//! `cargo xtask daemons`: the tests with real runtimes, with the daemons of another release of Debian's.

use std::process::ExitCode;

use anyhow::Result;
use podstuck_process::private_apt::PrivateApt;

use crate::workspace::Workspace;
use crate::{setup, test};

/// What the tests start of them, as the names of their files begin.
const DAEMONS: [&str; 4] = ["docker.io_", "containerd_", "runc_", "podman_"];
/// The daemons, and what stands under `/usr` that they start.
const PACKAGES: [&str; 14] = [
    "docker.io",
    "docker-cli",
    "containerd",
    "runc",
    "podman",
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
    #[arg(long, default_value = "forky")]
    suite: String,
    /// Only the tests whose name contains this
    filter: Option<String>,
}

/// Unpacks them beside the machine's own, and runs the tests.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    setup::run(workspace)?;
    let folder = workspace.target.join("daemons");
    let root = folder.join(&options.suite);
    let apt = PrivateApt::new(folder.join("apt"))?;
    let files = apt.fill_root(&options.suite, &PACKAGES, &root)?;
    let is_tested = |file: &&String| DAEMONS.iter().any(|name| file.starts_with(name));
    for file in files.iter().filter(is_tested) {
        println!("{file}");
    }
    test::with_daemons(workspace, root, options.filter.as_deref()).map(|()| ExitCode::SUCCESS)
}
