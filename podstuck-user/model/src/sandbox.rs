//! The parts of a pod's sandbox that a runtime's error may name as busy.

use std::path::{Component, Path, PathBuf};

/// The kind of part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The file that pins its network namespace, a mount of `nsfs`.
    NetworkNamespace,
    /// The directory of its shared memory, a `tmpfs` that its containers have at `/dev/shm`.
    SharedMemory,
    /// An image that is mounted as a volume of its pod.
    ImageVolume,
    /// The block device of a container's root file system, for a virtual machine.
    Device,
}

/// The suffix that Go's `os` and `golang.org/x/sys/unix` add to a path.
const BUSY: &str = ": device or resource busy";

/// The busy object of an error: the last one, since errors name the request first.
pub fn busy(error: &str) -> Option<(Kept, PathBuf)> {
    let named = error.match_indices(BUSY).filter_map(|(at, _)| {
        // kubelet repeats the error with nested quotes.
        let before = error.get(..at)?.trim_end_matches(['"', '\\']);
        let is_between = |c: char| c.is_whitespace() || matches!(c, '"' | '\\');
        let begin = before.rfind(is_between).map_or(0, |at| at + 1);
        let path = Path::new(before.get(begin..)?);
        Some((kept(path)?, path.to_owned()))
    });
    named.last().or_else(|| Some((Kept::Device, mapped(error)?)))
}

/// A device-mapper device, by the name that containerd's snapshotter gives it
/// (plugins/snapshots/devmapper/pool_device.go).
fn mapped(error: &str) -> Option<PathBuf> {
    let (_, named) = error.rsplit_once("failed to deactivate device \"")?;
    let (name, why) = named.split_once('"')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "+-.:=@_".contains(c);
    let is_plain = !name.is_empty() && !name.starts_with('.') && name.chars().all(is_name);
    (is_plain && why.ends_with(BUSY)).then(|| format!("/dev/mapper/{name}").into())
}

/// Whether a path is a disk, by the names that the kernel and udev assign.
fn is_block_device(path: &Path) -> bool {
    let Some(name) = path.strip_prefix("/dev").ok().and_then(Path::to_str) else { return false };
    const DISKS: [&str; 13] = [
        "mapper/", "disk/", "dm-", "loop", "nbd", "rbd", "sd", "vd", "xvd", "nvme", "md", "zd",
        "mmcblk",
    ];
    DISKS.iter().any(|kind| name.starts_with(kind))
}

/// The kind of a path: network namespace files of containerd and CRI-O, shared memory of containerd
/// (internal/cri/config), CRI-O and Podman (`userdata/shm`), and Docker (`mounts/shm`), and containerd's image
/// volumes, by the sandbox's id and the image's (internal/cri/server/container_image_mount.go).
fn kept(path: &Path) -> Option<Kept> {
    let is_plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
    if !path.is_absolute() || !path.components().all(is_plain) {
        return None;
    }
    let named = |above: usize, name: &str| {
        path.ancestors().nth(above).and_then(Path::file_name).is_some_and(|own| own == name)
    };
    if is_block_device(path) {
        return Some(Kept::Device);
    }
    if named(1, "netns") {
        return Some(Kept::NetworkNamespace);
    }
    if named(2, "image-volumes") {
        return Some(Kept::ImageVolume);
    }
    let of_sandbox = named(2, "sandboxes") || named(1, "userdata");
    let of_docker = named(3, "containers") && named(1, "mounts");
    (named(0, "shm") && (of_sandbox || of_docker)).then_some(Kept::SharedMemory)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in containerd issues 3667 and 6143, CRI-O issue 1453 and pull request 3073, and Podman issue 19721.
    #[test]
    fn what_is_busy_is_named_at_the_end() {
        let uuid = "cni-45ff10e9-dcc1-b779-f1a1-3515a5d56e61";
        let netns = format!("/var/run/netns/{uuid}");
        let id = "921d9d5a5f2e1f87eb26d6620d3a91fd9bd0a69efea8ba56680581a8869b361e";
        let crio = format!("/var/run/containers/storage/overlay-containers/{id}/userdata/shm");
        let cri = format!("/run/containerd/io.containerd.grpc.v1.cri/sandboxes/{id}/shm");
        let image = format!("/run/containerd/io.containerd.grpc.v1.cri/image-volumes/{id}/{id}");
        let table = [
            (
                format!(
                    "PodSandboxStatus for \"{id}\" failed: failed to get sandbox ip: check network namespace \
                     closed: remove netns: unlinkat {netns}: device or resource busy"
                ),
                Some((Kept::NetworkNamespace, netns.as_str())),
            ),
            (
                format!(
                    "failed to \"KillPodSandbox\" for \"u\" with KillPodSandboxError: \"rpc error: code = Unknown \
                     desc = failed to remove network namespace for sandbox \\\"{id}\\\": failed to remove netns: \
                     unlinkat {netns}: device or resource busy\""
                ),
                Some((Kept::NetworkNamespace, netns.as_str())),
            ),
            (
                format!(
                    "failed to remove pod sandbox {id}: unlinkat {crio}: device or resource busy"
                ),
                Some((Kept::SharedMemory, crio.as_str())),
            ),
            (
                format!("failed to unmount \\\"{cri}\\\": device or resource busy"),
                Some((Kept::SharedMemory, cri.as_str())),
            ),
            (
                // As containerd 2.4 wrote it.
                format!(
                    "failed to cleanup image mounts for sandbox \"{id}\": failed to unmount image volume component \
                     \"{image}\": failed to unmount target {image}: device or resource busy"
                ),
                Some((Kept::ImageVolume, image.as_str())),
            ),
            (
                // As in containerd issue 7712.
                "failed to deactivate device \"pool-snap-1\": failed to deactivate device: device or resource busy"
                    .into(),
                Some((Kept::Device, "/dev/mapper/pool-snap-1")),
            ),
            (
                "remove /dev/mapper/a-b: device or resource busy".into(),
                Some((Kept::Device, "/dev/mapper/a-b")),
            ),
            ("failed to deactivate device \"../x\": device or resource busy".into(), None),
            (format!("failed to unmount target /run/x/{id}/rootfs: device or resource busy"), None),
            ("mount mqueue:/dev/mqueue: device or resource busy".into(), None),
            ("unlinkat /dev/termination-log: device or resource busy".into(), None),
            (format!("unlinkat {netns}: permission denied"), None),
            ("unlinkat netns/x: device or resource busy".into(), None),
            ("unlinkat /run/netns/../x/shm: device or resource busy".into(), None),
            (": device or resource busy".into(), None),
        ];
        for (error, expected) in table {
            let expected = expected.map(|(kept, path)| (kept, PathBuf::from(path)));
            assert_eq!(busy(&error), expected, "{error}");
        }
    }
}
