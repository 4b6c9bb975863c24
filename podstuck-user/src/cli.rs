//! The command line. `commands` decides what it means.

mod completion;
mod reports;
mod tracing;
mod values;

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, error::ErrorKind};
use clap_complete::engine::ArgValueCandidates;
use podstuck_lab::HelperArgs;

use crate::model::mounts::Device;
pub use reports::{Compare, Format, Report};
pub use tracing::{Backend, Node, Step, Target, Tracing};
pub use values::Api;
use values::{api, duration, speed};

/// Shows what keeps a Kubernetes pod Terminating, and the command that releases it.
#[derive(Debug, Parser)]
#[command(
    name = "podstuck",
    version,
    disable_help_flag = true,
    after_help = "Examples:\n  \
                  podstuck                                what is stuck on this node\n  \
                  podstuck diagnose shop/cart-0           why this pod is still Terminating\n  \
                  podstuck watch --export /var/tmp/it     every pod that becomes stuck\n  \
                  podstuck lab immutable-attribute        a case to try podstuck on\n\n\
                  Exit status: 0 nothing wrong was found, 1 at least one finding, 2 wrong usage,\n\
                  3 cannot run here, 4 ran but lost data (--fail-on-loss), 5 still there and no\n\
                  cause was found, 6 cannot write standard output, 130 ended by a second Ctrl-C."
)]
pub struct Cli {
    /// What to do; without it, the pods that are being deleted are listed
    #[command(subcommand)]
    pub command: Option<Command>,
    /// What the list goes by
    #[command(flatten)]
    pub alone: Alone,
    /// More detail; -vv for debug lines
    ///
    /// -v adds the cost of the probes, -vv the probes' own debug lines.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Print help
    #[arg(short, long, global = true, action = clap::ArgAction::HelpShort)]
    pub help: Option<bool>,
    /// Print help with all options
    #[arg(long, global = true, action = clap::ArgAction::HelpLong)]
    pub help_all: Option<bool>,
}

/// Options without a command.
#[derive(Debug, Default, Args)]
pub struct Alone {
    /// kubelet's root directory
    #[arg(long, value_name = "DIR", help_heading = ALONE)]
    pub kubelet_root: Vec<PathBuf>,
    /// The host's root directory, in a container
    #[arg(long, value_name = "DIR", help_heading = ALONE)]
    pub host_root: Option<PathBuf>,
    /// Add UIDs and commands, or print JSON
    #[arg(short, long, value_enum, value_name = "wide|json", hide_possible_values = true, help_heading = ALONE)]
    pub output: Option<ListOutput>,
    /// Whether to ask the API server, read-only
    #[arg(
        long,
        value_name = "auto|never|KUBECONFIG",
        value_parser = api(),
        help_heading = ALONE
    )]
    pub api: Option<Api>,
}

impl Cli {
    /// Parses the command line.
    ///
    /// # Errors
    /// Fails with the text to be shown instead: help, or the error. A command accepts no option of the list.
    pub fn of_arguments() -> Result<Self, clap::Error> {
        let mut cli = Self::try_parse()?;
        let wrong = |message| Self::command().error(ErrorKind::ArgumentConflict, message);
        let given = [
            ("--kubelet-root", !cli.alone.kubelet_root.is_empty()),
            ("--host-root", cli.alone.host_root.is_some()),
            ("-o", cli.alone.output.is_some()),
            ("--api", cli.alone.api.is_some()),
        ];
        if cli.command.is_some()
            && let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given)
        {
            return Err(wrong(format!(
                "{option} must follow the command: `podstuck COMMAND {option}`"
            )));
        }
        if let Some(tracing) = cli.command.as_mut().and_then(Command::tracing) {
            tracing.target.name_pod(tracing.namespace.as_deref()).map_err(wrong)?;
        }
        Ok(cli)
    }
}

const ALONE: &str = "Without a command";
const OF_NODE: &str = "Where the node's files are";
const OF_PROBES: &str = "Probes and thresholds";
const OF_FILES: &str = "Files";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Trace live and print findings as they form
    ///
    /// Ends at --duration or at the first Ctrl-C and then prints the summary; a second Ctrl-C
    /// aborts.
    #[command(
        after_help = "Examples:\n  podstuck watch                                 the whole \
        node, until Ctrl-C\n  podstuck watch shop/cart-0 --duration 5m\n  podstuck watch --record \
        it.zst --redact        to share"
    )]
    Watch(Watch),
    /// Show why a pod is stuck, with the evidence and the remedy
    ///
    /// Examines the node, traces until the verdict is firm, and prints the causes, the most likely first.
    #[command(after_help = "Examples:\n  \
        podstuck diagnose shop/cart-0\n  \
        podstuck diagnose cart-0 -n shop --brief            a short answer\n  \
        podstuck diagnose --pod-uid UID --host-root /host   in a debug pod\n  \
        podstuck diagnose --container 3f2a                  a container's files")]
    Diagnose(Diagnose),
    /// Show the cluster's stuck deletions, by `kubectl-podstuck`
    ///
    /// Runs that program with these options. The program is a separate file, and needs neither a node nor root.
    #[command(after_help = "Example:\n  podstuck cluster -A")]
    Cluster(Arguments),
    /// Watch the node all the time, by `podstuck-agent`
    ///
    /// Runs that program with these options. It writes Events and metrics, and is a separate file.
    #[command(after_help = "Example:\n  podstuck agent --no-events")]
    Agent(Arguments),
    /// Replay a recording: the same output and exit status
    ///
    /// `--record FILE` makes a recording. Exit status: that of the run; 2 if the file is not a recording, or is
    /// from a newer podstuck.
    #[command(after_help = "Examples:\n  \
        podstuck replay it.zst                    as fast as possible\n  \
        podstuck replay it.zst --speed 10         ten times as fast as it happened\n  \
        podstuck replay it.zst --export it        the export of that run")]
    Replay(Replay),
    /// Write a report of a recording or an export, as HTML or Markdown
    ///
    /// Without --out, the report goes to standard output; HTML on a terminal goes to report.html in the working
    /// directory, unless that exists. The page is one file that loads nothing and runs nothing. Exit status: 0 the
    /// report was written; 2 the input is neither a recording nor an export, or the report cannot be written.
    #[command(after_help = "Examples:\n  \
        podstuck report it.zst                        a page, report.html\n  \
        podstuck report it.zst --format markdown      for the ticket")]
    Report(Report),
    /// Show which series became slower, or failed more, between two runs
    ///
    /// For example, before and after a driver upgrade. Exit status: 0 no change, 1 a change; 2 an argument is
    /// neither a recording nor an export, 5 every series has too few calls.
    #[command(after_help = "Examples:\n  \
        podstuck compare before.zst after.zst         two recordings\n  \
        podstuck compare before/ after/               two exports")]
    Compare(Compare),
    /// Show what keeps a mount, a file or a device busy
    ///
    /// Searches all mount namespaces. Exit status: 0 nothing uses it, 1 something uses it, 2 there is no such path,
    /// 3 podstuck cannot examine it.
    #[command(after_help = "Examples:\n  \
        podstuck holders /mnt/data\n  \
        podstuck holders --device 8:16                also after `umount -l`")]
    Holders(Holders),
    /// Say whether a pod of this node is stuck, for node-problem-detector
    ///
    /// A custom plugin. Exit status: 0 no pod is stuck, 1 one or more are, 2 not known.
    #[command(after_help = "Example:\n  \
        podstuck check --npd                          prints at most 80 bytes")]
    Check(Check),
    /// Explain a cause, or list all causes
    ///
    /// Prints what confirms a cause, what it is confused with, and its remedies.
    #[command(after_help = "Example:\n  \
        podstuck explain volume-held-by-host-process")]
    Explain(Explain),
    /// Show what works on this node, and what is lost without the rest
    ///
    /// Checks probes, kernel features and runtimes.
    #[command(after_help = "Example:\n  \
        podstuck doctor --host-root /host             in `kubectl debug node/NODE`")]
    Doctor(Doctor),
    /// Build a real, contained case of a cause, or list all cases
    #[command(after_help = "Examples:\n  \
        podstuck lab                                  list the cases\n  \
        podstuck lab volume-held-by-host-process      until Ctrl-C, then cleans up")]
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
    /// The manual page of podstuck, or of one of its commands
    #[command(hide = true)]
    Man(Man),
}

impl Command {
    fn tracing(&mut self) -> Option<&mut Tracing> {
        match self {
            Self::Watch(watch) => Some(&mut watch.tracing),
            Self::Diagnose(diagnose) => Some(&mut diagnose.tracing),
            _ => None,
        }
    }
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
    /// Keep the counts in this directory of a BPF file system
    ///
    /// The probes count on when podstuck ends or is killed, until the directory is removed. The next podstuck with
    /// this directory continues the counts in node-metrics.txt. For a watch of the whole node.
    #[arg(
        long,
        value_name = "DIR",
        help_heading = OF_PROBES,
        hide_short_help = true,
        conflicts_with_all = ["name", "pod_uid", "pod", "container", "path", "no_trace", "stop_after"]
    )]
    pub pin: Option<PathBuf>,
    /// Use less CPU time, for a run that lasts for days
    ///
    /// Scans the node with at most 0.2 % of one processor instead of 2 %, reads directories of pods that run by turns, and
    /// the logs every five seconds instead of two. With --export, writes the metrics of the node and the findings, but
    /// no histograms, no counts by target and no report.
    #[arg(long, hide_short_help = true)]
    pub low_overhead: bool,
}

/// Options of `diagnose`.
#[derive(Debug, Args)]
pub struct Diagnose {
    /// What both do
    #[command(flatten)]
    pub tracing: Tracing,
    /// Stop after this time [default: 250s]
    ///
    /// Even if no cause is firm. The default is two of kubelet's longest back-offs, and 30s where no probe can be
    /// loaded.
    #[arg(long, value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Print only the first lines of the answer
    ///
    /// The cause, what holds the pod, since when, how certain, and the first command.
    #[arg(long)]
    pub brief: bool,
    /// The pod as JSON; `-` for stdin
    ///
    /// As `kubectl get pod NAME -o json` prints it. For nodes where podstuck cannot ask the API server.
    #[arg(long, value_name = "FILE")]
    pub pod_json: Option<PathBuf>,
}

/// Options of `check`.
#[derive(Debug, Args)]
pub struct Check {
    /// Print one line of at most 80 bytes, as a custom plugin of node-problem-detector
    #[arg(long, required = true)]
    pub npd: bool,
    /// End after this time, even if something hangs
    ///
    /// The timeout of the plugin's rule must be longer. A cause that is not certain takes 30 s.
    #[arg(long, value_parser = duration, default_value = "45s")]
    pub timeout: Duration,
    /// Whether to ask the API server, as for `watch`
    #[arg(long, value_name = "auto|never|KUBECONFIG", default_value = "auto", value_parser = api())]
    pub api: Api,
    /// Where the node's files are
    #[command(flatten)]
    pub node: Node,
}

/// Options of a program that is a separate file.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Options of that program
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub arguments: Vec<OsString>,
}

/// Options of `replay`.
#[derive(Debug, Args)]
pub struct Replay {
    /// A recording made with `--record`
    pub file: PathBuf,
    /// auto, tui, text or json
    ///
    /// How to print. `auto` is the terminal interface for `watch`, `diagnose` and `replay` on a terminal, else text;
    /// `json` is one object a line.
    #[arg(
        long,
        value_enum,
        default_value_t = Output::Auto,
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub output: Output,
    /// Write findings, histograms and metrics to this directory
    #[arg(long, value_name = "DIR")]
    pub export: Option<PathBuf>,
    /// Print only the first lines of a diagnosis
    #[arg(long)]
    pub brief: bool,
    /// Replay at this speed: 1 is real time, 60 is a minute per second [default: as fast as possible]
    #[arg(long, value_name = "TIMES", value_parser = speed)]
    pub speed: Option<f64>,
    /// Exit with status 4 if counts or events were lost
    #[arg(long)]
    pub fail_on_loss: bool,
}

/// Options of `holders`.
#[derive(Debug, Args)]
pub struct Holders {
    /// A mount point, in this mount namespace or any other, or a file or directory
    #[arg(required_unless_present = "device")]
    pub path: Option<PathBuf>,
    /// Everything on this device, also after `umount -l`
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
    /// The name of a cause, as in findings
    #[arg(add = ArgValueCandidates::new(completion::causes))]
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
    #[arg(add = ArgValueCandidates::new(completion::labs))]
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
    /// Maximum deletions per second of a mass deletion; 0 for no limit
    #[arg(long)]
    pub rate: Option<u32>,
    /// Begin an hour into the incident: the next removal attempt is due in two minutes
    #[arg(long, conflicts_with = "hold")]
    pub late: bool,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// `tui` for `watch`, `diagnose` and `replay` on a terminal, else text
    Auto,
    /// The terminal interface of `watch`, `diagnose` and `replay`; text elsewhere
    Tui,
    /// Text for people
    Text,
    /// One JSON object a line
    Json,
}

/// How the list is printed, if not as text in columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListOutput {
    /// With each pod's UID, and the first command of its cause
    Wide,
    /// One JSON object a line
    Json,
}

/// Options of the removing process of a lab case.
#[derive(Debug, Args)]
pub struct LabRemoval {
    /// kubelet's root directory, in the lab's
    #[arg(long)]
    pub root_dir: PathBuf,
    /// The case
    #[arg(long)]
    pub case: String,
    /// The pod's UID
    #[arg(long)]
    pub uid: String,
    /// Most deletions per second
    #[arg(long)]
    pub rate: Option<u32>,
    /// End after this number of attempts
    #[arg(long)]
    pub attempts: Option<u64>,
    /// The first attempts are those of the last hour; standard error is kubelet's log
    #[arg(long)]
    pub late: bool,
}

/// Options of `man`.
#[derive(Debug, Args)]
pub struct Man {
    /// One of its commands; without, the program
    pub command: Option<String>,
    /// Print the names of the commands that have a page
    #[arg(long, conflicts_with = "command")]
    pub names: bool,
}

#[cfg(test)]
mod tests;
