//! The command line. Options have kubectl's names.

use std::path::PathBuf;

use clap::{ArgGroup, Parser, ValueEnum};
use podstuck_model::shell::is_object_name;

/// Shows which objects of the cluster are stuck in deletion, what keeps them, and which command releases them.
///
/// A list only reads from the API server. For one pod, if the API server does not show what keeps it, podstuck
/// starts a pod of its own on the pod's node, and deletes it afterwards.
#[derive(Clone, Debug, Parser)]
#[command(
    group = ArgGroup::new("asked").args(["target", "pod_uid"]),
    group = ArgGroup::new("examined").args(["target", "pod_uid", "examine"]).multiple(true),
    name = "kubectl podstuck",
    bin_name = "kubectl podstuck",
    version,
    after_help = "Examples:\n  \
        kubectl podstuck                     all stuck objects in the namespace of the context\n  \
        kubectl podstuck -A -o wide          in the whole cluster, with nodes and volumes\n  \
        kubectl podstuck shop/cart-0         what keeps this pod; examines its node if needed\n  \
        kubectl podstuck pvc/data -n shop    what keeps this claim; also pv, ns, node, deploy, ...\n  \
        kubectl podstuck -A --examine        all stuck objects, and what their nodes show\n\n\
        Exit status: 0 nothing is stuck, 1 a cause was found, 2 wrong usage, 3 the API server does not\n\
        answer, or refuses to, 5 something is stuck and what was read does not show why."
)]
pub struct Cli {
    /// A pod as NAMESPACE/NAME or NAME, or any object as TYPE/NAME; without it, all stuck objects
    pub target: Option<String>,
    /// The namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// All namespaces, and cluster-scoped objects: nodes, volumes, attachments, namespaces
    #[arg(short = 'A', long, conflicts_with_all = ["namespace", "target"])]
    pub all_namespaces: bool,
    /// Only objects with these labels
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "target")]
    pub selector: Option<String>,
    /// Read every type that can be listed except events, not only pods, claims, volumes, attachments, nodes and
    /// namespaces: at least one request per type
    #[arg(long, conflicts_with_all = ["target", "watch", "replay"])]
    pub all_types: bool,
    /// Follow: print objects that become stuck or are removed, and the change that preceded the removal
    #[arg(short, long, conflicts_with_all = ["target", "examine", "output"])]
    pub watch: bool,
    /// The output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Output::Text)]
    pub output: Output,
    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The kubeconfig [default: KUBECONFIG, or ~/.kube/config, or the pod's own account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The user to impersonate
    #[arg(long = "as", value_name = "USER")]
    pub as_user: Option<String>,
    /// A group to impersonate; may be repeated
    #[arg(long = "as-group", value_name = "GROUP")]
    pub as_groups: Vec<String>,
    /// Make at most this number of requests; the output names what was not read
    #[arg(long, value_name = "NUMBER", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_requests: u32,
    /// Read kubelet's own list of its pods through the API server. This needs the right to get nodes/proxy, which
    /// permits more than reading; podstuck uses it only with this option
    #[arg(long)]
    pub via_node_proxy: bool,
    /// Ask the API server, in a dry run, whether admission refuses that the Job controller or the garbage collector
    /// removes its finalizer, or that kubelet updates a pod's status and deletes its record. This needs the right to
    /// impersonate the controller's service account, or the node's user in the group system:nodes, which permits more
    /// than reading; podstuck uses it only with this option
    #[arg(long, conflicts_with_all = ["as_user", "as_groups", "watch"])]
    pub via_dry_run: bool,
    /// Examine each node that can show why a pod is stuck, by a pod of podstuck's own on it. This is the default
    /// for one object; if given there, it is an error if that pod does not start
    #[arg(long, alias = "look")]
    pub examine: bool,
    /// Examine no node: ask only the API server
    #[arg(long, conflicts_with = "examine")]
    pub no_examine: bool,
    /// With --examine and no object: examine at most this number of nodes at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 4, requires = "examine", conflicts_with = "asked",
          value_parser = clap::value_parser!(u8).range(1..=50))]
    pub nodes_at_a_time: u8,
    /// Examine this node, even if the API server names another
    #[arg(long, value_name = "NODE", requires = "asked", conflicts_with = "no_examine", value_parser = object_name)]
    pub node: Option<String>,
    /// With --node: a pod that the API server no longer has, by its UID
    #[arg(long, value_name = "UID", requires = "node", value_parser = object_name)]
    pub pod_uid: Option<String>,
    /// The image of podstuck's own pod [default: PODSTUCK_IMAGE, or that of this release]
    #[arg(long, value_name = "IMAGE", requires = "examined", conflicts_with = "no_examine")]
    pub image: Option<String>,
    /// The namespace of podstuck's own pod [default: kube-system]
    #[arg(long = "in", value_name = "NAMESPACE", requires = "examined", conflicts_with = "no_examine",
          value_parser = object_name)]
    pub own_namespace: Option<String>,
    /// Wait this long for podstuck's own pod to start [default: 60]
    #[arg(long, value_name = "SECONDS", requires = "examined", conflicts_with = "no_examine")]
    pub wait: Option<u32>,
    /// Run podstuck's own pod privileged, for kernel stacks and for kernels before 5.11
    #[arg(long, requires = "examined", conflicts_with = "no_examine")]
    pub privileged: bool,
    /// Only print the manifest of podstuck's own pod
    #[arg(long, requires = "examined", conflicts_with = "no_examine")]
    pub print: bool,
    /// Write what was read from the API server to this new file; --replay gives the same answer from it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["watch", "pod_uid"])]
    pub record: Option<PathBuf>,
    /// With --record: replace all names in the file; equal names stay equal
    #[arg(long, requires = "record")]
    pub redact: bool,
    /// Answer from a file written by --record, without a request
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "namespace", "all_namespaces", "selector",
          "watch", "record", "context", "kubeconfig", "as_user", "as_groups", "via_node_proxy", "via_dry_run", "examine",
          "pod_uid"])]
    pub replay: Option<PathBuf>,
    /// Options of `podstuck diagnose` on the node. Its answer is then shown as it is, below the API server's
    #[arg(
        last = true,
        value_name = "OPTIONS",
        requires = "examined",
        conflicts_with = "no_examine"
    )]
    pub diagnose: Vec<String>,
}

impl Cli {
    /// Whether the answers of examined nodes are read, and joined with the API server's.
    pub fn reads_answers(&self) -> bool {
        self.output.is_document() || self.diagnose.is_empty()
    }

    /// Whether nodes are examined if the API server does not decide.
    pub fn examines(&self) -> bool {
        let one = self.target.is_some() || self.pod_uid.is_some();
        self.examine || (one && !self.no_examine && self.output != Output::Name)
    }
}

/// Accepts only names that are valid in the path of a request.
fn object_name(text: &str) -> Result<String, String> {
    let is_name = is_object_name(text);
    is_name.then(|| text.to_owned()).ok_or_else(|| "it is not a valid object name".to_owned())
}

impl Output {
    /// Whether the output is one document, written at the end.
    pub fn is_document(self) -> bool {
        matches!(self, Self::Json | Self::Yaml)
    }
}

/// A form of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A table, or the whole answer about one object
    Text,
    /// The table with what keeps each object, and complete commands
    Wide,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
    /// Only types and names
    Name,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_help_speaks_the_fields_language() {
        let mut command = Cli::command();
        command.clone().debug_assert();
        let help = command.render_long_help().to_string();
        assert_eq!(podstuck_testing::own_words(&help), [""; 0]);
    }

    #[test]
    fn what_makes_no_sense_together_is_refused() {
        for typed in [
            "-A -n shop",
            "-A shop/cart-0",
            "-l a=b shop/cart-0",
            "shop/a --examine --nodes-at-a-time 2",
            "--nodes-at-a-time 2",
            "--examine --nodes-at-a-time 0",
            "--examine --node n1",
            "--image x",
            "shop/a --no-examine --image x",
            "shop/a --no-examine --examine",
            "shop/a --no-examine --node n1",
            "--max-requests 0",
            "--node n1",
            "--pod-uid 1-2",
            "shop/a --node n1 --pod-uid 1-2",
            "shop/a --node $(reboot)",
            "shop/a --in ../x",
            "shop/a --wait soon",
            "shop/a b",
            "shop/a --watch",
            "-w -o json",
            "-w --all-types",
            "shop/a --all-types",
            "-w --record x",
            "shop/a --redact",
            "shop/a --via-dry-run --as jane",
            "shop/a --replay x",
            "--replay x -A",
        ] {
            let words = ["podstuck"].into_iter().chain(typed.split_whitespace());
            assert!(Cli::try_parse_from(words).is_err(), "{typed}");
        }
        assert!(
            Cli::try_parse_from(["podstuck", "-n", "shop", "-l", "app in (a,b)", "-o", "wide"])
                .is_ok()
        );
    }

    #[test]
    fn one_object_has_its_node_examined_and_a_list_only_if_that_is_wanted() {
        for (typed, examines) in [
            ("-A", false),
            ("-A --examine", true),
            ("-A --look", true),
            ("shop/a", true),
            ("shop/a -o json --image x -- --brief", true),
            ("shop/a -o name", false),
            ("shop/a --no-examine", false),
            ("--node n1 --pod-uid 1-2", true),
        ] {
            let words = ["podstuck"].into_iter().chain(typed.split_whitespace());
            assert_eq!(Cli::try_parse_from(words).unwrap().examines(), examines, "{typed}");
        }
    }
}
