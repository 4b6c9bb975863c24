//! Finds the mount namespaces that were given kubelet's directories. A CSI driver works on other pods' volumes, so their
//! directory is mounted in it; a container that only has paths like theirs does not have it.

use std::path::{Path, PathBuf};

use podstuck_model::{
    identity::Target,
    mounts::{Device, Mounts, NodeMounts},
};

/// Where a driver's volumes are mounted for all pods of the node, relative to kubelet's root.
const GLOBAL: &str = "plugins/kubernetes.io/csi";

/// kubelet's root directories by file system and directory, and the mount tables that show where they are mounted.
#[derive(Clone, Debug, Default)]
pub struct KubeletTrees {
    mounts: NodeMounts,
    /// The node's mount namespace, and those of kubelets with others.
    views: Vec<u32>,
    /// File system of each root, and the directory in it.
    roots: Vec<(Device, PathBuf)>,
}

impl KubeletTrees {
    /// From all mount tables of the node. `roots` are kubelet's settings and may contain symbolic links; `points` are
    /// mount points of its volumes, without links.
    pub fn new<'a>(
        mounts: NodeMounts,
        views: Vec<u32>,
        roots: &[PathBuf],
        points: impl Iterator<Item = &'a Path>,
    ) -> Self {
        let above_pods = points.filter_map(|point| {
            let mut above = point.ancestors();
            above.find(|path| path.file_name().is_some_and(|name| name == "pods"))?.parent()
        });
        let mut texts: Vec<&Path> = roots.iter().map(PathBuf::as_path).chain(above_pods).collect();
        texts.sort_unstable();
        texts.dedup();
        let mut roots: Vec<(Device, PathBuf)> = views
            .iter()
            .filter_map(|view| mounts.tables.get(view))
            .flat_map(|table| texts.iter().filter_map(|root| table.place(root)))
            .collect();
        roots.sort_unstable();
        roots.dedup();
        Self { mounts, views, roots }
    }

    /// All mount tables of the node.
    pub fn mounts(&self) -> &NodeMounts {
        &self.mounts
    }

    /// Whether the directory of a target in kubelet's own tree is mounted in a mount namespace. The target's root is a
    /// path in kubelet's mount namespace or in that one.
    pub fn are_shown(&self, namespace: u32, target: &Target) -> bool {
        // The parent of the volume: the volume's own mount does not cover it.
        let (Some(own), Some(above)) = (self.mounts.tables.get(&namespace), target.root.parent())
        else {
            return false;
        };
        let kubelets = self.views.iter().filter_map(|view| self.mounts.tables.get(view));
        let mut places =
            kubelets.map(|table| &**table).chain([&**own]).filter_map(|table| table.place(above));
        places.any(|place| self.is_of(&place, target) && shows(own, &place))
    }

    /// Whether a directory is in that of the target's pod, or of the global mounts, in a kubelet root.
    fn is_of(&self, (device, path): &(Device, PathBuf), target: &Target) -> bool {
        let inside = match &target.pod {
            Some(pod) => Path::new("pods").join(&pod.uid),
            None => PathBuf::from(GLOBAL),
        };
        let mut roots = self.roots.iter().filter(|(on, _)| on == device);
        roots.any(|(_, root)| path.strip_prefix(root).is_ok_and(|path| path.starts_with(&inside)))
    }
}

/// Whether a directory, or one above it, is mounted somewhere.
fn shows(table: &Mounts, (device, path): &(Device, PathBuf)) -> bool {
    table.all.iter().any(|mount| mount.device == *device && path.starts_with(&mount.root))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::classify::classify;
    use podstuck_confine::proc::parse_mounts;

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
    const OWN: &str = "0123456789abcdef0123456789abcdef";
    /// kubelet's root is a link to a directory of a data disk.
    const HOST: &str = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
         2 1 8:16 / /data rw - ext4 /dev/sdb rw\n\
         3 2 0:45 / /data/kubelet/pods/UID/volumes/kubernetes.io~csi/pv/mount rw - nfs4 h:/x rw\n";

    /// Whether a container with these mounts is given the directory of the target.
    fn is_given(inside: &str, root: &str) -> bool {
        let fill = |text: &str| text.replace("UID", UID).replace("OWN", OWN);
        let table = |text: &str| parse_mounts(7, fill(text).as_bytes()).into();
        let tables = [(1, table(HOST)), (5, table(inside))].into();
        let mounts = NodeMounts { tables, host: Some(1) };
        let point = fill("/data/kubelet/pods/UID/volumes/kubernetes.io~csi/pv/mount");
        let roots = ["/var/lib/kubelet".into()];
        let trees = KubeletTrees::new(mounts, vec![1], &roots, [Path::new(&point)].into_iter());
        trees.are_shown(5, &classify(Path::new(&fill(root))))
    }

    #[test]
    fn a_driver_has_the_directory_of_the_volume_and_others_have_paths_like_it() {
        let volume = "/data/kubelet/pods/UID/volumes/kubernetes.io~csi/pv";
        let by_link = "/var/lib/kubelet/pods/UID/volumes/kubernetes.io~csi/pv";
        let global = "/var/lib/kubelet/plugins/kubernetes.io/csi/d.example/0a/globalmount";
        let overlay = "20 1 0:50 / / rw - overlay o rw\n";
        let given = "21 20 8:16 /kubelet /var/lib/kubelet rw - ext4 /dev/sdb rw\n";
        for path in [volume, by_link, global] {
            assert!(is_given(&format!("{overlay}{given}"), path), "{path}");
            assert!(!is_given(overlay, path), "{path}");
            // A look-alike in its own volume, which is in kubelet's directory as well.
            let mine = "/kubelet/pods/OWN/volumes/kubernetes.io~empty-dir/x";
            for point in ["/var/lib/kubelet", "/data/kubelet", "/data"] {
                let look_alike = format!("21 20 8:16 {mine} {point} rw - ext4 /dev/sdb rw\n");
                assert!(!is_given(&format!("{overlay}{look_alike}"), path), "{path} by {point}");
            }
            // The same volume, mounted for a pod of its own.
            let shared = "21 20 0:45 / /mnt rw - nfs4 h:/x rw\n";
            assert!(!is_given(&format!("{overlay}{shared}"), path), "{path}");
        }
        let elsewhere = "21 20 8:16 /kubelet/pods /pods rw - ext4 /dev/sdb rw\n";
        let there = "/pods/UID/volumes/kubernetes.io~csi/pv";
        assert!(is_given(&format!("{overlay}{elsewhere}"), there));
        assert!(is_given(&format!("{overlay}{elsewhere}"), volume));
        assert!(!is_given(&format!("{overlay}{elsewhere}"), global));
    }

    #[test]
    fn no_namespace_is_given_anything_before_the_first_read() {
        let volume = format!("/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~csi/pv");
        assert!(!KubeletTrees::default().are_shown(5, &classify(Path::new(&volume))));
    }
}
