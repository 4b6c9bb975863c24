//! What is mounted in pods' directories, for kubelet or for the host, and what containers show.

use std::{
    collections::{HashMap, HashSet},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use super::views::View;
use crate::{
    identity::uid::is_pod_uid,
    model::{
        mounted::Mounted,
        mounts::{Device, NodeMounts},
    },
};

/// Mounts below any pod's directory: by UID, with the path from there on.
pub(super) fn by_pod(views: &[View]) -> HashMap<&[u8], Vec<(PathBuf, Mounted)>> {
    let mut pods: HashMap<&[u8], Vec<_>> = HashMap::new();
    for view in views {
        for mount in &view.mounts.all {
            let Some((uid, below)) = in_pod(&mount.point) else { continue };
            let mounted = view.mounted(mount);
            pods.entry(uid).or_default().push((below, mounted));
        }
    }
    pods
}

/// The UID in a path, and what follows it.
fn in_pod(path: &Path) -> Option<(&[u8], PathBuf)> {
    let mut names = path.components();
    while let Some(name) = names.next() {
        if name.as_os_str() != "pods" {
            continue;
        }
        let below = names.as_path();
        let uid = below.components().next()?.as_os_str();
        if is_pod_uid(uid.as_bytes()) {
            return Some((uid.as_bytes(), below.strip_prefix(uid).ok()?.to_owned()));
        }
    }
    None
}

/// What is mounted in containers, away from kubelet's directories. Taken together only when it is
/// asked for.
pub(super) struct Elsewhere<'a> {
    node: &'a NodeMounts,
    views: &'a [View],
    mounted: OnceLock<HashSet<(Device, &'a Path)>>,
}

impl<'a> Elsewhere<'a> {
    /// Of the whole node, without the views in which kubelet's directories count.
    pub(super) fn new(node: &'a NodeMounts, views: &'a [View]) -> Self {
        Self { node, views, mounted: OnceLock::new() }
    }

    /// Whether a container shows the same.
    pub(super) fn has(&self, mounted: &Mounted) -> bool {
        let all = self.mounted.get_or_init(|| {
            let is_view = |namespace| self.views.iter().any(|view| view.namespace == namespace);
            let outside = self.node.all().filter(|(namespace, ..)| !is_view(*namespace));
            outside
                .filter(|(_, _, mount)| in_pod(&mount.point).is_none())
                .map(|(_, _, mount)| (mount.device, mount.root.as_path()))
                .collect()
        });
        all.contains(&(mounted.device, mounted.root.as_path()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    #[test]
    fn a_mount_belongs_to_the_pod_in_its_path_whatever_comes_before() {
        for root in ["/var/lib/kubelet", "/rootfs/k", ""] {
            let path = format!("{root}/pods/{UID}/volumes/p/v");
            let (uid, below) = in_pod(Path::new(&path)).unwrap();
            assert_eq!((uid, below.as_path()), (UID.as_bytes(), Path::new("volumes/p/v")));
        }
        assert_eq!(in_pod(Path::new("/srv/pods/x/volumes")), None);
        assert_eq!(in_pod(Path::new("/srv")), None);
    }

    #[test]
    fn a_container_is_known_by_what_it_has_mounted() {
        let table = |point: &str| {
            let text = format!("9 1 0:77 /d {point} rw - tmpfs t rw\n");
            Arc::new(crate::proc::parse_mounts(7, text.as_bytes()))
        };
        let volume = format!("/k/pods/{UID}/volumes/p/v");
        let view = View { pid: 1, namespace: 1, mounts: table(&volume) };
        let has = |point: &str| {
            let tables = [(1, view.mounts.clone()), (2, table(point))].into();
            let node = NodeMounts { tables, ..NodeMounts::default() };
            let views = [view.clone()];
            let by_pod = by_pod(&views);
            let (_, mounted) = &by_pod[UID.as_bytes()][0];
            Elsewhere::new(&node, &views).has(mounted)
        };
        assert!(has("/data"), "a container's");
        assert!(!has(&format!("/host{volume}")), "an agent's copy of kubelet's directory");
    }
}
