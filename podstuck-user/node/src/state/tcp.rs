//! TCP connections of a network namespace, by `/proc/PID/net/tcp` and `tcp6` (`get_tcp4_sock` in net/ipv4/tcp_ipv4.c).
//! `procfs` reads these tables without the timer and the retries, which prove that the other end does not answer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A connection, or a socket that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Connection {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) state: State,
    /// Bytes that the other end has not acknowledged.
    pub(super) unacknowledged: u32,
    /// Bytes that have come and are not read.
    pub(super) unread: u32,
    /// How often the same was sent again.
    pub(super) retries: u32,
    /// The other end takes no more bytes: the kernel asks now and then whether it does.
    pub(super) is_closed: bool,
    /// Number of the socket; 0 of one that was not accepted.
    pub(super) inode: u64,
}

/// Of include/net/tcp_states.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Established,
    SynSent,
    Listens,
    Other,
}

/// As in `0: 0100007F:1F90 0100007F:C350 01 00000010:00000000 01:00000014 00000003 0 0 12345 2 ...`, below a line with the
/// names of the fields.
pub(super) fn connections(table: &[u8]) -> Vec<Connection> {
    table.split(|byte| *byte == b'\n').skip(1).filter_map(connection).collect()
}

/// A line of it.
pub(super) fn connection(line: &[u8]) -> Option<Connection> {
    let words: Vec<&str> = std::str::from_utf8(line).ok()?.split_ascii_whitespace().collect();
    let number = |word: &str| u32::from_str_radix(word, 16).ok();
    let (unacknowledged, unread) = words.get(4)?.split_once(':')?;
    let timer = words.get(5)?.split(':').next()?;
    Some(Connection {
        local: address(words.get(1)?)?,
        remote: address(words.get(2)?)?,
        state: match *words.get(3)? {
            "01" => State::Established,
            "02" => State::SynSent,
            "0A" => State::Listens,
            _ => State::Other,
        },
        unacknowledged: number(unacknowledged)?,
        unread: number(unread)?,
        retries: number(words.get(6)?)?,
        is_closed: timer == "04",
        inode: words.get(9)?.parse().ok()?,
    })
}

/// Words of 32 bits, each in the order of the machine's bytes.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word =
        |at: usize| Some(u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, chunk) in bytes.chunks_mut(4).enumerate() {
                chunk.copy_from_slice(&word(at)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_tcp() {
        podstuck_fuzz::fuzz("net_tcp", |input| {
            let _ = connections(input);
        });
    }

    #[test]
    fn addresses_and_queues_are_read() {
        let table = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            \x20  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1\n\
            \x20  1: 0100007F:C350 0B00000A:01BB 01 00000010:00000002 01:00000014 00000003     0        0 12 2\n\
            \x20  2: 0000000000000000FFFF00000100007F:0050 00000000000000000000000001000000:0051 02 00000001:00000000 04:0 00000000 0 0 13\n";
        let all = connections(table);
        let ends =
            |at: usize| (all[at].local.to_string(), all[at].remote.to_string(), all[at].state);
        assert_eq!(ends(0), ("127.0.0.1:8080".into(), "0.0.0.0:0".into(), State::Listens));
        assert_eq!(ends(1), ("127.0.0.1:50000".into(), "10.0.0.11:443".into(), State::Established));
        assert_eq!(ends(2), ("127.0.0.1:80".into(), "[::1]:81".into(), State::SynSent));
        let of =
            |it: &Connection| (it.unacknowledged, it.unread, it.retries, it.is_closed, it.inode);
        assert_eq!(of(&all[1]), (16, 2, 3, false, 12));
        assert!(all[2].is_closed);
    }
}
