//! Options of the commands that look at a live node.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCandidates;
use podstuck_common::config::step;

use super::{
    OF_FILES, OF_NODE, OF_PROBES, Output, completion,
    values::{Api, api, duration},
};

/// What `watch` and `diagnose` share.
#[derive(Debug, Args)]
pub struct Tracing {
    /// What to watch
    #[command(flatten)]
    pub target: Target,
    /// The pod's namespace
    #[arg(short, long, value_name = "NAMESPACE", conflicts_with_all = ["pod_uid", "container", "path"])]
    pub namespace: Option<String>,
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
    /// Write findings, histograms and metrics
    #[arg(long, value_name = "DIR", help_heading = OF_FILES)]
    pub export: Option<PathBuf>,
    /// Record all input of the run, for `podstuck replay`
    #[arg(long, value_name = "FILE", help_heading = OF_FILES)]
    pub record: Option<PathBuf>,
    /// Replace names in the recording
    ///
    /// Replaces the names of namespaces, pods, files and hosts. Equal names stay equal.
    #[arg(long, requires = "record", help_heading = OF_FILES)]
    pub redact: bool,
    /// Where the node's files are
    #[command(flatten)]
    pub node: Node,
    /// Whether to ask the API server
    ///
    /// Reads this node and its pods, for two seconds at most. `auto` (the default) uses the credentials of the
    /// running kubelet, KUBECONFIG those of this file, and `never` sends no request.
    #[arg(
        long,
        value_name = "auto|never|KUBECONFIG",
        default_value = "auto",
        value_parser = api(),
        hide_default_value = true,
        help_heading = OF_NODE
    )]
    pub api: Api,
    /// How to attach the probes
    #[arg(long, value_enum, default_value_t = Backend::Auto, help_heading = OF_PROBES, hide_short_help = true)]
    pub backend: Backend,
    /// Load no probes: use state, records and logs only
    #[arg(long, help_heading = OF_PROBES)]
    pub no_trace: bool,
    /// Report calls that run, or ran, at least this long
    #[arg(long, value_parser = duration, default_value = "2s", help_heading = OF_PROBES, hide_short_help = true)]
    pub hung_after: Duration,
    /// Report a volume that no component has tried to unmount for this long: the default is two of
    /// kubelet's longest back-offs
    #[arg(long, value_parser = duration, default_value = "244s", help_heading = OF_PROBES, hide_short_help = true)]
    pub not_attempted_after: Duration,
    /// Exit with status 4 if counts or events were lost
    #[arg(long, help_heading = OF_PROBES, hide_short_help = true)]
    pub fail_on_loss: bool,
    /// Stop the programs after this step of each call, to measure the cost of each step
    #[arg(long, value_enum, hide = true)]
    pub stop_after: Option<Step>,
    /// Where the counts are kept: see [`super::Watch::pin`].
    #[arg(skip)]
    pub pin: Option<PathBuf>,
    /// See [`super::Watch::low_overhead`].
    #[arg(skip)]
    pub low_overhead: bool,
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

/// One pod, one container, one directory, or the whole node.
#[derive(Debug, Default, Args)]
#[group(multiple = false)]
pub struct Target {
    /// Only this pod: NAMESPACE/NAME, or NAME with -n
    #[arg(value_name = "POD", add = ArgValueCandidates::new(completion::pods))]
    pub name: Option<String>,
    /// Only the pod with this UID
    #[arg(long, value_name = "UID", add = ArgValueCandidates::new(completion::uids))]
    pub pod_uid: Option<String>,
    /// The same as POD
    #[arg(long, value_name = "POD", hide_short_help = true, add = ArgValueCandidates::new(completion::pods))]
    pub pod: Option<String>,
    /// Only the runtime's files of this container
    ///
    /// The container's ID, its name, or the beginning of its ID.
    #[arg(long, value_name = "ID-OR-PREFIX")]
    pub container: Option<String>,
    /// Only what is below this directory
    ///
    /// The path as the deleting process sees it.
    #[arg(long, value_name = "DIR")]
    pub path: Option<PathBuf>,
}

impl Target {
    /// Whether nothing is left out.
    pub fn is_whole_node(&self) -> bool {
        let Self { name: _, pod_uid, pod, container, path } = self;
        pod_uid.is_none() && pod.is_none() && container.is_none() && path.is_none()
    }

    /// Whether it is a pod.
    pub fn is_pod(&self) -> bool {
        self.pod.is_some() || self.pod_uid.is_some()
    }

    /// Puts the pod, however it was named, into `pod`: as `NAMESPACE/NAME`.
    pub(super) fn name_pod(&mut self, namespace: Option<&str>) -> Result<(), String> {
        let Some(name) = self.name.take().or(self.pod.take()) else {
            return namespace.map_or(Ok(()), |it| Err(format!("-n {it} needs the name of a pod")));
        };
        // kubectl takes the kind before the name.
        let bare = name.strip_prefix("pod/").or_else(|| name.strip_prefix("pods/"));
        let bare = bare.filter(|_| namespace.is_some()).unwrap_or(&name);
        self.pod = Some(match (bare.split_once('/'), namespace) {
            (Some((own, _)), Some(other)) if own != other => {
                return Err(format!("{name} and -n {other} name two namespaces: leave one out"));
            }
            (Some(_), _) => bare.to_owned(),
            (None, Some(namespace)) => format!("{namespace}/{bare}"),
            (None, None) => {
                let ways = format!("NAMESPACE/{name}, or {name} -n NAMESPACE");
                return Err(format!("{name} needs a namespace: {ways}"));
            }
        });
        Ok(())
    }
}

/// Where the node's files are.
#[derive(Debug, Default, Args)]
pub struct Node {
    /// kubelet's root directory
    ///
    /// By default, podstuck finds the root directories of the running kubelets.
    #[arg(long, value_name = "DIR", help_heading = OF_NODE)]
    pub kubelet_root: Vec<PathBuf>,
    /// The host's root directory
    ///
    /// The path where it is mounted, if podstuck runs in a container.
    #[arg(long, value_name = "DIR", default_value = "/", help_heading = OF_NODE)]
    pub host_root: PathBuf,
}

/// How to attach the probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// For each system call: fentry where it works, else kprobes, else syscall tracepoints
    Auto,
    /// fentry and fexit on the functions of the system calls
    Fentry,
    /// kprobes and kretprobes on the same functions
    Kprobe,
    /// Syscall tracepoints
    Tracepoint,
}
