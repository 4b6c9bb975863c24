//! Whether anybody on the node listens at a loopback address: the helper's side. The network namespace in which an
//! NFS client connects is that of who mounted, and no file tells it; so all of them are looked at.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, BufRead, BufReader, Read as _},
    net::{IpAddr, Ipv6Addr},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use procfs::{FromBufReadSI as _, current_system_info, net::TcpNetEntries};
use serde::{Deserialize, Serialize};

use podstuck_confine::helper::{Question, Teller};
use podstuck_confine::{proc, role::Role};
use podstuck_model::{degraded::Feed, query::Listening};

/// What is read of a namespace's sockets that listen: those of ten thousand programs.
const LONGEST: u64 = 2 << 20;

/// Whether anybody listens.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FindListener {
    pub(super) address: IpAddr,
    pub(super) port: u16,
}

impl Question for FindListener {
    const FEEDS: Option<Feed> = Some(Feed::Node);
    const ROLE: Role = Role::Helper;
    type Step = ();
    type Part = ();
    type Answer = Listening;

    fn answer(self, _: &mut Teller<(), ()>) -> Result<Listening> {
        let (mut seen, mut found) = (BTreeSet::new(), Listening::default());
        for pid in proc::processes() {
            let process = PathBuf::from(format!("/proc/{pid}"));
            let Some(namespace) = proc::namespace(&process, "net") else {
                // One that has ended is in none, also as long as nobody has waited for it.
                let lives = |(state, _)| !matches!(state, 'Z' | 'X');
                found.unread += u32::from(proc::stat(pid, pid).is_some_and(lives));
                continue;
            };
            if seen.contains(&namespace) {
                continue;
            }
            match self.is_heard_in(&process) {
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

impl FindListener {
    fn is_heard_in(&self, process: &Path) -> Result<bool> {
        let mut heard = false;
        for table in ["tcp", "tcp6"] {
            match fs::File::open(process.join("net").join(table)) {
                Ok(file) => heard |= self.is_in(BufReader::new(file.take(LONGEST)))?,
                // A kernel without IPv6.
                Err(error) if table == "tcp6" && error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).context(table),
            }
        }
        Ok(heard)
    }

    /// Sockets that listen come first (net/ipv4/tcp_ipv4.c, `tcp_get_idx`), and no more is read.
    fn is_in(&self, mut table: impl BufRead) -> Result<bool> {
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
        let TcpNetEntries(entries) =
            TcpNetEntries::from_buf_read(&*listening, current_system_info())
                .map_err(io::Error::other)?;
        Ok(entries.iter().any(|it| self.reaches(it.local_address.ip(), it.local_address.port())))
    }

    /// Whether who listens there is reached at the address.
    fn reaches(&self, listens: IpAddr, port: u16) -> bool {
        // A listener for all addresses of IPv6 mostly takes those of IPv4 as well.
        let everywhere = listens.is_unspecified() || listens == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        port == self.port && (everywhere || listens.to_canonical() == self.address.to_canonical())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn asked(address: &str, port: u16) -> Listening {
        let question = FindListener { address: address.parse().unwrap(), port };
        question.answer(&mut Teller::new()).unwrap()
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
        let question = FindListener { address: "127.0.0.1".parse().unwrap(), port: 20249 };
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
            assert_eq!(question.reaches(listens.parse().unwrap(), port), reaches, "{listens}");
        }
    }

    #[test]
    fn fuzz_net_tcp() {
        podstuck_fuzz::fuzz("net_tcp", |input| {
            let question = FindListener { address: IpAddr::from([127, 0, 0, 1]), port: 20249 };
            let _ = question.is_in(input);
        });
    }
}
