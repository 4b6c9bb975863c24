//! etcd, the API server, and the controllers that volumes and pods need. There is no scheduler: pods
//! name the node.

use std::{path::Path, process::Command};

use anyhow::Result;

use crate::{credentials::Keys, daemons::Daemons, place::Place, programs::Programs};

/// Where the API server answers.
pub(crate) const SERVER: &str = "https://127.0.0.1:21443";
const PORT: &str = "21443";
const ETCD: &str = "http://127.0.0.1:21379";
const ETCD_PEERS: &str = "http://127.0.0.1:21380";
/// As version 1.20 calls them.
const CONTROLLERS: &str =
    "attachdetach,persistentvolume-binder,pv-protection,pvc-protection,podgc,garbagecollector";

/// Starts etcd and the API server.
pub(crate) fn start(
    programs: &Programs,
    place: &Place,
    keys: &Keys,
    daemons: &mut Daemons<'_>,
) -> Result<()> {
    let mut etcd = Command::new(&programs.etcd);
    etcd.arg("--data-dir").arg(place.on_disk("etcd"));
    etcd.args(["--listen-client-urls", ETCD, "--advertise-client-urls", ETCD]);
    etcd.args(["--listen-peer-urls", ETCD_PEERS, "--initial-advertise-peer-urls", ETCD_PEERS]);
    etcd.args(["--initial-cluster", &format!("default={ETCD_PEERS}")]);
    daemons.start("etcd", etcd)?;
    daemons.start("kube-apiserver", apiserver(&programs.apiserver, keys))
}

/// Starts the controllers, once the API server answers: they give up where there is none.
pub(crate) fn start_controllers(
    programs: &Programs,
    place: &Place,
    daemons: &mut Daemons<'_>,
) -> Result<()> {
    let mut controllers = Command::new(&programs.controllers);
    controllers.arg("--kubeconfig").arg(place.kubeconfig("admin"));
    controllers.args(["--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=21257"]);
    controllers.args(["--port=0", &format!("--controllers={CONTROLLERS}")]);
    controllers.arg("--cert-dir").arg(place.at("keys/controllers"));
    daemons.start("kube-controller-manager", controllers)
}

/// With the authorizers of a real cluster, so that kubelet's credentials may do what they may there.
fn apiserver(program: &Path, keys: &Keys) -> Command {
    let mut server = Command::new(program);
    server.args(["--bind-address=127.0.0.1", "--secure-port", PORT, "--etcd-servers", ETCD]);
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
