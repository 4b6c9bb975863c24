//! Runtimes' daemons, and the processes that they leave with containers.

use core::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    container::ContainerName, halted::Halted, identity::Component, node::NodeSample, raw_path,
};

/// Docker's namespace in containerd: what is in it is dockerd's (moby `containerd.DefaultNamespace`).
pub const DOCKERS: &str = "moby";

/// A runtime's daemon that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runtime {
    /// Process id.
    pub pid: u32,
    /// containerd, dockerd or CRI-O.
    pub component: Component,
    /// When it was started, in ticks since boot: with its id, this names it.
    pub started: u64,
    /// Inode number of its mount namespace; `None` where it could not be read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mnt_ns: Option<u32>,
    /// What keeps it from running, if something does.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub halted: Option<Halted>,
    /// Where it listens; empty also where that could not be read.
    #[serde(with = "raw_path::list", skip_serializing_if = "Vec::is_empty", default)]
    pub sockets: Vec<PathBuf>,
    /// Its control group; `None` where it is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub group: Option<String>,
    /// The connections that stand on those sockets, by their numbers; empty where it listens nowhere.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub connections: Vec<u64>,
}

impl Runtime {
    /// Where its clients call it; `None` where that was not seen. The kernel lists sockets in no order, and daemons
    /// listen on others that speak another language: dockerd on `metrics.sock` (moby, `daemon/metrics_unix.go`) and
    /// `libnetwork/ID.sock` (`libnetwork/sandbox_externalkey_unix.go`), containerd on `debug.sock` (its `defaults`).
    pub fn api_socket(&self) -> Option<&Path> {
        const ASIDE: [&str; 2] = ["metrics.sock", "debug.sock"];
        let is_named = |path: &Path| path.extension().is_some_and(|it| it == "sock");
        let is_aside = |path: &Path| {
            ASIDE.iter().any(|name| path.ends_with(name))
                || path.parent().is_some_and(|dir| dir.ends_with("libnetwork"))
        };
        let mut all = self.sockets.iter().map(PathBuf::as_path);
        all.find(|path| is_named(path) && !is_aside(path))
    }
}

/// A runtime that does not run, while shims that it started do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoneRuntime {
    /// containerd, dockerd or CRI-O.
    pub component: Component,
    /// Where its shims call it, which is how it is known; `None` for a runtime whose shims do not.
    #[serde(with = "raw_path::option", skip_serializing_if = "Option::is_none", default)]
    pub socket: Option<PathBuf>,
    /// Shims of it that live.
    pub shims: usize,
    /// The control group of one of them.
    pub group: Option<String>,
}

/// A runtime's process that looks after the containers of a pod: the parent of their first processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shim {
    /// Process id.
    pub pid: u32,
    /// Its name, safe to be shown.
    pub comm: String,
    /// `S`, `T`, `D`, ...
    pub state: char,
    /// When it was started, in ticks since boot: with its id, this names it.
    pub started: u64,
    /// Its control group; `None` where it is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub group: Option<String>,
    /// The kernel function that it waits in, where it waits uninterruptibly and that is told.
    pub wait_channel: Option<String>,
    /// Whose it is; `None` where that could not be told.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub of: Option<ShimOf>,
    /// Its children that have ended and whose exit it has not collected. They are looked for where one pod is asked
    /// about.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub unreaped: Vec<Unreaped>,
}

/// A process that has ended, and whose parent has not collected its exit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreaped {
    /// Process id.
    pub pid: u32,
    /// When it was started, in ticks since boot: with its id, this names it.
    pub started: u64,
    /// Its name, safe to be shown.
    pub comm: String,
    /// Who traces it, as in `strace (pid 77)`, safe to be shown: its parent is told of its end only when the tracer has
    /// taken note (ptrace(2)).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub traced_by: Option<String>,
}

/// The runtime that a shim was started by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ShimOf {
    /// containerd, as its shims are told on their command line.
    Containerd {
        /// `-address`, where the shim calls it.
        #[serde(with = "raw_path")]
        socket: PathBuf,
        /// `-namespace`
        namespace: String,
    },
    /// CRI-O, by the directory that its monitor writes exit codes to.
    CriO,
}

/// A shim that cannot run, and the container that it looks after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HaltedShim {
    /// Which container.
    pub container: ContainerName,
    /// Whether its runtime wrote that its removal was begun. Docker does.
    #[serde(skip_serializing_if = "is_false", default)]
    pub to_go: bool,
    /// The shim.
    pub shim: Shim,
}

/// A container of Docker's, of which dockerd has written something else than is so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutOfStep {
    /// Which container.
    pub container: ContainerName,
    /// dockerd's directory of it, with what it has written.
    #[serde(with = "raw_path")]
    pub directory: PathBuf,
    /// The dockerd that has written it, and runs.
    pub dockerd: u32,
    /// What differs.
    pub what: Differs,
    /// The shim that was started for it, while that lives.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub shim: Option<Shim>,
    /// What dockerd passes its output on to, where dockerd's `hostconfig.json` says so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub log_driver: Option<LogDriver>,
    /// When it was started last.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started_at: Option<Timestamp>,
}

/// A container's log driver (`LogConfig` in moby).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogDriver {
    /// `json-file`, `fluentd`, a plugin's name.
    pub name: String,
    /// Where it sends to, as the container's options have it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub address: Option<String>,
}

impl LogDriver {
    /// Whether it only writes files of its own.
    pub fn is_local(&self) -> bool {
        matches!(self.name.as_str(), "json-file" | "local" | "none")
    }

    /// The address and the TCP port, where these are on the node itself.
    pub fn loopback(&self) -> Option<SocketAddr> {
        // moby, daemon/logger/fluentd.
        const PORT: u16 = 24224;
        let is_fluentd = self.name == "fluentd";
        let default = is_fluentd.then_some("localhost");
        let address = self.address.as_deref().or(default)?;
        let (scheme, rest) = address.split_once("://").unwrap_or(("tcp", address));
        if !matches!(scheme, "tcp" | "tcp+tls" | "tls" | "http" | "https") {
            return None;
        }
        let end = rest.split('/').next()?.replace("localhost", "127.0.0.1");
        let with_port = || end.parse().ok().map(|ip: IpAddr| SocketAddr::new(ip, PORT));
        let end = end.parse().ok().or_else(|| with_port().filter(|_| is_fluentd));
        end.filter(|end: &SocketAddr| end.ip().is_loopback())
    }
}

/// In which of the two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Differs {
    /// dockerd says that it runs, as this process, and no process of it has that id.
    SaysUp(u32),
    /// dockerd says that it has ended, and the shim that it had then lives; with its first process, while that
    /// lives, too.
    SaysEnded(Option<u32>),
}

/// As serde asks it.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_false(value: &bool) -> bool {
    !value
}

/// The state of a daemon that a container's removal needs.
#[derive(Clone, Copy, Debug)]
pub enum Daemon<'a> {
    /// It runs, or is kept from that.
    Runs(&'a Runtime),
    /// It does not.
    Gone(&'a GoneRuntime),
}

impl Daemon<'_> {
    /// What keeps it from running.
    pub fn halted(&self) -> Option<&Halted> {
        match self {
            Self::Runs(runtime) => runtime.halted.as_ref(),
            Self::Gone(_) => None,
        }
    }
}

impl Shim {
    /// Whether a signal or a tracer has stopped it.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// Whether it cannot run: it is stopped, or waits in the kernel.
    pub fn is_halted(&self) -> bool {
        self.is_stopped() || self.state == 'D'
    }

    /// Whether its containers run in a sandbox that is a kernel of its own, as Kata's virtual machines and gVisor's:
    /// signals for them end in there.
    pub fn has_own_kernel(&self) -> bool {
        let kind = self.comm.strip_prefix("containerd-shim-");
        kind.is_some_and(|kind| !kind.starts_with("runc") && !kind.starts_with("crun"))
    }
}

impl NodeSample {
    /// The daemons that a shim's containers are removed by, the lower one first.
    pub fn daemons_of(&self, shim: &Shim) -> Vec<Daemon<'_>> {
        match &shim.of {
            Some(ShimOf::Containerd { socket, namespace }) => {
                let docker = (namespace == DOCKERS).then(|| self.only(Component::Dockerd));
                self.listens_on(socket).into_iter().chain(docker.flatten()).collect()
            }
            Some(ShimOf::CriO) => self.only(Component::CriO).into_iter().collect(),
            None => Vec::new(),
        }
    }

    fn listens_on(&self, socket: &Path) -> Option<Daemon<'_>> {
        let has = |it: &&Runtime| it.sockets.iter().any(|own| own == socket);
        let mut gone = self.gone.iter().filter(|it| it.socket.as_deref() == Some(socket));
        let running = self.runtimes.iter().find(has).map(Daemon::Runs);
        running.or_else(|| gone.next().map(Daemon::Gone))
    }

    /// The daemon of this kind, unless there are several: then it is not known whose a container is.
    pub fn only(&self, component: Component) -> Option<Daemon<'_>> {
        let mut running = self.runtimes.iter().filter(|it| it.component == component);
        match (running.next(), running.next()) {
            (Some(one), None) => Some(Daemon::Runs(one)),
            (Some(_), Some(_)) => None,
            (None, _) => self.gone.iter().find(|it| it.component == component).map(Daemon::Gone),
        }
    }
}
