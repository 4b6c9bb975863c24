//! Local sockets, as the kernel lists them (sock_diag(7)): what is connected to what, and what is not read.

use std::iter;

use anyhow::{Context, Result, bail};
use netlink_packet_core::{
    Emitable as _, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_sock_diag::{
    SockDiagMessage,
    unix::{
        ShowFlags, StateFlags, UnixRequest, UnixResponse,
        nlas::{Nla, Vfs},
    },
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
    sockopt::{Timeout, set_socket_timeout},
};

/// What a dump's part may be as long as (`NLMSG_GOODSIZE`), and more.
const PART: usize = 64 << 10;
/// What is waited for one.
const WAIT: std::time::Duration = std::time::Duration::from_secs(1);

/// A local socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Socket {
    /// Its number.
    pub(super) inode: u64,
    /// What it is connected to.
    pub(super) peer: Option<u64>,
    /// Bytes that were sent to it and not read; 0 of one that listens.
    pub(super) unread: u32,
    /// Memory of what it has sent and the other end has not read; 0 of one that listens.
    pub(super) unsent: u32,
    /// Inode number of the file that `bind` made for it, of which the kernel shows the lower 32 bits.
    pub(super) file: Option<u32>,
    /// What has connected to it, as it listens, and was not accepted.
    pub(super) pending: Vec<u64>,
}

/// All of this network namespace. Those that are not named by the kernel's answer are left out.
///
/// # Errors
/// Fails where the kernel has no `CONFIG_UNIX_DIAG`.
pub(super) fn all() -> Result<Vec<Socket>> {
    let protocol = Some(netlink::SOCK_DIAG);
    let kernel =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)
            .context("opening a socket to ask for sockets")?;
    set_socket_timeout(&kernel, Timeout::Recv, Some(WAIT)).context("its time limit")?;
    send(&kernel, &request(), SendFlags::empty()).context("asking the kernel for local sockets")?;
    let (mut found, mut buffer) = (Vec::new(), vec![0; PART]);
    loop {
        let (length, _) = recv(&kernel, &mut buffer, RecvFlags::empty())
            .context("reading the kernel's local sockets")?;
        let Some(part) = buffer.get(..length) else { bail!("a part of {length} bytes") };
        for message in messages(part) {
            match NetlinkMessage::<SockDiagMessage>::deserialize(message).map(|it| it.payload) {
                Ok(NetlinkPayload::Done(_)) => return Ok(found),
                Ok(NetlinkPayload::Error(error)) => bail!("the kernel does not list them: {error}"),
                Ok(NetlinkPayload::InnerMessage(SockDiagMessage::UnixResponse(it))) => {
                    found.push(of(&it));
                }
                // One that the library cannot read.
                Ok(_) | Err(_) => {}
            }
        }
    }
}

fn request() -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let wanted = UnixRequest {
        state_flags: StateFlags::all(),
        inode: 0,
        show_flags: ShowFlags::VFS | ShowFlags::PEER | ShowFlags::ICONS | ShowFlags::RQLEN,
        cookie: [0xff; 8],
    };
    let mut message = NetlinkMessage::new(header, SockDiagMessage::UnixRequest(wanted).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Each message of a part, which are aligned to four bytes (netlink(7)).
fn messages(part: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = part;
    iter::from_fn(move || {
        let length = NetlinkBuffer::new_checked(rest).ok()?.length() as usize;
        let message = rest.get(..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

fn of(response: &UnixResponse) -> Socket {
    let pending = response.pending_connections().unwrap_or_default();
    // Of one that listens, the length is that of the list.
    let listens = response.pending_connections().is_some();
    Socket {
        inode: response.header.inode.into(),
        peer: response.peer().map(u64::from),
        unread: response.receive_queue_size().filter(|_| !listens).unwrap_or_default(),
        unsent: if listens { 0 } else { unsent(response) },
        file: response.nlas.iter().find_map(|nla| match nla {
            Nla::Vfs(file) => inode_of(file),
            _ => None,
        }),
        pending: pending.iter().copied().map(u64::from).collect(),
    }
}

/// `udiag_vfs_ino` of include/uapi/linux/unix_diag.h, which the library does not show.
fn inode_of(file: &Vfs) -> Option<u32> {
    let mut bytes = vec![0; file.buffer_len()];
    file.emit(&mut bytes);
    bytes.first_chunk().copied().map(u32::from_ne_bytes)
}

/// `udiag_wqueue` of include/uapi/linux/unix_diag.h, which the library tells of sockets that listen only.
fn unsent(response: &UnixResponse) -> u32 {
    let sent = response.nlas.iter().find_map(|nla| match nla {
        Nla::ReceiveQueueLength(_, sent) => Some(*sent),
        _ => None,
    });
    sent.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_unix_diag() {
        podstuck_fuzz::fuzz("unix_diag", |input| {
            for message in messages(input) {
                let _ = NetlinkMessage::<SockDiagMessage>::deserialize(message);
            }
        });
    }

    #[test]
    fn nothing_is_read_behind_a_message_that_is_cut() {
        let whole = request();
        let twice = [whole.as_slice(), &whole].concat();
        assert_eq!(messages(&twice).count(), 2);
        assert_eq!(messages(&twice[..twice.len() - 1]).count(), 1);
        assert_eq!(messages(&[0; 16]).take(9).count(), 0);
    }
}
