//! Signals of a terminal, as the tests play them.

use nix::sys::signal::{SigHandler, Signal, signal};

/// Has this process, and all that it starts from now on, take SIGHUP and SIGINT: who started the tests may have had them
/// ignored, as nohup(1) and a shell's background jobs do.
///
/// # Panics
///
/// When the kernel refuses.
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
pub fn hear_terminal() {
    for kind in [Signal::SIGHUP, Signal::SIGINT] {
        // SAFETY: the default action is no handler, so none runs.
        unsafe { signal(kind, SigHandler::SigDfl) }.unwrap();
    }
}
