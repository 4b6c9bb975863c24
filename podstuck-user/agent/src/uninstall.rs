//! Removes what agents with `--pin` have left in the kernel.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};
use podstuck_confine::pins::Pins;
use podstuck_model::path::safe_path;

/// How long an agent may take that is just ending.
const PATIENCE: Duration = Duration::from_secs(10);

/// Removes the directory and everything that is pinned in it.
///
/// # Errors
/// Fails if an agent uses it, if podstuck has not created it, or if it cannot be removed.
pub fn uninstall(top: &Path) -> Result<()> {
    let shown = safe_path(top);
    let pins = Pins::open_existing(top, PATIENCE).with_context(|| shown.clone().into_owned())?;
    match pins {
        None => println!("nothing is pinned in {shown}"),
        Some(pins) => {
            pins.remove()?;
            println!("{shown} is removed, and with it the probes");
        }
    }
    Ok(())
}
