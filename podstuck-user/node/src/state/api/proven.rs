//! A connection whose other end is a given process, by what the kernel says.
//!
//! kubelet's port has no certificate that proves whose it is: kubelet mostly signs its own. And any user may listen there
//! while kubelet does not, since the port is above 1023. So the tables of the kernel decide, for each connection and
//! before the first byte: a connection to an address of this machine ends in the same network namespace, and once it is
//! accepted, `/proc/PID/net/tcp` has the number of the socket at its other end, and `/proc/PID/fd` has that socket among
//! the descriptors of kubelet. A user can neither have such a descriptor in kubelet nor be in the way of such a
//! connection. What redirects it (a rule of the packet filter, which takes root) changes the other end, which is then
//! not found. No data crosses a network, so TLS has nothing else to prove.

use std::{
    fmt,
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread::sleep,
    time::{Duration, Instant},
};

use ureq::{
    Error,
    unversioned::transport::{
        Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
    },
};

use crate::{
    identity::trust::Standing,
    state::{
        as_process::directory,
        sockets::sockets_of,
        tcp::{Connection, State, connection},
    },
};
use podstuck_confine::proc::Stat;
use podstuck_model::cluster::NotRead;

/// How long kubelet may take to accept: it does so at once, unless it is stopped.
const ACCEPTED: Duration = Duration::from_millis(500);
/// Between two looks whether it has.
const PAUSE: Duration = Duration::from_millis(5);
/// A line of the table has 150 bytes.
const LINE: u64 = 512;

/// The process that is to have the other end, in the network namespace of the caller.
pub(super) struct Process {
    directory: PathBuf,
    proc: PathBuf,
    started: u64,
}

impl Process {
    /// A process of the node that runs as root outside pods and login users' set-user-ID programs; `None` if it does not.
    pub(super) fn of(host_root: &Path, pid: u32) -> Option<Self> {
        let directory = directory(host_root, pid);
        let proc = directory.parent()?.to_owned();
        let started = Stat::read(&directory)?.started;
        let process = Self { directory, proc, started };
        process.is_same().then_some(process)
    }

    /// Whether no other process was given its id, and it is still root's.
    fn is_same(&self) -> bool {
        let is_roots = Standing::of(&self.proc, &self.directory).is_ok();
        is_roots && Stat::read(&self.directory).is_some_and(|it| it.started == self.started)
    }

    /// Where it listens on a port, as an address to connect to.
    pub(super) fn listens(&self, port: u16) -> Option<SocketAddr> {
        let own = sockets_of(&self.directory);
        let is_its = |it: &Connection| {
            it.state == State::Listens && it.local.port() == port && own.contains(&it.inode)
        };
        let mut at = self.find(is_its)?.local;
        match at {
            SocketAddr::V4(v4) if v4.ip().is_unspecified() => at.set_ip(Ipv4Addr::LOCALHOST.into()),
            // It takes connections by IPv4 as well, unless it refuses to.
            SocketAddr::V6(v6) if v6.ip().is_unspecified() => {
                at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
                if self.connects(at).is_err() {
                    at.set_ip(Ipv6Addr::LOCALHOST.into());
                }
            }
            _ => {}
        }
        Some(at)
    }

    fn connects(&self, to: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect_timeout(&to, ACCEPTED)
    }

    /// Connects, and has the kernel prove who accepted. Nothing was sent or received.
    ///
    /// # Errors
    /// Fails when another process accepted, or none in time.
    pub(super) fn connect(&self, to: SocketAddr) -> Result<TcpStream, NotRead> {
        let other = |error: io::Error| NotRead::Other(error.to_string());
        let stream = self.connects(to).map_err(other)?;
        let (here, there) =
            (stream.local_addr().map_err(other)?, stream.peer_addr().map_err(other)?);
        let until = Instant::now() + ACCEPTED;
        while Instant::now() < until {
            // The number is 0 until the socket is accepted; the descriptor comes a moment later.
            let end = self.find(|it| it.local == there && it.remote == here && it.inode != 0);
            if end.is_some_and(|it| sockets_of(&self.directory).contains(&it.inode)) {
                return if self.is_same() { Ok(stream) } else { Err(NotRead::NotKubelet) };
            }
            sleep(PAUSE);
        }
        Err(NotRead::NotKubelet)
    }

    /// A connection of its network namespace.
    fn find(&self, wanted: impl Fn(&Connection) -> bool) -> Option<Connection> {
        ["tcp", "tcp6"].iter().find_map(|table| {
            let mut table =
                BufReader::new(File::open(self.directory.join("net").join(table)).ok()?);
            let mut line = Vec::new();
            loop {
                line.clear();
                if table.by_ref().take(LINE).read_until(b'\n', &mut line).ok()? == 0 {
                    return None;
                }
                if let Some(found) = connection(&line).filter(&wanted) {
                    return Some(found);
                }
            }
        })
    }
}

/// Hands an existing connection to `ureq`, once: it makes no other.
#[derive(Debug)]
pub(super) struct Proven(pub(super) Mutex<Option<TcpStream>>);

impl Connector for Proven {
    type Out = Plain;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Plain>, Error> {
        let stream = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let stream = stream.ok_or(Error::ConnectionFailed)?;
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(Plain { stream, buffers }))
    }
}

/// Its bytes.
pub(super) struct Plain {
    stream: TcpStream,
    buffers: LazyBuffers,
}

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stream.fmt(f)
    }
}

impl Transport for Plain {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.set_write_timeout(left(&timeout))?;
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        self.stream.write_all(output).map_err(|error| late(error, &timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.set_read_timeout(left(&timeout))?;
        let input = self.buffers.input_append_buf();
        let amount = self.stream.read(input).map_err(|error| late(error, &timeout))?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        let mut byte = [0];
        let is_quiet = self.stream.set_nonblocking(true).is_ok()
            && self.stream.peek(&mut byte).is_err_and(|it| it.kind() == io::ErrorKind::WouldBlock);
        self.stream.set_nonblocking(false).is_ok() && is_quiet
    }
}

fn left(timeout: &NextTimeout) -> Option<Duration> {
    // A timeout of 0 means none to the kernel.
    timeout.not_zero().map(|left| (*left).max(Duration::from_millis(1)))
}

fn late(error: io::Error, timeout: &NextTimeout) -> Error {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Error::Timeout(timeout.reason),
        _ => error.into(),
    }
}
