//! Classifies a target by the text of its root alone. Prefixes do not count: data roots move, nodes nest, and agents
//! see the host below `/host` or `/rootfs`.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::{
    layout::{ASIDE_NAME, names},
    uid::{is_long_id, is_pod_uid},
};
use podstuck_model::{
    identity::{Pod, SUBPATH, Target, TargetKind, Volume},
    path::{JsonPath, safe},
};

/// The plugin of a volume of Docker's local driver.
pub(crate) const DOCKER_VOLUME: &str = "docker-volume";
/// The plugin of a container's layer.
pub(crate) const CONTAINER_LAYER: &str = "container-layer";

/// Directories for task bundles of containerd's shims, current and old.
pub(crate) const BUNDLE_PARENTS: [&str; 2] =
    ["io.containerd.runtime.v2.task", "io.containerd.runtime.v1.linux"];

/// The target with this root. Of its pod only the UID is known here.
pub fn classify(root: &Path) -> Target {
    let names = names(root);
    if let Some((at, uid)) = find_pod(&names) {
        return of_pod(root, uid, names.get(at + 1..).unwrap_or_default());
    }
    of_runtime(root, &names)
}

/// The kubelet root of a path in a pod's directory: the part before `pods/<uid>`.
pub fn kubelet_root_of(path: &Path) -> Option<PathBuf> {
    let names = names(path);
    let (at, _) = find_pod(&names)?;
    let mut out = PathBuf::from("/");
    out.extend(names.get(..at.checked_sub(1)?)?);
    Some(out)
}

/// The first UID that follows a component `pods`, and its index.
fn find_pod(names: &[&OsStr]) -> Option<(usize, String)> {
    let at = names.windows(2).position(|pair| match pair {
        [pods, uid] => *pods == "pods" && is_pod_uid(uid.as_bytes()),
        _ => false,
    })? + 1;
    Some((at, text(names.get(at)?)))
}

/// A volume of Docker's or Podman's local driver, where the parent directory is proven to contain volumes.
pub(crate) fn docker_volume(root: &Path) -> Target {
    let mut target = Target { root: root.to_owned(), ..Target::unknown() };
    if let Some(name) = root.file_name() {
        target.kind = TargetKind::DockerVolume;
        target.volume = Some(volume(root, name, DOCKER_VOLUME));
    }
    target
}

/// Classifies by kubelet's pod directory layout; `rest` follows the UID.
fn of_pod(root: &Path, uid: String, rest: &[&OsStr]) -> Target {
    let mut target = Target {
        kind: TargetKind::PodDirectory,
        root: root.to_owned(),
        pod: Some(Pod { uid, namespace: None, name: None }),
        ..Target::unknown()
    };
    let [kind, middle, last] = rest else { return target };
    match kind.as_bytes() {
        b"volumes" | b"volumeDevices" => {
            target.kind = TargetKind::PodVolume;
            // A plugin's name has a slash, which kubelet writes as a tilde.
            target.volume = Some(volume(root, last, &text(middle).replace('~', "/")));
        }
        b"volume-subpaths" => {
            target.kind = TargetKind::PodVolume;
            target.volume = Some(volume(root, middle, SUBPATH));
            target.container = Some(text(last));
        }
        // Termination logs: containers/<container>/<hash>.
        b"containers" => target.container = Some(text(middle)),
        _ => {}
    }
    target
}

/// Classifies by the layouts of Docker, containerd and containers-storage.
fn of_runtime(root: &Path, names: &[&OsStr]) -> Target {
    let mut target = Target { root: root.to_owned(), ..Target::unknown() };
    let [above @ .., parent, name] = names else { return target };
    let (parent, id) = (parent.as_bytes(), name.as_bytes());
    let is_bundle = above.last().is_some_and(|n| BUNDLE_PARENTS.iter().any(|b| *n == *b));
    if is_bundle {
        target.kind = TargetKind::ContainerBundle;
        // containerd renames a bundle to .<id> before it removes it.
        target.container = Some(text(OsStr::from_bytes(id.strip_prefix(b".").unwrap_or(id))));
    } else if parent == b"volumes" && (is_long_id(id) || is_docker_root(above)) {
        target.kind = TargetKind::DockerVolume;
        target.volume = Some(volume(root, name, DOCKER_VOLUME));
    } else if let Some(id) = aside(above, id) {
        target.kind = TargetKind::ContainerLayer;
        target.volume = Some(volume(root, OsStr::from_bytes(id), CONTAINER_LAYER));
    } else if is_layer(above, parent, id) {
        target.kind = TargetKind::ContainerLayer;
        target.volume = Some(volume(root, OsStr::from_bytes(snapshot(id)), CONTAINER_LAYER));
    }
    target
}

/// Whether the path is Docker's data root: it is often moved, but rarely to a path without `docker`. Podman has the same
/// layout in containers-storage. (An anonymous volume does not need this: only Docker and Podman name a directory below
/// `volumes` by 64 hexadecimal digits.)
fn is_docker_root(above: &[&OsStr]) -> bool {
    let says_docker =
        |name: &&OsStr| name.as_bytes().windows(6).any(|part| part.eq_ignore_ascii_case(b"docker"));
    above.iter().any(says_docker) || above.ends_with(&["containers".as_ref(), "storage".as_ref()])
}

fn is_layer(above: &[&OsStr], parent: &[u8], id: &[u8]) -> bool {
    match parent {
        // `l` contains the short links to all layers. Ids are 64 digits (with -init for the layer
        // below the writable one), or BuildKit's 25 letters.
        b"overlay2" => id != b"l" && id.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-'),
        b"overlay" => is_long_id(id),
        b"snapshots" => {
            let number = snapshot(id);
            let number = number.strip_prefix(b"new-").unwrap_or(number);
            !number.is_empty() && number.iter().all(u8::is_ascii_digit) && is_snapshotter(above)
        }
        _ => false,
    }
}

/// The name of a layer that containers-storage has moved aside to delete it, without the number before it.
fn aside<'a>(above: &[&OsStr], name: &'a [u8]) -> Option<&'a [u8]> {
    if !above.ends_with(&["overlay".as_ref(), ASIDE_NAME.as_ref()]) {
        return None;
    }
    let at = name.iter().position(|byte| *byte == b'-')?;
    let (number, id) = (name.get(..at)?, name.get(at + 1..)?);
    (!number.is_empty() && number.iter().all(u8::is_ascii_digit) && is_long_id(id)).then_some(id)
}

/// The path of a target's root before its runtime renamed it to delete it; the root itself where it was not renamed.
pub(super) fn before_removal(root: &Path) -> Option<PathBuf> {
    let name = root.file_name()?.as_bytes();
    let names = names(root);
    if let [above @ .., _, _] = names.as_slice()
        && let Some(id) = aside(above, name)
    {
        return Some(root.ancestors().nth(3)?.join(OsStr::from_bytes(id)));
    }
    let kept = name.strip_prefix(b"rm-").or(name.strip_prefix(b".")).unwrap_or(name);
    Some(root.with_file_name(OsStr::from_bytes(kept)))
}

/// The name of a layer without the prefix of containerd's snapshotters for one that they delete. (The number after
/// `new-`, while they create it, is another.)
fn snapshot(id: &[u8]) -> &[u8] {
    id.strip_prefix(b"rm-").unwrap_or(id)
}

/// Whether the path is a snapshotter's: plugins use io.containerd.snapshotter.v1.<name>, proxies their own directories,
/// such as containerd-stargz-grpc/snapshotter. A number below `snapshots` alone may be any backup.
fn is_snapshotter(above: &[&OsStr]) -> bool {
    above.iter().any(|name| {
        let name = name.as_bytes();
        name.windows(11).any(|part| part == b"snapshotter")
            || name.windows(10).any(|part| part == b"containerd")
    })
}

fn volume(root: &Path, name: &OsStr, plugin: &str) -> Volume {
    Volume { name: text(name), plugin: plugin.to_owned(), path: JsonPath(root.to_owned()) }
}

fn text(name: &OsStr) -> String {
    safe(name.as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
    const STATIC: &str = "0123456789abcdef0123456789abcdef";
    const ID: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    /// kind, volume's (plugin, name), container
    type Row = (TargetKind, Option<(&'static str, &'static str)>, Option<&'static str>);

    fn check(path: &str, pod: Option<&str>, (kind, volume, container): Row) {
        let target = classify(Path::new(path));
        assert_eq!(target.kind, kind, "{path}");
        assert_eq!(target.root, Path::new(path));
        assert_eq!(target.pod.as_ref().map(|p| p.uid.as_str()), pod, "{path}");
        let seen = target.volume.as_ref().map(|v| (v.plugin.as_str(), v.name.as_str()));
        assert_eq!(seen, volume, "{path}");
        assert!(target.volume.is_none_or(|v| v.path.0 == Path::new(path)));
        assert_eq!(target.container.as_deref(), container, "{path}");
    }

    #[test]
    fn paths_in_a_pod_directory() {
        use TargetKind::{PodDirectory, PodVolume};
        let table: [(&str, Row); 11] = [
            (
                "volumes/kubernetes.io~empty-dir/data",
                (PodVolume, Some(("kubernetes.io/empty-dir", "data")), None),
            ),
            (
                "volumes/kubernetes.io~csi/pvc-1",
                (PodVolume, Some(("kubernetes.io/csi", "pvc-1")), None),
            ),
            ("volumes/acme.com~flex/v", (PodVolume, Some(("acme.com/flex", "v")), None)),
            (
                "volumeDevices/kubernetes.io~csi/pvc-2",
                (PodVolume, Some(("kubernetes.io/csi", "pvc-2")), None),
            ),
            ("volume-subpaths/conf/nginx", (PodVolume, Some((SUBPATH, "conf")), Some("nginx"))),
            ("plugins/kubernetes.io~empty-dir/data", (PodDirectory, None, None)),
            ("containers/nginx/8f3a", (PodDirectory, None, Some("nginx"))),
            ("etc-hosts", (PodDirectory, None, None)),
            ("volumes", (PodDirectory, None, None)),
            ("volumes/kubernetes.io~csi", (PodDirectory, None, None)),
            ("", (PodDirectory, None, None)),
        ];
        let roots = [
            "/var/lib/kubelet",
            "/var/snap/microk8s/common/var/lib/kubelet",
            "/host/var/lib/kubelet",
            "/rootfs/mnt/kubelet",
            "",
        ];
        for root in roots {
            for uid in [UID, STATIC] {
                for (rest, row) in table {
                    check(
                        format!("{root}/pods/{uid}/{rest}").trim_end_matches('/'),
                        Some(uid),
                        row,
                    );
                }
            }
        }
    }

    #[test]
    fn a_target_that_is_renamed_for_removal_keeps_its_identity() {
        for (now, before) in [
            (format!("/s/overlay/tempdirs/temp-dir-30/1-{ID}"), format!("/s/overlay/{ID}")),
            (format!("/s/overlay/{ID}"), format!("/s/overlay/{ID}")),
            ("/c/snapshots/rm-42".into(), "/c/snapshots/42".into()),
            (format!("/c/k8s.io/.{ID}"), format!("/c/k8s.io/{ID}")),
        ] {
            assert_eq!(before_removal(Path::new(&now)), Some(before.into()), "{now}");
        }
        assert_eq!(before_removal(Path::new("/")), None);
    }

    #[test]
    fn paths_of_runtimes() {
        use TargetKind::{ContainerBundle, ContainerLayer, DockerVolume, Other};
        let docker = |name| (DockerVolume, Some((DOCKER_VOLUME, name)), None);
        let layer = |name| (ContainerLayer, Some((CONTAINER_LAYER, name)), None);
        let bundle = (ContainerBundle, None, Some(ID));
        let other = (Other, None, None);
        let table: [(String, Row); 33] = [
            ("/var/lib/docker/volumes/data".into(), docker("data")),
            ("/home/data/docker/volumes/data".into(), docker("data")),
            ("/host/srv/Docker-root/volumes/data".into(), docker("data")),
            (format!("/srv/x/volumes/{ID}"), docker(ID)),
            ("/var/lib/containers/storage/volumes/v".into(), docker("v")),
            ("/home/me/volumes/data".into(), other),
            ("/volumes".into(), other),
            (format!("/var/lib/docker/overlay2/{ID}"), layer(ID)),
            ("/d/overlay2/x3v9k2lq0w8e7r6t5y4u3i2o1".into(), layer("x3v9k2lq0w8e7r6t5y4u3i2o1")),
            ("/var/lib/docker/overlay2/l".into(), other),
            (format!("/var/lib/containers/storage/overlay/{ID}"), layer(ID)),
            (format!("/s/overlay/tempdirs/temp-dir-30/1-{ID}"), layer(ID)),
            ("/s/overlay/tempdirs/temp-dir-30/0-RQMOBO5HOLLKWK6Q4XIDR4OSOD".into(), other),
            (format!("/s/overlay/tempdirs/temp-dir-30/{ID}"), other),
            (format!("/s/snapshots/tempdirs/temp-dir-30/1-{ID}"), other),
            ("/var/lib/containers/storage/overlay/l".into(), other),
            ("/srv/overlay/theme".into(), other),
            (
                "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/42".into(),
                layer("42"),
            ),
            ("/x/io.containerd.snapshotter.v1.native/snapshots/rm-42".into(), layer("42")),
            ("/x/io.containerd.snapshotter.v1.native/snapshots/new-42".into(), layer("new-42")),
            (
                "/var/lib/rancher/k3s/agent/containerd/io.containerd.snapshotter.v1.fuse/snapshots/7"
                    .into(),
                layer("7"),
            ),
            ("/var/lib/containerd-nydus/snapshots/7".into(), layer("7")),
            ("/backup/snapshots/20240101".into(), other),
            ("/var/lib/containerd/x/snapshots/rm-".into(), other),
            (format!("/run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}"), bundle),
            (format!("/run/containerd/io.containerd.runtime.v2.task/k8s.io/.{ID}"), bundle),
            (format!("/run/docker/containerd/daemon/io.containerd.runtime.v2.task/moby/{ID}"), bundle),
            (format!("/run/containerd/io.containerd.runtime.v1.linux/moby/{ID}"), bundle),
            (format!("/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}"), bundle),
            (format!("/sys/fs/cgroup/k8s.io/{ID}"), other),
            ("/srv/pods/0f0e0d0c-1111-2222-3333-44445555666X/a/b/c".into(), other),
            ("/".into(), other),
            (String::new(), other),
        ];
        for (path, row) in table {
            check(&path, None, row);
        }
    }

    #[test]
    fn a_pod_directory_is_no_docker_volume_whatever_its_prefix() {
        let path = format!("/data/docker/kubelet/pods/{UID}/volumes/kubernetes.io~nfs/{ID}");
        assert_eq!(classify(Path::new(&path)).kind, TargetKind::PodVolume);
    }

    #[test]
    fn hostile_names_cannot_reach_a_terminal() {
        let mut path = format!("/k/pods/{UID}/volumes/a~b/").into_bytes();
        path.extend(b"\x1b[2J\xff");
        let volume = classify(Path::new(OsStr::from_bytes(&path))).volume.unwrap();
        assert_eq!(volume.name, r"\x1b[2J\xff");
        assert_eq!(volume.path.0.as_os_str().as_bytes(), path);
    }

    #[test]
    fn the_kubelet_root_comes_before_pods() {
        let path = format!("/l/var/lib/kubelet/pods/{UID}/volumes/p/v");
        assert_eq!(
            kubelet_root_of(Path::new(&path)).as_deref(),
            Some(Path::new("/l/var/lib/kubelet"))
        );
        assert_eq!(kubelet_root_of(Path::new("/var/lib/docker/volumes/x")), None);
    }
}
