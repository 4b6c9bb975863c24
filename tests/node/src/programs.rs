//! The programs of a node: those of Kubernetes from `cargo xtask node build`, the others from packages.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use podstuck_process as process;

use crate::{Runtime, network};

/// What is built.
pub(crate) const BUILT: [&str; 3] = ["kube-apiserver", "kubelet", "kube-controller-manager"];
/// Debian's programs, not whatever lies in `/usr/local`.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Where what was built is kept: outside any clone, so that the next one has it.
pub(crate) fn cache() -> Result<PathBuf> {
    let own = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = own.or_else(home).context("neither XDG_CACHE_HOME nor HOME is set")?;
    Ok(cache.join("podstuck"))
}

/// All of them.
pub(crate) struct Programs {
    pub(crate) etcd: PathBuf,
    pub(crate) apiserver: PathBuf,
    pub(crate) controllers: PathBuf,
    pub(crate) kubelet: PathBuf,
    pub(crate) kubectl: PathBuf,
}

impl Programs {
    /// Looks for each; the error says what to do about those that are missing.
    pub(crate) fn find(runtime: Runtime) -> Result<Self> {
        let mut missing = missing(&needed(runtime));
        if !Path::new(network::PLUGINS).join(network::LOOPBACK).exists() {
            missing.push("containernetworking-plugins");
        }
        Self::with(&missing)
    }

    /// Those of a control plane without a node.
    pub(crate) fn of_control_plane() -> Result<Self> {
        Self::with(&missing(&CONTROL_PLANE))
    }

    fn with(missing: &[&str]) -> Result<Self> {
        let built = cache()?.join("current");
        if let Some(name) = BUILT.iter().find(|name| !built.join(name).is_file()) {
            bail!("no {name} in {}: `cargo xtask node build` builds it", built.display());
        }
        if !missing.is_empty() {
            bail!("a node needs: `apt-get install {}`", missing.join(" "));
        }
        let [apiserver, kubelet, controllers] = BUILT.map(|name| built.join(name));
        let etcd = find("etcd").context("no etcd")?;
        Ok(Self { etcd, apiserver, controllers, kubelet, kubectl: kubectl()? })
    }
}

/// Packages of programs that are not there.
fn missing(needed: &[(&'static str, &'static str)]) -> Vec<&'static str> {
    let missing = needed.iter().filter(|(program, _)| find(program).is_none());
    missing.map(|(_, package)| *package).collect()
}

/// Each program with Debian's package.
const CONTROL_PLANE: [(&str, &str); 2] =
    [("etcd", "etcd-server"), ("kubectl", "kubernetes-client")];

fn needed(runtime: Runtime) -> Vec<(&'static str, &'static str)> {
    let mut needed = CONTROL_PLANE.to_vec();
    needed.extend([
        ("containerd", "containerd"),
        ("runc", "runc"),
        ("mkfs.ext4", "e2fsprogs"),
        ("busybox", "busybox-static"),
    ]);
    if matches!(runtime, Runtime::Docker) {
        needed.push(("dockerd", "docker.io"));
    }
    needed
}

/// The client of the API.
pub(crate) fn kubectl() -> Result<PathBuf> {
    find("kubectl").context("no kubectl: `apt-get install kubernetes-client`")
}

fn find(name: &str) -> Option<PathBuf> {
    let packaged = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    packaged.into_iter().find(|path| path.is_file()).or_else(|| process::find(name))
}
