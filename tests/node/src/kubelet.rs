//! kubelet, with the standard root directory and credentials of its own.

use std::{fs, process::Command};

use anyhow::{Context, Result};
use serde_json::json;

use crate::{
    NAME, cgroups, containers,
    containers::Runtime,
    daemons::Daemons,
    network,
    place::{KUBELET_ROOT, Place},
    programs::Programs,
};

/// Starts it.
pub(crate) fn start(
    runtime: Runtime,
    programs: &Programs,
    place: &Place,
    daemons: &mut Daemons<'_>,
) -> Result<()> {
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": 21250,
        "readOnlyPort": 0,
        "healthzPort": 21248,
        "authentication": { "anonymous": { "enabled": true }, "webhook": { "enabled": false } },
        "authorization": { "mode": "AlwaysAllow" },
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroups::root(),
        "failSwapOn": false,
        "makeIPTablesUtilChains": false,
        // A disk of ours that is full is no reason to end a pod.
        "evictionHard": { "nodefs.available": "1Mi", "imagefs.available": "1Mi" },
        "imageGCHighThresholdPercent": 100,
        "maxPods": 200,
        "registryPullQPS": 0,
        "resolvConf": "",
    });
    let path = place.at("kubelet.json");
    fs::write(&path, config.to_string()).context("configuring kubelet")?;
    let mut kubelet = Command::new(&programs.kubelet);
    kubelet.arg("--config").arg(&path);
    kubelet.arg("--kubeconfig").arg(place.kubeconfig("kubelet"));
    kubelet.arg("--cert-dir").arg(place.at("keys/kubelet"));
    kubelet.args(["--root-dir", KUBELET_ROOT, "--hostname-override", NAME]);
    kubelet.args(["--node-ip=127.0.0.1", "--v=2"]);
    match runtime {
        Runtime::Containerd => kubelet
            .args(["--container-runtime=remote", "--container-runtime-endpoint"])
            .arg(containers::socket(place)),
        Runtime::Docker => kubelet
            .args(["--container-runtime=docker", "--docker-endpoint"])
            .arg(containers::docker_socket(place))
            .args(["--pod-infra-container-image", crate::IMAGE])
            .args(["--network-plugin=cni", "--cni-bin-dir"])
            .arg(network::programs(place))
            .arg("--cni-conf-dir")
            .arg(network::configuration(place)),
    };
    daemons.start("kubelet", kubelet)
}
