//! `podstuck` alone: the pods of this node that are being deleted, each in a line.

use std::{io::IsTerminal, time::Duration};

use super::{
    Exit, Failure, away,
    trace::{self, Until},
};
use crate::{
    cli::{Alone, Api, Backend, Node, Output, Target, Tracing},
    event::Thresholds,
    kernel::privilege,
};

/// Two looks at the node, so that what lasts shows.
const AT_LEAST: Duration = Duration::from_secs(3);
/// What state and logs tell comes within seconds. More is what `diagnose` is for.
const AT_MOST: Duration = Duration::from_secs(8);

/// Whether somebody is there to read it.
pub fn is_wanted() -> bool {
    std::io::stdout().is_terminal()
}

/// Looks for a few seconds, without probes, and tells. The status is that of a diagnosis: 0 none is being deleted, 1 a
/// cause was found, 5 there are some, and none was.
///
/// # Errors
/// [`Failure::CannotRun`] without the privileges to look at the whole node: then none would be seen.
pub fn run(alone: Alone, verbose: u8) -> Result<Exit, Failure> {
    privilege::can_look().map_err(|missing| Failure::CannotRun(missing.into()))?;
    let Alone { kubelet_root, host_root, api } = alone;
    let Thresholds { hung, not_attempted } = Thresholds::default();
    let mut options = Tracing {
        target: Target::default(),
        namespace: None,
        output: Output::Text,
        export: None,
        record: None,
        redact: false,
        node: Node { kubelet_root, host_root: host_root.unwrap_or_else(|| "/".into()) },
        api: api.unwrap_or(Api::Auto),
        backend: Backend::Auto,
        no_trace: true,
        hung_after: hung,
        not_attempted_after: not_attempted,
        fail_on_loss: false,
        stop_after: None,
    };
    let of_all = away::of_node(&mut options.node).chain(away::of_api(&mut options.api));
    away::leave(of_all)?;
    trace::run(&options, Until::Listed { at_least: AT_LEAST, limit: AT_MOST }, verbose)
}
