//! What is mounted in pods' directories, for kubelet or for the host, and what containers show.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use super::views::View;
use crate::identity::uid::is_pod_uid;
use podstuck_model::{
    mounted::Mounted,
    mounts::{Device, Mount, Mounts, NodeMounts},
};

/// Mounts whose path reads like one below a pod's directory: by UID, with the path from there on.
pub(super) struct PodMounts<'a>(HashMap<&'a [u8], Vec<(PathBuf, &'a View, &'a Mount)>>);

impl<'a> PodMounts<'a> {
    /// Of these views.
    pub(super) fn of(views: &'a [View]) -> Self {
        let mut pods: HashMap<&[u8], Vec<_>> = HashMap::new();
        for view in views {
            for mount in &view.mounts.all {
                if let Some((uid, below)) = in_pod(&mount.point) {
                    pods.entry(uid).or_default().push((below, view, mount));
                }
            }
        }
        Self(pods)
    }

    /// Those that are mounted in the directory of a pod in this root: at its path, at that which a link in it leads to, or
    /// in the same directory by another path. A similar path alone does not count.
    pub(super) fn below(
        &self,
        uid: &str,
        root: &Path,
        link: Option<&(OsString, OsString)>,
    ) -> Vec<(PathBuf, Mounted)> {
        let leads_to = link.map(|(_, leads_to)| Path::new(leads_to));
        let directories: Vec<PathBuf> =
            [root].into_iter().chain(leads_to).map(|root| root.join("pods").join(uid)).collect();
        let all = self.0.get(uid.as_bytes()).into_iter().flatten();
        let its = all.filter(|(_, view, mount)| {
            directories.iter().any(|directory| {
                mount.point.starts_with(directory) || is_mounted_in(&view.mounts, mount, directory)
            })
        });
        its.map(|(below, view, mount)| (below.clone(), view.mounted(mount))).collect()
    }
}

/// Whether a mount, or one that it is mounted on, is mounted somewhere in a directory, whichever path leads there.
fn is_mounted_in(table: &Mounts, mount: &Mount, directory: &Path) -> bool {
    let Some((device, place)) = table.place(directory) else { return false };
    let mut mount = mount;
    // A table may be read while it changes, and so have a ring in it.
    for _ in 0..table.all.len() {
        let Some(above) = table.by_id(mount.parent) else { return false };
        let Ok(below) = mount.point.strip_prefix(&above.point) else { return false };
        if above.device == device && above.root.join(below).starts_with(&place) {
            return true;
        }
        mount = above;
    }
    false
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
    fn what_only_reads_like_a_volume_is_mounted_in_no_pod() {
        let volume = |root: &str| format!("{root}/pods/{UID}/volumes/p/v");
        // kubelet's root on a disk of its own, which is also seen at /data; a link leads there, too. The others are a
        // user's FUSE mount and an administrator's, each in a directory that reads like a root.
        let text = format!(
            "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:2 / /var/lib/kubelet rw - ext4 /dev/b rw\n\
             3 2 0:50 / {} rw - tmpfs a rw\n4 1 8:2 / /data rw - ext4 /dev/b rw\n\
             5 4 0:51 / {} rw - tmpfs b rw\n6 5 0:52 / {}/deep rw - tmpfs c rw\n\
             7 1 0:53 / {} rw - fuse.sshfs d rw,user_id=1000\n8 1 8:2 /x {} rw - ext4 /dev/b rw\n",
            volume("/var/lib/kubelet"),
            volume("/data"),
            volume("/data"),
            volume("/home/u"),
            volume("/backup"),
        );
        let mounts = Arc::new(podstuck_confine::proc::parse_mounts(7, text.as_bytes()));
        let views = [View { pid: 1, namespace: 1, mounts }];
        let ids = |root: &str, link: Option<&str>| -> Vec<u32> {
            let link = link.map(|leads_to| (OsString::from("/l"), OsString::from(leads_to)));
            let its = PodMounts::of(&views).below(UID, Path::new(root), link.as_ref());
            its.iter().map(|(_, mounted)| mounted.id).collect()
        };
        assert_eq!(ids("/var/lib/kubelet", None), [3, 5, 6]);
        assert_eq!(ids("/l", Some("/var/lib/kubelet")), [3, 5, 6]);
        assert_eq!((ids("/home/u", None), ids("/backup", None)), (vec![7], vec![8]));
    }

    #[test]
    fn a_container_is_known_by_what_it_has_mounted() {
        let table = |point: &str| {
            let text = format!("9 1 0:77 /d {point} rw - tmpfs t rw\n");
            Arc::new(podstuck_confine::proc::parse_mounts(7, text.as_bytes()))
        };
        let volume = format!("/k/pods/{UID}/volumes/p/v");
        let view = View { pid: 1, namespace: 1, mounts: table(&volume) };
        let has = |point: &str| {
            let tables = [(1, view.mounts.clone()), (2, table(point))].into();
            let node = NodeMounts { tables, ..NodeMounts::default() };
            let views = [view.clone()];
            let pods = PodMounts::of(&views);
            let (_, mounted) = pods.below(UID, Path::new("/k"), None).remove(0);
            Elsewhere::new(&node, &views).has(&mounted)
        };
        assert!(has("/data"), "a container's");
        assert!(!has(&format!("/host{volume}")), "an agent's copy of kubelet's directory");
    }
}
