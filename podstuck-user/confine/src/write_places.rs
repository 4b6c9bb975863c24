//! Restricts where a thread may write (Landlock), where the running kernel supports that.
//!
//! Reads are not restricted. But a thread with any Landlock rule cannot look through `/proc/PID/root`, `fd`, `cwd`,
//! `maps` and `ns` of processes without it (`hook_ptrace_access_check` in security/landlock/task.c), which most of
//! the tool's work needs. So it is for threads and helpers that do not do that.

use std::{fs::File, thread};

use anyhow::{Context, Result};
use landlock::{
    ABI, AccessFs, LandlockStatus, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr,
};

/// The newest access rights that are named; older kernels know fewer.
const NEWEST: ABI = ABI::V5;

/// From now on this thread, and what it starts, may write only beneath this directory, or nowhere. Files that are
/// already open are not affected. Returns what the kernel enforces.
///
/// # Errors
/// Fails when the kernel offers Landlock and refuses the rule.
pub(crate) fn restrict(beneath: Option<&File>) -> Result<LandlockStatus> {
    let writing = AccessFs::from_write(NEWEST);
    let ruleset = Ruleset::default().handle_access(writing).and_then(Ruleset::create);
    let mut ruleset = ruleset.context("Landlock")?;
    if let Some(directory) = beneath {
        let rule = PathBeneath::new(directory, writing);
        ruleset = ruleset.add_rule(rule).context("Landlock, the directory")?;
    }
    Ok(ruleset.restrict_self().context("Landlock")?.landlock)
}

/// What this kernel supports, tried on a thread that then ends.
///
/// # Errors
/// Says why it cannot.
pub(crate) fn tried() -> Result<String, String> {
    let tried = thread::spawn(|| restrict(None)).join();
    match tried.map_err(|_| "Landlock cannot be tried".to_owned())? {
        Ok(LandlockStatus::Available { effective_abi, kernel_abi }) => {
            let abi = kernel_abi.unwrap_or(effective_abi as i32);
            Ok(format!("Landlock (ABI {abi})"))
        }
        Ok(LandlockStatus::NotEnabled) => Err("Landlock is switched off (lsm=)".into()),
        Ok(LandlockStatus::NotImplemented) => Err("no Landlock in this kernel".into()),
        Err(error) => Err(format!("{error:#}")),
    }
}
