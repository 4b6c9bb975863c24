//! The component that a process is on a node.

use std::{ffi::OsStr, path::Component as PathPart};

use super::cgroup::{is_conmon, pod_of_cgroup};
use podstuck_model::identity::{Actor, Component, Target};

/// The plugin of every CSI volume.
const CSI: &str = "kubernetes.io/csi";

/// Names of processes that are, or contain, kubelet: its own, k3s, MicroK8s, MicroShift, KubeEdge, and hyperkube, which
/// once contained all of Kubernetes.
const KUBELETS: [&[u8]; 7] = [
    b"kubelet",
    b"k3s-server",
    b"k3s-agent",
    b"kubelite",
    b"microshift",
    b"edgecore",
    b"hyperkube",
];

/// Whether it is one of these names, or kubelet's with its version, as in `kubelet-v1.30.2`.
pub(super) fn is_kubelets_name(name: &[u8]) -> bool {
    let is_version = |rest: &[u8]| {
        let Some((b'-' | b'_' | b'.', rest)) = rest.split_first() else { return false };
        let number = rest.strip_prefix(b"v").unwrap_or(rest);
        number.first().is_some_and(u8::is_ascii_digit)
    };
    KUBELETS.contains(&name) || name.strip_prefix(b"kubelet").is_some_and(is_version)
}

/// The component of a process. Any process can be named `kubelet`, so the control group decides first: a process in a
/// pod's group is a workload. A process that is not the node's root ([`is_root`](super::living::is_root)) is a
/// workload, too.
pub fn component(comm: &[u8], cgroup: &str, is_root: bool) -> Component {
    if !is_root {
        Component::Workload
    } else if is_conmon(cgroup) {
        Component::CriO
    } else if pod_of_cgroup(cgroup).is_some() {
        Component::Workload
    } else {
        by_name(comm)
    }
}

/// The component by a process's name alone, which proves nothing. The kernel cuts names after 15 bytes.
pub fn by_name(comm: &[u8]) -> Component {
    if is_kubelets_name(comm) {
        return Component::Kubelet;
    }
    match comm {
        b"containerd" => Component::Containerd,
        b"dockerd" => Component::Dockerd,
        b"runc" | b"crun" | b"youki" => Component::Runc,
        b"crio" | b"conmon" | b"conmonrs" => Component::CriO,
        b"umount" => Component::UmountHelper,
        _ if comm.starts_with(b"containerd-shim") => Component::ContainerdShim,
        // The stages of a starting container, as in `runc:[2:INIT]`.
        _ if comm.starts_with(b"runc:") => Component::Runc,
        _ if [b"umount.".as_slice(), b"fusermount", b"mount."]
            .iter()
            .any(|p| comm.starts_with(p)) =>
        {
            Component::UmountHelper
        }
        _ => Component::Other,
    }
}

/// The component of an actor in a call on a target: a process in a pod that works on CSI volumes of other pods is the
/// driver, if `is_proven`.
pub fn component_for(
    actor: &Actor,
    target: &Target,
    is_proven: impl FnOnce() -> bool,
) -> Component {
    let in_pod = actor.pod.is_some();
    if in_pod && actor.is_stranger_to(target) && is_csi(target) && is_proven() {
        Component::CsiDriver
    } else {
        actor.component
    }
}

/// Whether it is a CSI volume of a pod, the directory that contains them, or a volume's global mount in kubelet's
/// `plugins/kubernetes.io/csi`.
fn is_csi(target: &Target) -> bool {
    if target.volume.as_ref().is_some_and(|volume| volume.plugin == CSI) {
        return true;
    }
    let names: Vec<&OsStr> = target
        .root
        .components()
        .filter_map(|part| if let PathPart::Normal(name) = part { Some(name) } else { None })
        .collect();
    names.iter().any(|name| *name == "kubernetes.io~csi")
        || names.windows(3).any(|part| part == ["plugins", "kubernetes.io", "csi"])
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::identity::classify::classify;
    use podstuck_model::identity::Pod;

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
    const DRIVER: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn names_of_components() {
        let table: [(&[u8], Component); 32] = [
            (b"kubelet", Component::Kubelet),
            (b"kubelet-v1.30.2", Component::Kubelet),
            (b"kubelet-1.30", Component::Kubelet),
            (b"kubelet_1.30.2", Component::Kubelet),
            (b"microshift", Component::Kubelet),
            (b"edgecore", Component::Kubelet),
            (b"kubelet-csr-app", Component::Other),
            (b"kubelet-volume", Component::Other),
            (b"kubelet-", Component::Other),
            (b"k3s-server", Component::Kubelet),
            (b"kubelite", Component::Kubelet),
            (b"containerd", Component::Containerd),
            (b"containerd-shim", Component::ContainerdShim),
            (b"dockerd", Component::Dockerd),
            (b"runc", Component::Runc),
            (b"runc:[2:INIT]", Component::Runc),
            (b"runc:[1:CHILD]", Component::Runc),
            (b"crun", Component::Runc),
            (b"youki", Component::Runc),
            (b"crio", Component::CriO),
            (b"conmon", Component::CriO),
            (b"umount", Component::UmountHelper),
            (b"umount.nfs", Component::UmountHelper),
            (b"umount.nfs4", Component::UmountHelper),
            (b"fusermount", Component::UmountHelper),
            (b"fusermount3", Component::UmountHelper),
            (b"mount.nfs", Component::UmountHelper),
            (b"runcible", Component::Other),
            (b"kubelet2", Component::Other),
            (b"mount", Component::Other),
            (b"rm", Component::Other),
            (b"\xff\x1b", Component::Other),
        ];
        for (comm, expected) in table {
            for cgroup in ["/", "/system.slice/x.service", "/docker/0a/kubelet.slice"] {
                assert_eq!(component(comm, cgroup, true), expected, "{}", comm.escape_ascii());
                assert_eq!(component(comm, cgroup, false), Component::Workload);
            }
        }
    }

    #[test]
    fn a_process_in_a_pod_is_a_workload_whatever_its_name() {
        let pod = format!("/kubepods/pod{UID}/{}", "a".repeat(64));
        for comm in [b"kubelet".as_slice(), b"umount", b"runc:[2:INIT]", b"rm", b"conmon"] {
            assert_eq!(component(comm, &pod, true), Component::Workload);
            assert_eq!(component(comm, &pod, false), Component::Workload);
        }
        let monitor = format!("/kubepods/pod{UID}/crio-conmon-{}", "a".repeat(64));
        assert_eq!(component(b"conmon", &monitor, true), Component::CriO);
        assert_eq!(component(b"conmon", &monitor, false), Component::Workload);
        let nested = format!("{pod}/pod{DRIVER}/crio-conmon-{}", "a".repeat(64));
        assert_eq!(component(b"conmon", &nested, true), Component::Workload);
    }

    fn actor(component: Component, uid: Option<&str>) -> Actor {
        let pod = uid.map(|uid| Pod { uid: uid.into(), namespace: None, name: None });
        let comm = "x".into();
        Actor { pid: 1, started: None, comm, cgroup: None, component, pod, parent: None }
    }

    #[test]
    fn a_driver_works_on_csi_volumes_of_other_pods() {
        let csi = format!("/k/pods/{UID}/volumes/kubernetes.io~csi/pvc-1");
        let device = format!("/k/pods/{UID}/volumeDevices/kubernetes.io~csi/pvc-1");
        let own = format!("/k/pods/{DRIVER}/volumes/kubernetes.io~csi/pvc-1");
        let nfs = format!("/k/pods/{UID}/volumes/kubernetes.io~nfs/v");
        let global = "/k/plugins/kubernetes.io/csi/acme.com/0a/globalmount";
        let holder = format!("/k/pods/{UID}/volumes/kubernetes.io~csi");
        let table: [(&str, Component); 7] = [
            (&csi, Component::CsiDriver),
            (&device, Component::CsiDriver),
            (global, Component::CsiDriver),
            (&holder, Component::CsiDriver),
            (&own, Component::Workload),
            (&nfs, Component::Workload),
            ("/var/lib/docker/volumes/v", Component::Workload),
        ];
        for (path, expected) in table {
            let target = classify(Path::new(path));
            let driver = actor(Component::Workload, Some(DRIVER));
            assert_eq!(component_for(&driver, &target, || true), expected, "{path}");
            assert_eq!(component_for(&driver, &target, || false), Component::Workload, "{path}");
            for other in [Component::Kubelet, Component::Workload] {
                assert_eq!(component_for(&actor(other, None), &target, || true), other);
            }
        }
    }
}
