//! What the agent itself may do: nothing that any other process may not. The watch, which is started before, keeps what
//! it was given.

use anyhow::{Context, Result};
use caps::CapSet;

/// Drops all capabilities, for good.
///
/// # Errors
/// Fails where the kernel does not let go of them.
pub(crate) fn drop_all() -> Result<()> {
    for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        caps::clear(None, set).context("cannot drop the agent's own capabilities")?;
    }
    rustix::thread::set_no_new_privs(true).context("cannot renounce new privileges")
}
