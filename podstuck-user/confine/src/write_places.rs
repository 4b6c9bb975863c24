//! Where a thread may write (Landlock), as far as the running kernel can say so.
//!
//! What it reads is left alone. But a thread with a rule of Landlock, whatever the rule says, cannot look
//! through `/proc/PID/root`, `fd`, `cwd`, `maps` and `ns` of processes without it
//! (`hook_ptrace_access_check` in security/landlock/task.c), which is what most of the tool's work is. So
//! it is for threads and helpers that do not do that.

use std::{fs::File, thread};

use anyhow::{Context, Result};
use landlock::{
    ABI, AccessFs, LandlockStatus, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr,
};

/// The newest ways to write that are named; older kernels know fewer.
const NEWEST: ABI = ABI::V5;

/// From now on this thread, and what it starts, may write only beneath this directory, or nowhere. Files
/// that are open already are not concerned. Says what the kernel can do.
///
/// # Errors
/// Fails when the kernel, which says that it can, cannot.
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

/// What this kernel can do, by trying it on a thread that then ends.
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
