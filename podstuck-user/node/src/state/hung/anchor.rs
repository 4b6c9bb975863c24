//! Where a thread was seen, and whether it still is there.

use podstuck_common::in_flight::InFlight;

use crate::state::thread::Doing;

/// How it is known that a thread still is where it was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Anchor {
    /// The probes saw the entry.
    Entry(InFlight),
    /// `/proc` says that it is in this call, with these arguments.
    Call(Doing),
    /// The probes saw `umount2` return, and `/proc` says that it is in there.
    Exit,
    /// The process lives and has not come to `umount2`.
    Program,
}

/// What a look says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// It is where it was.
    Still,
    /// It is, but waits for a child, which is followed by itself.
    ForChild,
    /// It is somewhere else.
    Over,
}
