//! The command line.

use std::{net::SocketAddr, path::PathBuf};

use clap::Parser;

/// Watches one node continuously: writes Events on stuck pods, serves metrics and health.
///
/// Runs `podstuck watch` and reports its findings. `podstuck watch` needs root or its capabilities; the agent drops
/// all of its own.
#[derive(Debug, Parser)]
#[command(name = "podstuck-agent", version)]
pub struct Cli {
    /// Where to serve /metrics, /healthz and /readyz
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9465")]
    pub listen: SocketAddr,
    /// The node's name in the API server [default: the variable NODE_NAME]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Write no Events, and send no request to the API server
    #[arg(long)]
    pub no_events: bool,
    /// The kubeconfig for the API server [default: the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The directory of the agent's files, best on a tmpfs
    #[arg(long, value_name = "DIR", default_value = "/run/podstuck")]
    pub directory: PathBuf,
    /// The `podstuck` program [default: beside the agent, else in PATH]
    #[arg(long, value_name = "PATH")]
    pub podstuck: Option<PathBuf>,
    /// Keep the counts across restarts, in this directory of a BPF file system, as in /sys/fs/bpf/podstuck
    ///
    /// The probes count on when the agent ends or is killed, and the next agent continues the counters. They stay until
    /// `--uninstall`, or until the node starts again.
    #[arg(long, value_name = "DIR")]
    pub pin: Option<PathBuf>,
    /// Remove what agents with `--pin DIR` have left in the kernel, also after a crash, and end
    #[arg(long, requires = "pin")]
    pub uninstall: bool,
    /// Options of `podstuck watch`, such as --kubelet-root
    #[arg(last = true, value_name = "OPTION")]
    pub watch: Vec<String>,
}
