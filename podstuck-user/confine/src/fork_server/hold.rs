//! A process that keeps the probes attached as long as the process that loaded them lives.
//!
//! The kernel waits for grace periods at each hook that is released: half a second for sixteen tracepoints that are
//! closed at once, two where one is closed after the other (two CPUs, Linux 6.18). The user who presses Ctrl-C need
//! not wait for that: this process closes the last descriptors.

use std::{
    io::Read,
    os::{fd::BorrowedFd, unix::net::UnixStream},
    thread,
};

use super::{
    Work,
    client::spawn,
    protocol::{hand_over, take_over},
};
use crate::role::Role;

/// While this value lives, the process keeps the descriptors open.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "its end is what counts")] UnixStream);

/// Starts a process that keeps these descriptors open.
///
/// # Errors
/// Fails with the reason why they are not held.
pub fn hold(descriptors: &[BorrowedFd<'_>]) -> Result<Held, String> {
    if descriptors.is_empty() {
        return Err("there is no hook to hold".into());
    }
    let (_, channel) = spawn(Work::Hold)?;
    hand_over(&channel, descriptors).map_err(|error| error.to_string())?;
    Ok(Held(channel))
}

/// Closes hooks in parallel: the kernel waits for grace periods at each. A hook that another process has open, too,
/// stays attached.
pub fn drop_at_once<T: Send>(all: impl IntoIterator<Item = T>) {
    thread::scope(|scope| {
        for one in all {
            scope.spawn(move || drop(one));
        }
    });
}

/// The holding process: receives the descriptors, and ends with the process that handed them over.
///
/// # Errors
/// Fails when the channel is closed.
pub fn serve(mut channel: UnixStream) -> anyhow::Result<()> {
    Role::Hold.assume();
    let held = take_over(&channel)?;
    // No further message comes: this waits for the end of the channel.
    let _ = channel.read(&mut [0])?;
    drop_at_once(held);
    Ok(())
}
