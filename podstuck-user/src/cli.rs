//! What was typed. What it means is decided in `commands`.

mod values;

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use podstuck_common::config::step;
use podstuck_lab::HelperArgs;

pub use self::values::Api;
use self::values::{api, duration, speed};
use crate::model::mounts::Device;

/// Says what keeps a Kubernetes pod Terminating, who does, with which evidence, and which command
/// releases it.
#[derive(Debug, Parser)]
#[command(
    name = "podstuck",
    version,
    after_help = "Exit status: 0 nothing wrong was found, 1 at least one finding, 2 wrong usage, \
                  3 cannot run here, 4 ran but lost data (with --fail-on-loss), 5 the pod is still there and \
                  no cause was found (diagnose), 130 ended by a second Ctrl-C."
)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
    /// More detail: -v says what the probes cost, -vv adds the probes' own debug lines
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Trace live and print findings as they form
    ///
    /// Ends at --duration or at the first Ctrl-C and then prints the summary; a second Ctrl-C
    /// aborts.
    Watch(Watch),
    /// Say why something is stuck: look at the node, trace until the verdict is firm, print the
    /// causes, the most likely first
    Diagnose(Diagnose),
    /// Show again what a run showed, from a recording made with `--record FILE`
    ///
    /// Exit status: as that of the run; 2 for a file that is no recording, or one of a newer podstuck.
    Replay(Replay),
    /// Say who keeps a mount, a file or a device busy, in all mount namespaces
    ///
    /// Exit status: 0 nobody holds it, 1 somebody does, 2 there is no such path, 3 cannot look.
    Holders(Holders),
    /// Say what a cause means, what confirms it and what it is confused with; without argument,
    /// list all
    Explain(Explain),
    /// Say which probes, kernel features and runtimes work here, and what is lost without each
    Doctor(Doctor),
    /// Build a real, contained case of a cause; without argument, list them
    Lab(Lab),
    /// The removing process of a lab case
    #[command(hide = true)]
    LabRemoval(LabRemoval),
    /// The process that keeps a part of a lab case going
    #[command(hide = true)]
    LabHelper(HelperArgs),
    /// One answer to one question about the node, for another podstuck
    #[command(hide = true)]
    Look,
}

/// Options of `watch`.
#[derive(Debug, Args)]
pub struct Watch {
    /// What both do
    #[command(flatten)]
    pub tracing: Tracing,
    /// Stop after this time, as in 30s or 5m
    #[arg(long, value_parser = duration)]
    pub duration: Option<Duration>,
}

/// Options of `diagnose`.
#[derive(Debug, Args)]
pub struct Diagnose {
    /// What both do
    #[command(flatten)]
    pub tracing: Tracing,
    /// Give up after this time: the default is 250s, two of kubelet's longest back-offs, and 30s where no
    /// probes can be had
    #[arg(long, value_parser = duration)]
    pub timeout: Option<Duration>,
    /// The pod's record, as `kubectl get pod NAME -o json` prints it, where the API server does not
    /// tell it; `-` for standard input
    #[arg(long, value_name = "FILE")]
    pub pod_json: Option<PathBuf>,
}

/// What `watch` and `diagnose` share.
#[derive(Debug, Args)]
pub struct Tracing {
    /// What to watch
    #[command(flatten)]
    pub target: Target,
    /// How to print
    #[arg(long, value_enum, default_value_t = Output::Auto)]
    pub output: Output,
    /// Write findings, histograms and metrics to this directory
    #[arg(long, value_name = "DIR")]
    pub export: Option<PathBuf>,
    /// Write everything that was seen to this file, for `podstuck replay`
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// In the recording, replace the names of namespaces, pods, files and hosts, the same each time
    #[arg(long, requires = "record")]
    pub redact: bool,
    /// Where the node's files are
    #[command(flatten)]
    pub node: Node,
    /// Ask the API server about this node and its pods, read-only, for two seconds at most: as the
    /// running kubelet does, never, or by the credentials of this file
    #[arg(long, value_name = "auto|never|KUBECONFIG", default_value = "auto", value_parser = api())]
    pub api: Api,
    /// How to attach
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    pub backend: Backend,
    /// Load no probes: answer by the node's state, records and logs alone
    #[arg(long)]
    pub no_trace: bool,
    /// Tell calls that have not returned for this long, or took this long, whatever their outcome
    #[arg(long, value_parser = duration, default_value = "2s")]
    pub hung_after: Duration,
    /// How long nobody must have tried to unmount before that is told: the default is two of
    /// kubelet's longest back-offs
    #[arg(long, value_parser = duration, default_value = "244s")]
    pub untried_after: Duration,
    /// Exit with 4 when counts or events were lost
    #[arg(long)]
    pub fail_on_loss: bool,
    /// Have the programs do no more of a call than this, to measure what each step costs
    #[arg(long, value_enum, hide = true)]
    pub stop_after: Option<Step>,
}

/// What the programs do about a call, step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Step {
    /// They are entered.
    Pair = step::PAIR as isize,
    /// The clock is read.
    Clocks = step::CLOCKS as isize,
    /// The call is noted, and taken.
    Slot = step::SLOT as isize,
    /// Its directory is found.
    Directory = step::DIRECTORY as isize,
    /// What is known of that is recalled.
    Recall = step::RECALL as isize,
    /// It is counted.
    Count = step::COUNT as isize,
}

/// One pod, one directory, or the whole node.
#[derive(Debug, Default, Args)]
#[group(multiple = false)]
pub struct Target {
    /// Only the pod with this UID
    #[arg(long, value_name = "UID")]
    pub pod_uid: Option<String>,
    /// Only the pod of this name
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub pod: Option<String>,
    /// Only what is below this directory, as the deleting process sees it
    #[arg(long, value_name = "DIR")]
    pub path: Option<PathBuf>,
}

impl Target {
    /// Whether nothing is left out.
    pub fn is_whole_node(&self) -> bool {
        self.pod_uid.is_none() && self.pod.is_none() && self.path.is_none()
    }
}

/// Where the node's files are.
#[derive(Debug, Default, Args)]
pub struct Node {
    /// kubelet's root directory; found from running kubelets if not given
    #[arg(long, value_name = "DIR")]
    pub kubelet_root: Vec<PathBuf>,
    /// Where the host's file system is, when podstuck runs in a container
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub host_root: PathBuf,
}

/// Options of `replay`.
#[derive(Debug, Args)]
pub struct Replay {
    /// A recording made with `--record`
    pub file: PathBuf,
    /// How to print
    #[arg(long, value_enum, default_value_t = Output::Auto)]
    pub output: Output,
    /// Write findings, histograms and metrics to this directory
    #[arg(long, value_name = "DIR")]
    pub export: Option<PathBuf>,
    /// How fast: 1 as it happened, 60 a minute in a second; without, as fast as possible
    #[arg(long, value_name = "TIMES", value_parser = speed)]
    pub speed: Option<f64>,
    /// Exit with 4 when counts or events were lost
    #[arg(long)]
    pub fail_on_loss: bool,
}

/// Options of `holders`.
#[derive(Debug, Args)]
pub struct Holders {
    /// A mount point, in this mount namespace or any other, or a file or directory
    #[arg(required_unless_present = "device")]
    pub path: Option<PathBuf>,
    /// Instead of a path, everything on this device, also after `umount -l`
    #[arg(long, value_name = "MAJ:MIN", conflicts_with = "path")]
    pub device: Option<Device>,
    /// How to print
    #[arg(long, value_enum, default_value_t = Output::Auto)]
    pub output: Output,
    /// Where the node's files are
    #[command(flatten)]
    pub node: Node,
}

/// Options of `explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// The name of a cause, as findings have it
    pub cause: Option<String>,
    /// How to print
    #[arg(long, value_enum, default_value_t = Output::Auto)]
    pub output: Output,
}

/// Options of `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Whether to ask the API server, as for `watch`
    #[arg(long, value_name = "auto|never|KUBECONFIG", default_value = "auto", value_parser = api())]
    pub api: Api,
    /// How to print
    #[arg(long, value_enum, default_value_t = Output::Auto)]
    pub output: Output,
    /// Where the node's files are
    #[command(flatten)]
    pub node: Node,
}

/// Options of `lab`.
#[derive(Debug, Args)]
pub struct Lab {
    /// The cause
    pub cause: Option<String>,
    /// Clean up after this time
    #[arg(long, value_parser = duration)]
    pub duration: Option<Duration>,
    /// Wait this long before the removal begins
    #[arg(long, value_parser = duration)]
    pub hold: Option<Duration>,
    /// Entries of a mass deletion
    #[arg(long)]
    pub entries: Option<u32>,
    /// Deletions per second of a mass deletion, at most; 0 for no limit
    #[arg(long)]
    pub rate: Option<u32>,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Text
    Auto,
    /// Text for people
    Text,
    /// One JSON object a line
    Json,
}

/// How to attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// fentry where it works, else kprobes, else syscall tracepoints, for each call by itself
    Auto,
    /// fentry and fexit on the functions of the system calls
    Fentry,
    /// kprobes and kretprobes on the same functions
    Kprobe,
    /// Syscall tracepoints
    Tracepoint,
}

/// Options of the removing process of a lab case.
#[derive(Debug, Args)]
pub struct LabRemoval {
    /// The lab's directory
    #[arg(long)]
    pub root: PathBuf,
    /// The case
    #[arg(long)]
    pub case: String,
    /// The pod's UID
    #[arg(long)]
    pub uid: String,
    /// Most deletions per second
    #[arg(long)]
    pub rate: Option<u32>,
    /// End after so many attempts
    #[arg(long)]
    pub attempts: Option<u64>,
}
