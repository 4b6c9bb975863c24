//! Drops the agent's own privileges. The watch, which is started before, keeps its own.

use anyhow::{Context, Result};
use caps::CapSet;

/// Drops all capabilities permanently.
///
/// # Errors
/// Fails if the kernel refuses.
pub(crate) fn drop_all() -> Result<()> {
    for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        caps::clear(None, set).context("cannot drop the agent's own capabilities")?;
    }
    rustix::thread::set_no_new_privs(true).context("cannot set no_new_privs")
}
