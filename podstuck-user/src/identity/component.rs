//! The part that a process plays on a node.

use std::{ffi::OsStr, path::Component as PathPart};

use super::cgroup::{is_conmon, pod_of_cgroup};
use crate::model::identity::{Actor, Component, Target};

/// The plugin of every CSI volume.
const CSI: &str = "kubernetes.io/csi";

/// Names of processes that are, or contain, kubelet: its own, k3s, MicroK8s, and the binary that
/// held all of Kubernetes once.
pub(super) const KUBELETS: [&[u8]; 5] =
    [b"kubelet", b"k3s-server", b"k3s-agent", b"kubelite", b"hyperkube"];

/// The part of a process by its name and control group. Everybody may call himself `kubelet`, so
/// the control group has the first word: who is in a pod's is a workload.
pub(crate) fn component(comm: &[u8], cgroup: Option<&str>) -> Component {
    match cgroup {
        Some(path) if is_conmon(path) => Component::CriO,
        Some(path) if pod_of_cgroup(path).is_some() => Component::Workload,
        _ => by_name(comm),
    }
}

/// The kernel cuts names after 15 bytes.
fn by_name(comm: &[u8]) -> Component {
    if KUBELETS.contains(&comm) {
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

/// The part of an actor in a call on a target: a process in a pod that works on CSI volumes which
/// are not its pod's own is the driver.
pub(crate) fn component_for(actor: &Actor, target: &Target) -> Component {
    let foreign = match (&actor.pod, &target.pod) {
        (Some(own), Some(victim)) => own.uid != victim.uid,
        (Some(_), None) => true,
        (None, _) => false,
    };
    if actor.component == Component::Workload && foreign && is_csi(target) {
        Component::CsiDriver
    } else {
        actor.component
    }
}

/// A CSI volume of a pod, the directory that holds them, or a volume's global mount in kubelet's
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
    use crate::{identity::classify::classify, model::identity::Pod};

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
    const DRIVER: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn names_of_components() {
        let table: [(&[u8], Component); 24] = [
            (b"kubelet", Component::Kubelet),
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
            assert_eq!(component(comm, None), expected, "{}", comm.escape_ascii());
            assert_eq!(component(comm, Some("/system.slice/x.service")), expected);
        }
    }

    #[test]
    fn who_is_in_a_pod_is_a_workload_whatever_its_name() {
        let pod = format!("/kubepods/pod{UID}/{}", "a".repeat(64));
        for comm in [b"kubelet".as_slice(), b"umount", b"runc:[2:INIT]", b"rm", b"conmon"] {
            assert_eq!(component(comm, Some(&pod)), Component::Workload);
        }
        let monitor = format!("/kubepods/pod{UID}/crio-conmon-{}", "a".repeat(64));
        assert_eq!(component(b"conmon", Some(&monitor)), Component::CriO);
    }

    fn actor(component: Component, uid: Option<&str>) -> Actor {
        let pod = uid.map(|uid| Pod { uid: uid.into(), namespace: None, name: None });
        let comm = "x".into();
        Actor { pid: 1, started: None, comm, cgroup: None, component, pod, parent: None }
    }

    #[test]
    fn a_driver_works_on_other_peoples_csi_volumes() {
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
            let seen = component_for(&actor(Component::Workload, Some(DRIVER)), &target);
            assert_eq!(seen, expected, "{path}");
            assert_eq!(
                component_for(&actor(Component::Kubelet, None), &target),
                Component::Kubelet
            );
        }
    }
}
