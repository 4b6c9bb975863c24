//! `cargo xtask deny`: the licences and the origin of the dependencies.

use anyhow::Result;

use crate::cargo_tool::CargoTool;
use crate::workspace::Workspace;
use podstuck_process as process;

const CARGO_DENY: CargoTool = CargoTool { name: "cargo-deny", version: "0.20.2", features: &[] };

/// Checks against `deny.toml`, with all but the advisories: their database is on a server that
/// not every build machine reaches.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    CARGO_DENY.ensure(workspace)?;
    process::run(&mut workspace.cargo([
        "deny",
        "check",
        "--hide-inclusion-graph",
        "licenses",
        "bans",
        "sources",
    ]))
}
