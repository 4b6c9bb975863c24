//! The node's part of an answer: podstuck in a pod of its own on the pod's node, which the plugin's script starts, shows and
//! removes. It is a part of this program, so that one file suffices.

use std::{io, os::unix::process::CommandExt, process::Command};

use podstuck_model::cluster::Key;

use crate::cli::Cli;

const SCRIPT: &str = include_str!("../../../xtask/src/dist/files/kubectl-podstuck");
/// As the image of a release is called: see `xtask/src/dist`.
const IMAGE: &str = concat!("podstuck:", env!("CARGO_PKG_VERSION"));

/// Becomes the script, which asks the node about a pod; returns only where that fails.
pub fn become_script(cli: &Cli, pod: &Key) -> io::Error {
    let script = SCRIPT.replace("@VERSION@", env!("CARGO_PKG_VERSION")).replace("@IMAGE@", IMAGE);
    Command::new("sh").arg("-c").arg(script).arg("kubectl-podstuck").args(words(cli, pod)).exec()
}

/// What the script is called with.
fn words(cli: &Cli, pod: &Key) -> Vec<String> {
    let mut words = Vec::new();
    let wait = cli.wait.map(|wait| wait.to_string());
    let kubeconfig = cli.kubeconfig.as_ref().map(|path| path.to_string_lossy().into_owned());
    let values = [
        ("--namespace", &pod.namespace),
        ("--context", &cli.context),
        ("--kubeconfig", &kubeconfig),
        ("--as", &cli.as_user),
        ("--image", &cli.image),
        ("--in", &cli.own_namespace),
        ("--wait", &wait),
    ];
    for (name, value) in values {
        words.extend(value.iter().flat_map(|value| [name.to_owned(), value.clone()]));
    }
    let flags = [("--privileged", cli.privileged), ("--print", cli.print)];
    words.extend(flags.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| (*name).to_owned()));
    words.push(pod.name.clone());
    if !cli.diagnose.is_empty() {
        words.push("--".into());
        words.extend(cli.diagnose.iter().cloned());
    }
    words
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use podstuck_model::cluster::Kind;

    use super::*;

    #[test]
    fn the_script_gets_what_was_typed() {
        let typed = "podstuck shop/cart-0 --examine --context prod --image r.example/p:1 --in tools --wait 9 --privileged \
                     -- --brief --no-trace";
        let cli = Cli::try_parse_from(typed.split_whitespace()).unwrap();
        assert_eq!(
            words(&cli, &Key::of(Kind::POD, "shop", "cart-0")).join(" "),
            "--namespace shop --context prod --image r.example/p:1 --in tools --wait 9 --privileged cart-0 -- --brief \
             --no-trace"
        );
    }

    #[test]
    fn the_script_is_whole() {
        assert!(
            SCRIPT.starts_with("#!/bin/sh")
                && SCRIPT.contains("@VERSION@")
                && SCRIPT.contains("@IMAGE@")
        );
    }
}
