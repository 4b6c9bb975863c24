//! Where a thread was seen, and whether it is still there.

use podstuck_common::in_flight::InFlight;

use crate::state::thread::Doing;

/// The evidence that a thread is still where it was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Anchor {
    /// The probes saw the entry.
    Entry(InFlight),
    /// `/proc` shows the thread in this call, with these arguments.
    Call(Doing),
    /// The probes saw `umount2` return, and `/proc` still shows the thread in it.
    Exit,
    /// The process runs and has not called `umount2` yet.
    Program,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// The thread is where it was.
    Still,
    /// The thread waits for a child, which is followed itself.
    ForChild,
    /// The thread is elsewhere, or has ended.
    Over,
}
