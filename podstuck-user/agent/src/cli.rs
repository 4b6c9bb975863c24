//! The command line.

use std::{net::SocketAddr, path::PathBuf};

use clap::Parser;

/// Watches one node for as long as it runs: Events on stuck pods, metrics and health.
///
/// Runs `podstuck watch` and tells what it finds. The watch needs root or the capabilities of a watch; the agent
/// itself drops all of its own.
#[derive(Debug, Parser)]
#[command(name = "podstuck-agent", version)]
pub struct Cli {
    /// Where to serve /metrics, /healthz and /readyz
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9465")]
    pub listen: SocketAddr,
    /// The node's name in the API server; without it, that of the variable NODE_NAME
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Write no Events, and ask no API server
    #[arg(long)]
    pub no_events: bool,
    /// How to reach the API server; without it, by the pod's service account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Where the agent keeps its files; best in memory
    #[arg(long, value_name = "DIR", default_value = "/run/podstuck")]
    pub directory: PathBuf,
    /// The program that watches
    #[arg(long, value_name = "PATH")]
    pub podstuck: Option<PathBuf>,
    /// Options of `podstuck watch`, such as --kubelet-root
    #[arg(last = true, value_name = "OPTION")]
    pub watch: Vec<String>,
}
