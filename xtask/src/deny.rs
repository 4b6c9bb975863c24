//! `cargo xtask deny`: checks the dependencies' licences, origins and known vulnerabilities.

use anyhow::{Result, bail};

use crate::cargo_tool::CargoTool;
use crate::workspace::Workspace;
use podstuck_process as process;

const CARGO_DENY: CargoTool = CargoTool { name: "cargo-deny", version: "0.20.2", features: &[] };

/// Checks that need only the lock file and the crates.
const AT_HAND: [&str; 3] = ["licenses", "bans", "sources"];

/// Checks against `deny.toml`. The advisory database is on a server that some build machines cannot reach; there,
/// that check is skipped, which the last line reports.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    CARGO_DENY.ensure(workspace)?;
    let check = |what| {
        let mut deny = workspace.cargo(["deny", "check", "--hide-inclusion-graph", what]);
        process::run(&mut deny).is_ok()
    };
    let mut passed: Vec<bool> = AT_HAND.into_iter().map(check).collect();
    let fetched = process::output(&mut workspace.cargo(["deny", "fetch", "db"]));
    match &fetched {
        Ok(_) => passed.push(check("advisories")),
        Err(error) => {
            let error = format!("{error:#}");
            let why =
                error.lines().find(|line| line.contains("fatal:")).unwrap_or("no reason given");
            println!("SKIPPED advisories: their database cannot be had: {why}");
        }
    }
    let good = passed.iter().filter(|good| **good).count();
    let (bad, skipped) = (passed.len() - good, u8::from(fetched.is_err()));
    println!("{good} passed, {bad} failed, {skipped} skipped");
    if bad > 0 {
        bail!("cargo deny complains");
    }
    Ok(())
}
