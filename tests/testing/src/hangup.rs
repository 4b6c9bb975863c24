//! A terminal that is gone, as the tests play it.

use nix::sys::signal::{SigHandler, Signal, signal};

/// Has this process, and all that it starts from now on, take SIGHUP: who started the tests may have had it
/// ignored, as nohup(1) does.
///
/// # Panics
///
/// When the kernel refuses.
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
pub fn hear_hangups() {
    // SAFETY: the default action is no handler, so none runs.
    unsafe { signal(Signal::SIGHUP, SigHandler::SigDfl) }.unwrap();
}
