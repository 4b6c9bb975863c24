//! What was typed. Options have the names that kubectl gives them.

use std::path::PathBuf;

use clap::{ArgGroup, Parser, ValueEnum};
use podstuck_model::shell::is_object_name;

/// Shows what is being deleted in the cluster and does not go, what keeps it, and which command releases it.
///
/// It reads only. Where the API server does not decide, it names the node to examine.
#[derive(Clone, Debug, Parser)]
#[command(
    group = ArgGroup::new("asked").args(["target", "pod_uid"]),
    name = "kubectl podstuck",
    bin_name = "kubectl podstuck",
    version,
    after_help = "Examples:\n  \
        kubectl podstuck                     all that is stuck in the namespace of the context\n  \
        kubectl podstuck -A -o wide          and in the whole cluster, with nodes and volumes\n  \
        kubectl podstuck shop/cart-0         what keeps this pod\n  \
        kubectl podstuck pvc/data -n shop    and this claim; also pv, ns, node, volumeattachment, deploy, ...\n  \
        kubectl podstuck shop/cart-0 --examine   and where its node must say it, what the node says\n\n\
        Exit status: 0 nothing is stuck, 1 a cause was found, 2 wrong usage, 3 the API server does not\n\
        answer, or refuses to, 5 something is stuck and the API server does not show why."
)]
pub struct Cli {
    /// A pod as NAMESPACE/NAME or NAME, or any object as TYPE/NAME; without it, all that is stuck
    pub target: Option<String>,
    /// The namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// All namespaces, and what is in none: nodes, volumes, attachments, namespaces
    #[arg(short = 'A', long, conflicts_with_all = ["namespace", "target"])]
    pub all_namespaces: bool,
    /// Only objects with these labels
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "target")]
    pub selector: Option<String>,
    /// Follow: what becomes stuck, and what goes away, how long after which change
    #[arg(short, long, conflicts_with_all = ["target", "examine", "output"])]
    pub watch: bool,
    /// How it is shown
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Output::Text)]
    pub output: Output,
    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The kubeconfig [default: KUBECONFIG, or ~/.kube/config, or the pod's own account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The user to act as
    #[arg(long = "as", value_name = "USER")]
    pub as_user: Option<String>,
    /// A group to act as; may be repeated
    #[arg(long = "as-group", value_name = "GROUP")]
    pub as_groups: Vec<String>,
    /// Make no more requests than this; what is not read for it is named
    #[arg(long, value_name = "NUMBER", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_requests: u32,
    /// Read kubelet's own list of its pods through the API server. It needs the right to get nodes/proxy, which permits
    /// more than reading: it is used only with this option
    #[arg(long)]
    pub via_node_proxy: bool,
    /// Where the API server does not decide about a pod, examine its node by a pod of podstuck's own there
    ///
    /// Without an object, all nodes that have to say why a pod is stuck: one pod of podstuck's own on each at a time.
    #[arg(long)]
    pub examine: bool,
    /// With --examine and no object: examine no more nodes than this at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 4, requires = "examine", conflicts_with = "asked",
          value_parser = clap::value_parser!(u8).range(1..=50))]
    pub nodes_at_a_time: u8,
    /// With --examine: this node, whatever the API server says
    #[arg(long, value_name = "NODE", requires_all = ["examine", "asked"], value_parser = object_name)]
    pub node: Option<String>,
    /// With --node: a pod that the API server no longer has, by its UID
    #[arg(long, value_name = "UID", requires = "node", value_parser = object_name)]
    pub pod_uid: Option<String>,
    /// With --examine: the image of that pod [default: PODSTUCK_IMAGE, or that of this release]
    #[arg(long, value_name = "IMAGE", requires = "examine")]
    pub image: Option<String>,
    /// With --examine: the namespace of that pod [default: kube-system]
    #[arg(long = "in", value_name = "NAMESPACE", requires = "examine", value_parser = object_name)]
    pub own_namespace: Option<String>,
    /// With --examine: wait this long for that pod to start [default: 60]
    #[arg(long, value_name = "SECONDS", requires = "examine")]
    pub wait: Option<u32>,
    /// With --examine: run it privileged, for kernel stacks and for kernels before 5.11
    #[arg(long, requires = "examine")]
    pub privileged: bool,
    /// With --examine: only print the manifest of that pod
    #[arg(long, requires = "examine")]
    pub print: bool,
    /// With --examine: options of `podstuck diagnose`
    #[arg(last = true, value_name = "OPTIONS", requires = "examine")]
    pub diagnose: Vec<String>,
}

/// What goes into the path of a request.
fn object_name(text: &str) -> Result<String, String> {
    let is_name = is_object_name(text);
    is_name.then(|| text.to_owned()).ok_or_else(|| "no object can be called that".to_owned())
}

/// A form of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A table, or the whole answer about one object
    Text,
    /// The table with who keeps each object, and whole commands
    Wide,
    /// One JSON document
    Json,
    /// The same as YAML
    Yaml,
    /// Types and names alone
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
            "shop/a --image x",
            "--max-requests 0",
            "shop/a --node n1",
            "--examine --pod-uid 1-2",
            "shop/a --examine --node n1 --pod-uid 1-2",
            "shop/a --examine --node $(reboot)",
            "shop/a --examine --in ../x",
            "shop/a --examine --wait soon",
            "shop/a b",
            "shop/a --watch",
            "-w -o json",
        ] {
            let words = ["podstuck"].into_iter().chain(typed.split_whitespace());
            assert!(Cli::try_parse_from(words).is_err(), "{typed}");
        }
        assert!(
            Cli::try_parse_from(["podstuck", "-n", "shop", "-l", "app in (a,b)", "-o", "wide"])
                .is_ok()
        );
    }
}
