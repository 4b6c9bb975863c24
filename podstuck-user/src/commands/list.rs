//! `podstuck` without a command: the pods of this node that are being deleted, one line each.

use std::{path::Path, time::Duration};

use super::away;
use crate::{
    cli::{Alone, Api, Backend, Node, Output, Target, Tracing},
    event::Thresholds,
    model::shell::word,
};
use crate::{
    live::{
        lister::Lister,
        trace::{self, Until},
    },
    outcome::{Exit, Failure},
};
use podstuck_confine::privilege;

/// Two samples of the node, which show what persists.
const AT_LEAST: Duration = Duration::from_secs(3);
/// As for `diagnose` without probes: checks that need time, and searches for holders of many pods, take that long.
/// Each line is printed as soon as it is known.
const AT_MOST: Duration = Duration::from_secs(30);

/// Scans without probes, and prints each pod as soon as its cause is known. The status is that of a diagnosis: 0 no
/// pod is being deleted, 1 a cause was found, 5 there are such pods, and no cause was found.
///
/// # Errors
/// [`Failure::CannotRun`] without the privileges to scan the whole node: then no pod would be seen.
pub fn run(alone: Alone, verbose: u8) -> Result<Exit, Failure> {
    privilege::can_look().map_err(|missing| Failure::CannotRun(missing.into()))?;
    let Alone { kubelet_root, host_root, output, api } = alone;
    let api_given = api.is_some();
    let node = Node { kubelet_root, host_root: host_root.unwrap_or_else(|| "/".into()) };
    let mut options = options(node, api);
    let of_all = away::of_node(&mut options.node).chain(away::of_api(&mut options.api));
    away::leave(of_all)?;
    let lister = Lister::new(output, given(&options, api_given));
    trace::run(&options, Until::Listed { at_least: AT_LEAST, limit: AT_MOST, lister }, verbose)
}

fn options(node: Node, api: Option<Api>) -> Tracing {
    let Thresholds { hung, not_attempted } = Thresholds::default();
    Tracing {
        target: Target::default(),
        namespace: None,
        output: Output::Text,
        export: None,
        record: None,
        redact: false,
        node,
        api: api.unwrap_or(Api::Auto),
        backend: Backend::Auto,
        no_trace: true,
        hung_after: hung,
        not_attempted_after: not_attempted,
        fail_on_loss: false,
        stop_after: None,
        pin: None,
        low_overhead: false,
    }
}

/// The options for a command about one of the pods: a text for [`crate::model::shell::line`].
fn given(options: &Tracing, api: bool) -> String {
    let Node { kubelet_root, host_root } = &options.node;
    let mut out = String::new();
    for root in kubelet_root {
        out.push_str(&format!(" --kubelet-root {}", word(root)));
    }
    if host_root != Path::new("/") {
        out.push_str(&format!(" --host-root {}", word(host_root)));
    }
    match &options.api {
        _ if !api => {}
        Api::Auto => out.push_str(" --api auto"),
        Api::Never => out.push_str(" --api never"),
        Api::File(path) => out.push_str(&format!(" --api {}", word(path))),
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::shell::line;

    #[test]
    fn given_options_are_passed_on() {
        let node = Node { kubelet_root: vec!["/a b".into(), "/c".into()], host_root: "/".into() };
        let mut options = options(node, Some(Api::Never));
        let typed = |text: &str| line(&format!("x{text}"), false).unwrap().text;
        let command = typed(&given(&options, true));
        assert!(command.starts_with("x --kubelet-root '/a b' --kubelet-root /c"), "{command}");
        assert!(command.ends_with(" --api never") && !command.contains("host-root"), "{command}");
        options.node.host_root = "/host".into();
        assert!(given(&options, false).ends_with(" --host-root /host"));
    }
}
