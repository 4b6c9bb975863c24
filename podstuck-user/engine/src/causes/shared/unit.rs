//! The service that a process belongs to.

use std::path::Path;

use crate::{
    command::{NAME, Step},
    model::{node::NodeSample, path::clip, remedy::Remedy},
};

/// The service of the host's own systemd, by the control group of a process in it. A group further below, or in another
/// slice, belongs to a container, a user or a nested node, where a service of that name is another one.
pub(crate) fn of(cgroup: &str) -> Option<&str> {
    let unit = cgroup.strip_prefix("/system.slice/")?;
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.@:".contains(&b);
    let is_service = unit.len() > ".service".len() && unit.ends_with(".service");
    (is_service && !unit.starts_with(['-', '.']) && unit.bytes().all(is_plain)).then_some(unit)
}

pub(crate) fn restart(unit: &str) -> Step {
    Step::new(format!("restart {}", clip(unit, NAME)), format!("systemctl restart {unit}"))
}

/// The restart of a component: a command, if its service is known.
pub(crate) fn restart_of(component: &str, unit: Option<&str>, risk: &str) -> Remedy {
    match unit {
        Some(unit) => restart(unit).remedy(risk),
        None => Remedy::advice(
            format!("restart {component}: no command is given, because its service was not seen"),
            risk,
        ),
    }
}

pub(crate) const RUNTIME_RISK: &str = "low: containers keep running under their shims, and the runtime finds them again. \
    With Docker, only if live-restore is set: without live-restore, every container of the node ends";

pub(crate) const KUBELET_RISK: &str =
    "low: containers keep running, and kubelet finds the node's pods and volumes again";

/// The restart of the node's kubelet: a command, if its service is known. `then` is left out of the sentence if it has
/// more than 60 columns.
pub(crate) fn restart_kubelet(sample: Option<&NodeSample>, then: &str) -> Remedy {
    match sample.and_then(|sample| of(sample.kubelet_group.as_deref()?)) {
        Some(unit) => restart(unit).so(&format!(": {then}")).remedy(KUBELET_RISK),
        None => Remedy::advice(
            format!(
                "restart kubelet (`systemctl restart kubelet`, where it is a service of that name): {then}"
            ),
            KUBELET_RISK,
        ),
    }
}

pub(crate) fn start(unit: &str) -> Step {
    Step::new(format!("start {}", clip(unit, NAME)), format!("systemctl start {unit}"))
}

/// The distribution whose service starts a runtime with this socket, and contains kubelet.
pub(crate) fn distribution(socket: &Path) -> Option<&'static str> {
    const SOCKETS: [(&str, &str); 3] = [
        ("/run/k3s/", "K3s or RKE2 (its service is k3s, k3s-agent, rke2-server or rke2-agent)"),
        ("/var/snap/microk8s/", "MicroK8s (`snap start microk8s`)"),
        ("/run/k0s/", "k0s (its service is k0sworker or k0scontroller)"),
    ];
    let of = |(place, _): &&(&str, &str)| socket.starts_with(place);
    SOCKETS.iter().find(of).map(|(_, name)| *name)
}

/// The same of the node's runtime that does not run, and its service, if its shims are in the service's group.
pub(crate) fn stopped(sample: &NodeSample) -> Option<(&'static str, Option<&str>)> {
    sample.gone.iter().find_map(|gone| {
        Some((distribution(gone.socket.as_deref()?)?, gone.group.as_deref().and_then(of)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_is_known_by_its_runtimes_socket() {
        let of = |socket| distribution(Path::new(socket)).map(|it| it.split(' ').next().unwrap());
        assert_eq!(of("/run/k3s/containerd/containerd.sock"), Some("K3s"));
        assert_eq!(of("/run/containerd/containerd.sock"), None);
        assert_eq!(of("/run/k3s-own.sock"), None);
    }

    #[test]
    fn only_the_hosts_own_services_count() {
        assert_eq!(of("/system.slice/backup.service"), Some("backup.service"));
        assert_eq!(of("/system.slice/foo@1.service"), Some("foo@1.service"));
        for foreign in [
            "/kubepods.slice/kubepods-pod0f0e0d0c.slice/system.slice/kubelet.service",
            "/user.slice/user-1000.slice/user@1000.service/app.slice/kubelet.service",
            "/system.slice/docker-00112233.scope/system.slice/kubelet.service",
            "/system.slice/containerd.service/kubelet.service",
            "/kubelet.service",
            "system.slice/kubelet.service",
            "/../system.slice/kubelet.service",
            "/system.slice/$(reboot).service",
            "/system.slice/a b.service",
            "/system.slice/--force.service",
            "/system.slice/.service",
            "/system.slice/kubelet.service (deleted)",
            "/system.slice/",
        ] {
            assert_eq!(of(foreign), None, "{foreign}");
        }
    }
}
