//! What runs the containers.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use clap::ValueEnum;
use nix::sys::signal::{Signal, kill};
use podstuck_process as process;

use crate::{
    IMAGE, cgroups,
    daemons::{Daemons, processes_with},
    network,
    place::Place,
    wait_for,
};

/// What runs the containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Runtime {
    /// containerd, by the container runtime interface.
    #[default]
    Containerd,
    /// dockerd, by kubelet's own dockershim, which ended with Kubernetes 1.24.
    Docker,
}

impl Runtime {
    /// The daemon that kubelet asks.
    pub fn daemon(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Docker => "dockerd",
        }
    }
}

/// Starts it and gives it the image.
pub(crate) fn start(
    runtime: Runtime,
    place: &Place,
    image: &Path,
    daemons: &mut Daemons<'_>,
) -> Result<()> {
    network::make(place)?;
    containerd(runtime, place, daemons)?;
    if runtime == Runtime::Docker {
        dockerd(place, daemons)?;
        return process::output(docker(place).arg("load").arg("--input").arg(image)).map(drop);
    }
    import(place, image)
}

/// Gives an image to containerd.
pub(crate) fn import(place: &Place, image: &Path) -> Result<()> {
    process::output(ctr(place).args(["--namespace", "k8s.io", "image", "import"]).arg(image))
        .map(drop)
}

/// Starts its daemon again after that has ended.
pub(crate) fn restart(place: &Place, daemons: &mut Daemons<'_>) -> Result<()> {
    match running(place) {
        Runtime::Containerd => containerd(Runtime::Containerd, place, daemons),
        Runtime::Docker => dockerd(place, daemons),
    }
}

/// Where kubelet finds containerd.
pub(crate) fn socket(place: &Place) -> String {
    format!("unix://{}", place.at("containerd.sock").display())
}

/// Where kubelet finds dockerd.
pub(crate) fn docker_socket(place: &Place) -> String {
    format!("unix://{}", place.at("docker.sock").display())
}

fn ctr(place: &Place) -> Command {
    let mut command = Command::new("/usr/bin/ctr");
    command.arg("--address").arg(place.at("containerd.sock"));
    command
}

/// What was started.
pub(crate) fn running(place: &Place) -> Runtime {
    if place.at("docker.sock").exists() { Runtime::Docker } else { Runtime::Containerd }
}

/// Where the runtime mounts the root file system of a container.
pub(crate) fn rootfs(place: &Place, container: &str) -> Result<PathBuf> {
    if running(place) == Runtime::Containerd {
        let bundles = "containerd/io.containerd.runtime.v2.task/k8s.io";
        return Ok(place.at(bundles).join(container).join("rootfs"));
    }
    let merged = "{{.GraphDriver.Data.MergedDir}}";
    let mut inspect = docker(place);
    let found = inspect.args(["inspect", "--format", merged, container]).output();
    let found = found.context("starting docker")?.stdout;
    Ok(String::from_utf8_lossy(&found).trim_end().into())
}

/// In a container of containerd's.
pub(crate) fn exec(place: &Place, container: &str, name: &str) -> Command {
    let mut command = ctr(place);
    command.args(["--namespace", "k8s.io", "task", "exec", "--exec-id", name, container]);
    command
}

fn docker(place: &Place) -> Command {
    let mut command = Command::new("/usr/bin/docker");
    command.env("DOCKER_HOST", docker_socket(place));
    command
}

fn containerd(runtime: Runtime, place: &Place, daemons: &mut Daemons<'_>) -> Result<()> {
    let disabled = if runtime == Runtime::Docker { "'io.containerd.grpc.v1.cri'" } else { "" };
    let [root, state, socket, opt] = [
        place.on_disk("containerd"),
        place.at("containerd"),
        place.at("containerd.sock"),
        place.at("opt"),
    ]
    .map(|path| path.display().to_string());
    let config = format!(
        "version = 2
root = '{root}'
state = '{state}'
disabled_plugins = [{disabled}]
[grpc]
address = '{socket}'
[plugins.'io.containerd.internal.v1.opt']
path = '{opt}'
[plugins.'io.containerd.grpc.v1.cri']
sandbox_image = '{IMAGE}'
restrict_oom_score_adj = true
disable_tcp_service = true
[plugins.'io.containerd.grpc.v1.cri'.cni]
bin_dir = '{}'
conf_dir = '{}'
",
        network::programs(place).display(),
        network::configuration(place).display(),
    );
    let path = place.at("containerd.toml");
    fs::write(&path, config).context("configuring containerd")?;
    let mut command = Command::new("/usr/bin/containerd");
    command.arg("--config").arg(&path);
    daemons.start("containerd", command)?;
    wait_for("containerd", || process::output(ctr(place).arg("version")).is_ok())
}

/// runc, without the wish that sandboxes be killed last (`defaultSandboxOOMAdj` in pkg/kubelet/dockershim),
/// which a process that lacks CAP_SYS_RESOURCE may not have. containerd has a setting for that.
const RUNC_OF_EQUALS: &str = r#"#!/bin/sh
is_bundle=
for word; do
    test -z "$is_bundle" || sed -i 's/"oomScoreAdj":-[0-9]*/"oomScoreAdj":0/' "$word/config.json"
    is_bundle=
    test "$word" != --bundle || is_bundle=1
done
exec runc "$@"
"#;

fn dockerd(place: &Place, daemons: &mut Daemons<'_>) -> Result<()> {
    let mut command = Command::new("/usr/sbin/dockerd");
    command.arg("--data-root").arg(place.on_disk("docker"));
    command.arg("--exec-root").arg(place.at("docker"));
    command.arg("--pidfile").arg(place.at("docker.pid"));
    command.args(["--storage-driver", "overlay2", "--host", &docker_socket(place)]);
    command.arg("--containerd").arg(place.at("containerd.sock"));
    command.args(["--bridge=none", "--iptables=false", "--ip6tables=false"]);
    command.args(["--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent"]);
    command.arg(cgroups::root());
    let runtime = place.at("runc-of-equals");
    network::program(&runtime, RUNC_OF_EQUALS)?;
    command.arg("--add-runtime").arg(format!("equals={}", runtime.display()));
    command.args(["--default-runtime", "equals"]);
    daemons.start("dockerd", command)?;
    wait_for("dockerd", || process::output(docker(place).arg("version")).is_ok())
}

/// Ends the shims, which outlive the daemons; ours are known by their socket.
pub(crate) fn end_shims(place: &Place) -> Result<()> {
    let shims = || processes_with(&place.at("containerd.sock"));
    wait_for("the shims to end", || {
        let shims = shims();
        shims.iter().for_each(|pid| {
            let _ = kill(*pid, Signal::SIGKILL);
        });
        shims.is_empty()
    })
}
