//! Finds the paths of target roots in each mount namespace: by device and directory of the mounts, which the kernel
//! reports, and not by the text of a path.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use podstuck_common::root::HOST_VIEW;

use super::target_roots::TargetRoots;
use podstuck_model::mounts::{Device, Mounts, NodeMounts};

/// Paths by view, each with the index of the target root that it leads to.
pub type Views = HashMap<u32, Vec<(PathBuf, usize)>>;

/// The views of all mount namespaces in `node`; a namespace in which no root is reached has no entry.
pub fn of_node(roots: &TargetRoots, node: &NodeMounts) -> Views {
    let mut views = Views::new();
    for (index, root) in roots.all().iter().enumerate() {
        let own = root.seen_by.map(|(_, namespace)| namespace).or(node.host);
        let mut add = |view: u32, path: PathBuf| {
            let known = views.entry(view).or_default();
            if !known.contains(&(path.clone(), index)) {
                known.push((path, index));
            }
        };
        if root.seen_by.is_none() {
            [root.name(), &root.path].into_iter().for_each(|path| add(HOST_VIEW, path.to_owned()));
        }
        let Some(place) = own.and_then(|own| node.tables.get(&own)?.place(root.name())) else {
            continue;
        };
        for (namespace, table) in &node.tables {
            for path in reached(table, &place) {
                // A symbolic link to the root is on the same file system.
                if path == root.name() {
                    add(*namespace, root.path.clone());
                }
                add(*namespace, path);
            }
        }
    }
    views
}

/// The paths of a directory in a namespace where no other mount covers it.
fn reached<'a>(
    table: &'a Mounts,
    (device, directory): &'a (Device, PathBuf),
) -> impl Iterator<Item = PathBuf> + 'a {
    let of_device = table.all.iter().filter(|mount| mount.device == *device);
    of_device.filter_map(|mount| {
        let path = join(&mount.point, directory.strip_prefix(&mount.root).ok()?);
        let covering = table.covering(&path)?;
        (covering.id == mount.id).then_some(path)
    })
}

/// Joins two paths without a slash at the end.
fn join(path: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() { path.to_owned() } else { path.join(rest) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{
        super::target_roots::{Holds, TargetRoot},
        *,
    };
    use podstuck_confine::proc::parse_mounts;

    fn node(tables: &[(u32, &str)]) -> NodeMounts {
        let tables = tables.iter().map(|(namespace, text)| {
            (*namespace, Arc::new(parse_mounts(*namespace, text.as_bytes())))
        });
        NodeMounts { tables: tables.collect(), host: Some(1) }
    }

    const HOST: &str = "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
        21 20 8:2 / /data rw - ext4 /dev/sda2 rw\n\
        22 21 0:9 / /data/kubelet/pods/x rw - tmpfs tmpfs rw\n";

    fn paths(views: &Views, view: u32) -> Vec<&Path> {
        let mut paths: Vec<&Path> =
            views.get(&view).into_iter().flatten().map(|(path, _)| path.as_path()).collect();
        paths.sort();
        paths
    }

    #[test]
    fn a_root_is_reached_where_its_directory_is_mounted_and_nowhere_else() {
        let mut roots = TargetRoots::new(None);
        roots.add(TargetRoot::of_host("/var/lib/kubelet", Holds::Pods));
        roots.found(0, "/data/kubelet".into());
        let driver = "30 2 0:50 / / rw - overlay overlay rw\n\
            31 30 8:2 /kubelet /var/lib/kubelet rw - ext4 /dev/sda2 rw\n\
            32 30 8:2 / /disk rw - ext4 /dev/sda2 rw\n\
            33 32 8:2 /other /disk/kubelet rw - ext4 /dev/sda2 rw\n";
        // Another file system at the same path.
        let tenant = "40 3 0:60 / / rw - overlay overlay rw\n\
            41 40 8:2 /kubelet/pods/x/volumes/p/v /data/kubelet rw - ext4 /dev/sda2 rw\n";
        let views = of_node(&roots, &node(&[(1, HOST), (2, driver), (3, tenant)]));
        assert_eq!(paths(&views, HOST_VIEW), ["/data/kubelet", "/var/lib/kubelet"].map(Path::new));
        assert_eq!(paths(&views, 1), ["/data/kubelet", "/var/lib/kubelet"].map(Path::new));
        assert_eq!(paths(&views, 2), [Path::new("/var/lib/kubelet")]);
        assert!(paths(&views, 3).is_empty());
    }

    #[test]
    fn the_root_of_a_nested_kubelet_is_reached_by_its_own_path() {
        let mut roots = TargetRoots::new(None);
        let root = TargetRoot::of_host("/var/lib/kubelet", Holds::Pods);
        roots.add(TargetRoot { seen_by: Some((70, 2)), ..root });
        let nested = "30 2 0:50 / / rw - overlay overlay rw\n\
            31 30 8:1 /volumes/node/_data /var rw - ext4 /dev/sda1 rw\n";
        let views = of_node(&roots, &node(&[(1, HOST), (2, nested)]));
        assert_eq!(paths(&views, 2), [Path::new("/var/lib/kubelet")]);
        assert_eq!(paths(&views, 1), [Path::new("/volumes/node/_data/lib/kubelet")]);
        assert!(paths(&views, HOST_VIEW).is_empty());
    }
}
