//! The messages to and from the fork server: a few bytes each, some with a descriptor. Any other message ends the
//! conversation.

use std::{
    io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::{
    cmsg_space,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
};

/// The purpose of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Answers one question.
    Look,
    /// Writes the files of an export directory.
    Export,
    /// Writes a recording.
    Record,
    /// Holds descriptors.
    Hold,
}

/// A message to the server.
#[derive(Debug)]
pub(super) enum Order {
    /// Start a process, with this descriptor as its input and output.
    Start(Work, OwnedFd),
    /// Drop to the privileges of a run, for the server and each process that it starts.
    Limit,
}

const LIMIT: u8 = 0;

impl Work {
    const ALL: [Self; 4] = [Self::Look, Self::Export, Self::Record, Self::Hold];

    fn number(self) -> u8 {
        match self {
            Self::Look => 1,
            Self::Export => 2,
            Self::Record => 3,
            Self::Hold => 4,
        }
    }
}

/// Sends an order, without waiting.
///
/// # Errors
/// Fails when the server has ended, or no longer takes orders.
pub(super) fn order(server: impl AsFd, order: &Order) -> io::Result<()> {
    match order {
        Order::Start(work, channel) => send(server, &[work.number()], &[channel.as_fd()]),
        Order::Limit => send(server, &[LIMIT], &[]),
    }
}

/// Waits for the next order; `None` when the client has ended.
///
/// # Errors
/// Fails when the message is no order.
pub(super) fn next_order(from: impl AsFd) -> io::Result<Option<Order>> {
    let mut number = [0; 2];
    let (length, channel) = receive(from, &mut number)?;
    let work = |number| Work::ALL.into_iter().find(|work| work.number() == number);
    match (length, number[0], channel) {
        (0, ..) => Ok(None),
        (1, LIMIT, None) => Ok(Some(Order::Limit)),
        (1, number, Some(channel)) => {
            let work = work(number).ok_or(ErrorKind::InvalidData)?;
            Ok(Some(Order::Start(work, channel)))
        }
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

/// The result of an order to start.
#[derive(Debug)]
pub(super) enum Started<Fd> {
    /// The process id, and a pidfd.
    Process(i32, Fd),
    /// The limit of processes is reached.
    TooMany,
    /// The errno of `fork`.
    Failed(i32),
}

/// Sends the result on the process's channel.
///
/// # Errors
/// Fails when the other end is closed.
pub(super) fn say(channel: impl AsFd, started: &Started<BorrowedFd<'_>>) -> io::Result<()> {
    match started {
        Started::Process(pid, pidfd) => send(channel, &pid.to_ne_bytes(), &[*pidfd]),
        Started::TooMany => send(channel, &0_i32.to_ne_bytes(), &[]),
        Started::Failed(errno) => send(channel, &(-errno.abs()).to_ne_bytes(), &[]),
    }
}

/// Receives the result, the first message on the channel.
///
/// # Errors
/// Fails when the server has ended, when it takes too long (if the channel has a time limit), or when the message is
/// something else.
pub(super) fn heard(channel: impl AsFd) -> io::Result<Started<OwnedFd>> {
    let mut number = [0; 4];
    match receive(channel, &mut number)? {
        (4, pidfd) => match (i32::from_ne_bytes(number), pidfd) {
            (pid @ 1.., Some(pidfd)) => Ok(Started::Process(pid, pidfd)),
            (0, None) => Ok(Started::TooMany),
            (errno @ ..0, None) => Ok(Started::Failed(-errno)),
            _ => Err(ErrorKind::InvalidData.into()),
        },
        (0, _) => Err(ErrorKind::UnexpectedEof.into()),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

/// Limit of descriptors held for one client: more than there are hooks.
const MOST_HELD: usize = 128;

/// Hands over the descriptors to be held, and waits for the acknowledgement.
///
/// # Errors
/// Fails when the other end is closed, or there are too many descriptors.
pub(super) fn hand_over(mut channel: &UnixStream, held: &[BorrowedFd<'_>]) -> io::Result<()> {
    send(channel, &[0], held)?;
    channel.read_exact(&mut [0])
}

/// Receives the descriptors, and acknowledges them.
///
/// # Errors
/// Fails when the channel is closed, or something else arrives.
pub(super) fn take_over(mut channel: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST_HELD))];
    let (_, held) = receive_in(&mut space, channel, &mut [0])?;
    channel.write_all(&[0])?;
    Ok(held)
}

fn send(socket: impl AsFd, bytes: &[u8], passed: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST_HELD))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !passed.is_empty() && !control.push(SendAncillaryMessage::ScmRights(passed)) {
        return Err(io::Error::other("too many descriptors"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?;
    Ok(())
}

/// The number of bytes received, and the descriptor that came with them.
fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let (length, passed) = receive_in(&mut space, socket, bytes)?;
    Ok((length, passed.into_iter().next()))
}

/// The number of bytes received, and all descriptors that `space` has room for.
fn receive_in(
    space: &mut [MaybeUninit<u8>],
    socket: impl AsFd,
    bytes: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = RecvAncillaryBuffer::new(space);
    let received = loop {
        let mut parts = [IoSliceMut::new(bytes)];
        match recvmsg(&socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?,
        }
    };
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(ErrorKind::InvalidData.into());
    }
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(passed) => Some(passed),
        _ => None,
    });
    Ok((received.bytes, rights.flatten().collect()))
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read, os::unix::net::UnixStream};

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    #[test]
    fn orders_arrive_one_by_one_and_end_with_the_client() {
        let (client, server) = pair();
        let (ours, theirs) = UnixStream::pair().unwrap();
        order(&client, &Order::Start(Work::Export, theirs.into())).unwrap();
        order(&client, &Order::Limit).unwrap();
        let Some(Order::Start(Work::Export, channel)) = next_order(&server).unwrap() else {
            panic!("another order");
        };
        assert!(matches!(next_order(&server), Ok(Some(Order::Limit))));
        // The descriptor is the other end.
        std::io::Write::write_all(&mut UnixStream::from(channel), b"x").unwrap();
        let mut text = String::new();
        (&ours).take(1).read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
        drop(client);
        assert!(matches!(next_order(&server), Ok(None)));
    }

    #[test]
    fn any_other_message_is_refused() {
        let file = File::open("/dev/null").unwrap();
        for (bytes, passed) in [
            (&[9][..], Some(file.as_fd())),
            (&[1], None),
            (&[LIMIT], Some(file.as_fd())),
            (&[1, 1], Some(file.as_fd())),
            (&[1, 1, 1], None),
        ] {
            let (client, server) = pair();
            send(&client, bytes, passed.as_slice()).unwrap();
            assert!(next_order(&server).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn the_result_of_a_start_is_received() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let file = File::open("/dev/null").unwrap();
        say(&theirs, &Started::Process(7, file.as_fd())).unwrap();
        assert!(matches!(heard(&ours), Ok(Started::Process(7, _))));
        say(&theirs, &Started::TooMany).unwrap();
        assert!(matches!(heard(&ours), Ok(Started::TooMany)));
        say(&theirs, &Started::Failed(11)).unwrap();
        assert!(matches!(heard(&ours), Ok(Started::Failed(11))));
        drop(theirs);
        assert_eq!(heard(&ours).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}
