//! etcd, the API server, and the controllers that volumes, pods and DaemonSets need. There is no scheduler: pods
//! name the node.

use std::{net::TcpListener, path::Path, process::Command};

use anyhow::{Context, Result};

use crate::{credentials::Keys, daemons::Daemons, place::Place, programs::Programs};

/// Ports on loopback.
#[derive(Clone, Copy)]
pub(crate) struct Ports {
    pub(crate) server: u16,
    pub(crate) etcd: u16,
    pub(crate) etcd_peers: u16,
    pub(crate) controllers: u16,
}

/// Those of a node, of which there is one on a machine.
pub(crate) const OF_NODE: Ports =
    Ports { server: 21443, etcd: 21379, etcd_peers: 21380, controllers: 21257 };

/// As version 1.20 calls them.
const CONTROLLERS: &str = "attachdetach,persistentvolume-binder,pv-protection,pvc-protection,podgc,garbagecollector,daemonset";

impl Ports {
    /// Free ones.
    pub(crate) fn free() -> Result<Self> {
        let listeners = [(); 4].map(|()| TcpListener::bind("127.0.0.1:0"));
        let mut ports = [0; 4];
        for (port, listener) in ports.iter_mut().zip(listeners) {
            *port = listener.and_then(|it| it.local_addr()).context("finding a free port")?.port();
        }
        let [server, etcd, etcd_peers, controllers] = ports;
        Ok(Self { server, etcd, etcd_peers, controllers })
    }

    /// Where the API server answers.
    pub(crate) fn address(self) -> String {
        format!("https://127.0.0.1:{}", self.server)
    }
}

/// Starts etcd and the API server.
pub(crate) fn start(
    programs: &Programs,
    place: &Place,
    keys: &Keys,
    daemons: &mut Daemons<'_>,
    ports: Ports,
) -> Result<()> {
    let address = |port| format!("http://127.0.0.1:{port}");
    let (own, peers) = (address(ports.etcd), address(ports.etcd_peers));
    let mut etcd = Command::new(&programs.etcd);
    etcd.arg("--data-dir").arg(place.on_disk("etcd"));
    etcd.args(["--listen-client-urls", &own, "--advertise-client-urls", &own]);
    etcd.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
    etcd.args(["--initial-cluster", &format!("default={peers}")]);
    daemons.start("etcd", etcd)?;
    daemons.start("kube-apiserver", apiserver(&programs.apiserver, keys, ports.server, &own))
}

/// Starts the controllers, once the API server answers: without one, they give up.
pub(crate) fn start_controllers(
    programs: &Programs,
    place: &Place,
    daemons: &mut Daemons<'_>,
    port: u16,
    more: &[&str],
) -> Result<()> {
    let mut controllers = Command::new(&programs.controllers);
    controllers.arg("--kubeconfig").arg(place.kubeconfig("admin"));
    controllers.args(["--leader-elect=false", "--bind-address=127.0.0.1"]);
    controllers.args(["--port=0", &format!("--secure-port={port}")]);
    let has_own = more.iter().any(|it| it.starts_with("--controllers="));
    controllers.args((!has_own).then(|| format!("--controllers={CONTROLLERS}")));
    controllers.args(more);
    controllers.arg("--cert-dir").arg(place.at("keys/controllers"));
    daemons.start("kube-controller-manager", controllers)
}

/// With the authorizers of a real cluster, so that kubelet's credentials may do what they may there.
fn apiserver(program: &Path, keys: &Keys, port: u16, etcd: &str) -> Command {
    let mut server = Command::new(program);
    server.args(["--bind-address=127.0.0.1", &format!("--secure-port={port}")]);
    server.args(["--etcd-servers", etcd]);
    server.args(["--authorization-mode=Node,RBAC", "--allow-privileged=true"]);
    server.args(["--enable-admission-plugins=NodeRestriction"]);
    server.args(["--disable-admission-plugins=ServiceAccount"]);
    server.args(["--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/24"]);
    server.args(["--service-account-issuer=https://kubernetes.default.svc"]);
    let [certificate, key] = &keys.server;
    let [public, private] = &keys.accounts;
    for (flag, path) in [
        ("--client-ca-file", &keys.authority),
        ("--tls-cert-file", certificate),
        ("--tls-private-key-file", key),
        ("--service-account-key-file", public),
        ("--service-account-signing-key-file", private),
    ] {
        server.arg(flag).arg(path);
    }
    server
}
