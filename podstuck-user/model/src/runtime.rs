//! Runtime daemons and their shims.

use core::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    chain::Who, container::ContainerName, halted::Halted, identity::Component, node::NodeSample,
    pod_group::Reaper, raw_path,
};

/// Docker's namespace in containerd, whose containers belong to dockerd (moby `containerd.DefaultNamespace`).
pub const DOCKERS: &str = "moby";

/// A running runtime daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runtime {
    /// Process id.
    pub pid: u32,
    /// containerd, dockerd or CRI-O.
    pub component: Component,
    /// Its start in ticks since boot: with the pid, it identifies the process.
    pub started: u64,
    /// Inode number of its mount namespace; `None` if unreadable.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mnt_ns: Option<u32>,
    /// What keeps it from running, if anything does.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub halted: Option<Halted>,
    /// The sockets that it listens on; empty also if unreadable.
    #[serde(with = "raw_path::list", skip_serializing_if = "Vec::is_empty", default)]
    pub sockets: Vec<PathBuf>,
    /// Its control group; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub group: Option<String>,
    /// Established connections on those sockets, by inode number; empty if it listens on none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub connections: Vec<u64>,
}

impl Runtime {
    /// The daemon as a component.
    pub fn who(&self) -> Who {
        Who::component(self.component.name(), Some(self.pid))
    }

    /// The socket of its API; `None` if it was not seen. The kernel lists sockets in no particular order, and
    /// daemons listen on other sockets with other protocols: dockerd on `metrics.sock` (moby,
    /// `daemon/metrics_unix.go`) and `libnetwork/ID.sock` (`libnetwork/sandbox_externalkey_unix.go`), containerd on
    /// `debug.sock` (its `defaults`).
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

/// A runtime that does not run while shims that it started do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoneRuntime {
    /// containerd, dockerd or CRI-O.
    pub component: Component,
    /// The socket on which its shims call it, by which it is known; `None` for a runtime whose shims do not.
    #[serde(with = "raw_path::option", skip_serializing_if = "Option::is_none", default)]
    pub socket: Option<PathBuf>,
    /// Number of its running shims.
    pub shims: usize,
    /// The control group of one of them.
    pub group: Option<String>,
}

/// A shim: the parent of the first processes of a pod's containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shim {
    /// Process id.
    pub pid: u32,
    /// Its name, safe to show.
    pub comm: String,
    /// `S`, `T`, `D`, ...
    pub state: char,
    /// Its start in ticks since boot: with the pid, it identifies the process.
    pub started: u64,
    /// Its control group; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub group: Option<String>,
    /// The kernel function that it waits in, if it waits uninterruptibly and the function is visible.
    pub wait_channel: Option<String>,
    /// The runtime that started it; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub of: Option<ShimOf>,
    /// The container that it was started for, by its command line: with Kubernetes and containerd, a pod's sandbox.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub container: Option<String>,
    /// Its zombie children. They are searched for in a run about one pod, and for a pod with a container whose control
    /// group has no process.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub unreaped: Vec<Unreaped>,
    /// Whether its working directory is deleted. Each program that it starts has the same one, and fails where it asks for
    /// it (getcwd(2): ENOENT).
    #[serde(skip_serializing_if = "is_false", default)]
    pub lost_directory: bool,
}

/// A zombie: a process that has ended and whose parent has not collected its exit status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreaped {
    /// Process id.
    pub pid: u32,
    /// Its start in ticks since boot: with the pid, it identifies the process.
    pub started: u64,
    /// Its name, safe to show.
    pub comm: String,
    /// Its tracer, if that is not its parent: the parent is notified of the exit only after the tracer has collected it
    /// (ptrace(2)).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub traced_by: Option<Reaper>,
}

impl Unreaped {
    /// The process by its name.
    pub fn who(&self) -> Who {
        Who::task(&self.comm, self.pid)
    }
}

/// The runtime that started a shim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ShimOf {
    /// containerd, by the shim's command line.
    Containerd {
        /// `-address`: the socket on which the shim calls it.
        #[serde(with = "raw_path")]
        socket: PathBuf,
        /// `-namespace`
        namespace: String,
    },
    /// CRI-O, by the directory to which conmon writes exit codes.
    CriO,
}

/// A shim that cannot run, and its container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HaltedShim {
    /// The container.
    pub container: ContainerName,
    /// Whether the runtime recorded that the removal has begun. Docker does.
    #[serde(skip_serializing_if = "is_false", default)]
    pub to_go: bool,
    /// The shim.
    pub shim: Shim,
}

/// A container whose state in the records of dockerd or CRI-O is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutOfStep {
    /// The container.
    pub container: ContainerName,
    /// The runtime that keeps the record. dockerd in recordings without the field.
    #[serde(default = "dockerd", skip_serializing_if = "is_dockerd")]
    pub runtime: Component,
    /// The runtime's directory of the container, which has the record.
    #[serde(with = "raw_path")]
    pub directory: PathBuf,
    /// The running daemon that wrote the record.
    #[serde(rename = "dockerd")]
    pub daemon: u32,
    /// The difference.
    pub what: Differs,
    /// Its shim, while that runs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub shim: Option<Shim>,
    /// Its log driver, by dockerd's `hostconfig.json`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub log_driver: Option<LogDriver>,
    /// Its last start.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started_at: Option<Timestamp>,
}

fn dockerd() -> Component {
    Component::Dockerd
}

fn is_dockerd(runtime: &Component) -> bool {
    *runtime == Component::Dockerd
}

/// A container's log driver (`LogConfig` in moby).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogDriver {
    /// `json-file`, `fluentd`, a plugin's name.
    pub name: String,
    /// The address that it sends to, by the container's options.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub address: Option<String>,
}

impl LogDriver {
    /// Whether it writes only local files.
    pub fn is_local(&self) -> bool {
        matches!(self.name.as_str(), "json-file" | "local" | "none")
    }

    /// The address and TCP port, if the address is a loopback address.
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

/// The kind of difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Differs {
    /// The record says that it runs as this process, and no process of it has that pid.
    SaysUp(u32),
    /// The record says that it has ended, and its shim still runs; with its first process if that runs, too.
    SaysEnded(Option<u32>),
}

/// For `skip_serializing_if`.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_false(value: &bool) -> bool {
    !value
}

/// The state of a daemon that takes part in a container's removal.
#[derive(Clone, Copy, Debug)]
pub enum Daemon<'a> {
    /// It runs, or is halted.
    Runs(&'a Runtime),
    /// It does not run.
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
    /// The shim as a process.
    pub fn who(&self) -> Who {
        Who::process(&self.comm, self.pid)
    }

    /// Whether dockerd had containerd start it.
    pub fn is_dockers(&self) -> bool {
        matches!(&self.of, Some(ShimOf::Containerd { namespace, .. }) if namespace == DOCKERS)
    }

    /// Whether it is stopped by a signal or a tracer.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// Whether it cannot run: it is stopped, or waits uninterruptibly.
    pub fn is_halted(&self) -> bool {
        self.is_stopped() || self.state == 'D'
    }

    /// Whether its sandbox has its own kernel, such as Kata's virtual machines and gVisor: signals to its processes
    /// end inside.
    pub fn has_own_kernel(&self) -> bool {
        let kind = self.comm.strip_prefix("containerd-shim-");
        kind.is_some_and(|kind| !kind.starts_with("runc") && !kind.starts_with("crun"))
    }
}

impl NodeSample {
    /// The daemons that remove a shim's containers, the lower-level one first.
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

    /// The daemon of this component; `None` if several run, since the owner of a container is then unknown.
    pub fn only(&self, component: Component) -> Option<Daemon<'_>> {
        let mut running = self.runtimes.iter().filter(|it| it.component == component);
        match (running.next(), running.next()) {
            (Some(one), None) => Some(Daemon::Runs(one)),
            (Some(_), Some(_)) => None,
            (None, _) => self.gone.iter().find(|it| it.component == component).map(Daemon::Gone),
        }
    }
}
