//! Whether a process on the node listens at a loopback address. An NFS client connects in the network namespace of the
//! process that mounted, which no file shows; so all namespaces are read.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, BufRead, BufReader, Read as _},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use procfs::{FromBufReadSI as _, current_system_info, net::TcpNetEntries};

use super::asked::{AsWhom, Asked, Helped, in_helper};
use podstuck_confine::helper::{Question, Share, Teller};
use podstuck_confine::{proc, role::Role};
use podstuck_model::{
    degraded::Feed,
    query::{FindListener, Listening, NoAnswer},
};

/// What is read of a namespace's sockets that listen: those of ten thousand programs.
const LONGEST: u64 = 2 << 20;

impl Asked for FindListener {
    async fn answer(self, share: Share, _: &AsWhom) -> Result<Listening, NoAnswer> {
        in_helper(share, Helped(self)).await
    }
}

impl Question for Helped<FindListener> {
    const FEEDS: Option<Feed> = Some(Feed::Node);
    const ROLE: Role = Role::Helper;
    type Step = ();
    type Part = ();
    type Answer = Listening;

    fn answer(self, _: &mut Teller<(), ()>) -> Result<Listening> {
        let FindListener { address, port } = &self.0;
        let end = address.parse().with_context(|| format!("{address} is not an address"))?;
        let end = SocketAddr::new(end, *port);
        let (mut seen, mut found) = (BTreeSet::new(), Listening::default());
        for pid in proc::processes() {
            let process = PathBuf::from(format!("/proc/{pid}"));
            let Some(namespace) = proc::namespace(&process, "net") else {
                // A process that has ended is in no namespace, also before its parent has waited for it.
                let lives = |(state, _)| !matches!(state, 'Z' | 'X');
                found.unread += u32::from(proc::stat(pid, pid).is_some_and(lives));
                continue;
            };
            if seen.contains(&namespace) {
                continue;
            }
            match is_heard_in(&process, end) {
                Ok(heard) => {
                    seen.insert(namespace);
                    found.namespaces += 1;
                    found.somebody |= heard;
                }
                // Another process may tell of the same namespace; else it stays unread.
                Err(_) => found.unread += u32::from(process.exists()),
            }
        }
        Ok(found)
    }
}

fn is_heard_in(process: &Path, end: SocketAddr) -> Result<bool> {
    let mut heard = false;
    for table in ["tcp", "tcp6"] {
        match fs::File::open(process.join("net").join(table)) {
            Ok(file) => heard |= is_in(BufReader::new(file.take(LONGEST)), end)?,
            // A kernel without IPv6.
            Err(error) if table == "tcp6" && error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).context(table),
        }
    }
    Ok(heard)
}

/// Sockets that listen come first (net/ipv4/tcp_ipv4.c, `tcp_get_idx`), and no more is read.
fn is_in(mut table: impl BufRead, end: SocketAddr) -> Result<bool> {
    let mut listening = Vec::new();
    table.read_until(b'\n', &mut listening)?;
    loop {
        let mut line = Vec::new();
        let is_end = table.read_until(b'\n', &mut line)? == 0;
        let state = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).nth(3);
        if is_end || state != Some(b"0A") {
            break;
        }
        listening.extend(line);
    }
    let TcpNetEntries(entries) = TcpNetEntries::from_buf_read(&*listening, current_system_info())
        .map_err(io::Error::other)?;
    Ok(entries.iter().any(|it| reaches(it.local_address, end)))
}

/// Whether who listens there is reached at the address.
fn reaches(listens: SocketAddr, end: SocketAddr) -> bool {
    // A listener for all addresses of IPv6 mostly takes those of IPv4 as well.
    let everywhere =
        listens.ip().is_unspecified() || listens.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let is_same = listens.ip().to_canonical() == end.ip().to_canonical();
    listens.port() == end.port() && (everywhere || is_same)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn asked(address: &str, port: u16) -> Listening {
        let asked = FindListener { address: address.into(), port };
        Helped(asked).answer(&mut Teller::new()).unwrap()
    }

    /// As stunnel does, and ends.
    #[test]
    fn who_listens_is_seen_and_who_does_no_more_is_not() {
        for (bound, address) in
            [("127.0.0.1:0", "127.0.0.1"), ("0.0.0.0:0", "127.0.0.1"), ("[::]:0", "127.0.0.1")]
        {
            let Ok(listener) = TcpListener::bind(bound) else {
                podstuck_testing::skip("a kernel without IPv6");
                continue;
            };
            let port = listener.local_addr().unwrap().port();
            let live = asked(address, port);
            assert!(live.somebody && live.namespaces >= 1, "{bound}: {live:?}");
            // A connection that stands is no listener.
            let client = std::net::TcpStream::connect((address, port)).unwrap();
            let (server, _) = listener.accept().unwrap();
            drop(listener);
            let dead = asked(address, port);
            assert!(!dead.somebody && dead.namespaces >= 1, "{bound}: {dead:?}");
            drop((client, server));
        }
    }

    #[test]
    fn an_address_of_the_node_alone_is_meant() {
        let end = SocketAddr::from(([127, 0, 0, 1], 20249));
        for (listens, port, reaches) in [
            ("127.0.0.1", 20249, true),
            ("127.0.0.1", 20250, false),
            ("127.0.0.2", 20249, false),
            ("10.0.0.1", 20249, false),
            ("0.0.0.0", 20249, true),
            ("::", 20249, true),
            ("::ffff:127.0.0.1", 20249, true),
            ("::1", 20249, false),
        ] {
            let at = SocketAddr::new(listens.parse().unwrap(), port);
            assert_eq!(super::reaches(at, end), reaches, "{listens}");
        }
    }

    #[test]
    fn fuzz_net_tcp() {
        podstuck_fuzz::fuzz("net_tcp", |input| {
            let _ = is_in(input, SocketAddr::from(([127, 0, 0, 1], 20249)));
        });
    }
}
