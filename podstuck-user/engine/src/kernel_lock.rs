//! The words for a wait for a kernel lock, and for the thread that holds it.

use crate::{model::kernel_lock::LockHolder, wait_channel};

/// Whether each lock is proven to be held by the thread that it names.
pub(crate) fn is_proven(lock: &[LockHolder]) -> bool {
    lock.iter().all(|holder| holder.is_proven)
}

/// What a thread waits for, by the first holder: `a mutex of the kernel, held by sh (pid 7)`.
pub(crate) fn words(holder: &LockHolder) -> String {
    let held = if holder.is_proven { "held" } else { "taken last" };
    format!("a {} of the kernel, {held} by {}", holder.lock.name(), holder.who())
}

/// What a holder waits for itself; `None` if that is not visible.
pub(crate) fn waits_for(holder: &LockHolder) -> Option<String> {
    let channel = holder.wait_channel.as_deref()?;
    Some(wait_channel::words(&holder.stack, channel))
}
