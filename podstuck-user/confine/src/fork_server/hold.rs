//! A process that holds the probes in their hooks for as long as whoever loaded them lives.
//!
//! The kernel waits for grace periods at each hook that becomes free: half a second for sixteen tracepoints that are
//! closed at once, two where one is closed after the other (two CPUs, Linux 6.18). Whoever pressed Ctrl-C need not
//! wait for that: the descriptors that are closed last are this process's.

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

/// While it lives, the process holds on.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "its end is what counts")] UnixStream);

/// Has these descriptors held.
///
/// # Errors
/// Says why they are not.
pub fn hold(descriptors: &[BorrowedFd<'_>]) -> Result<Held, String> {
    if descriptors.is_empty() {
        return Err("there is no hook to hold".into());
    }
    let (_, channel) = spawn(Work::Hold)?;
    hand_over(&channel, descriptors).map_err(|error| error.to_string())?;
    Ok(Held(channel))
}

/// Takes hooks out at once: the kernel waits for grace periods at each. Not where another process has them, too.
pub fn drop_at_once<T: Send>(all: impl IntoIterator<Item = T>) {
    thread::scope(|scope| {
        for one in all {
            scope.spawn(move || drop(one));
        }
    });
}

/// In that process: takes them, and ends with whoever handed them over.
///
/// # Errors
/// Fails when there is nobody.
pub fn serve(mut channel: UnixStream) -> anyhow::Result<()> {
    Role::Hold.assume();
    let held = take_over(&channel)?;
    // Nothing else is said.
    let _ = channel.read(&mut [0])?;
    drop_at_once(held);
    Ok(())
}
