//! A process that holds the probes in their hooks for as long as whoever loaded them lives.
//!
//! The kernel waits for grace periods at each hook that becomes free: half a second for sixteen tracepoints that are
//! closed at once, two where one is closed after the other (two CPUs, Linux 6.18). Whoever pressed Ctrl-C need not
//! wait for that: the descriptors that are closed last are this process's.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    thread,
};

use rustix::{
    cmsg_space,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
};

use super::{Work, client::spawn};
use crate::kernel::role::Role;

/// Descriptors that are handed over at most: more than there are hooks.
const MOST: usize = 128;

/// While it lives, the process holds on.
#[derive(Debug)]
pub(crate) struct Held(#[expect(dead_code, reason = "its end is what counts")] UnixStream);

/// Has these descriptors held.
///
/// # Errors
/// Says why they are not.
pub(crate) fn hold(descriptors: &[BorrowedFd<'_>]) -> Result<Held, String> {
    if descriptors.is_empty() || descriptors.len() > MOST {
        return Err(format!("{} descriptors cannot be held", descriptors.len()));
    }
    let (_, mut channel) = spawn(Work::Hold)?;
    let mut hand_over = || {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(descriptors));
        sendmsg(&channel, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
        // Only what has arrived is held.
        channel.read_exact(&mut [0])
    };
    hand_over().map_err(|error: io::Error| error.to_string())?;
    Ok(Held(channel))
}

/// In that process: takes them, and ends with whoever handed them over.
///
/// # Errors
/// Fails when there is nobody.
pub fn serve(mut channel: UnixStream) -> anyhow::Result<()> {
    Role::Hold.assume();
    let held = receive(&channel)?;
    channel.write_all(&[0])?;
    // Nothing else is said.
    let _ = channel.read(&mut [0])?;
    thread::scope(|scope| {
        for descriptor in held {
            scope.spawn(move || drop(descriptor));
        }
    });
    Ok(())
}

fn receive(channel: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    recvmsg(channel.as_fd(), &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(rights.flatten().collect())
}
