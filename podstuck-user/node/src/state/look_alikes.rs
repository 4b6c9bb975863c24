//! Finds mounts with paths like those of pods that are in no `pods` directory: a process that may mount can do so
//! anywhere. By mount tables alone.

use std::path::{Path, PathBuf};

use super::mounts;
use crate::identity::classify::kubelet_root_of;
use podstuck_model::mounts::{Device, Mount, Mounts, NodeMounts};

/// Such a mount.
#[derive(Debug, PartialEq, Eq)]
pub struct LookAlike {
    /// Where it is mounted.
    pub point: PathBuf,
    /// The mount namespace, and a process in it.
    pub namespace: u32,
    /// That process.
    pub pid: u32,
}

/// All on the node, given the directories that hold pods, each as a process sees it, or as the host's first one does.
pub fn of_node(roots: &[(Option<u32>, PathBuf)]) -> Vec<LookAlike> {
    all(&mounts::read_all(), roots)
}

fn all(node: &NodeMounts, roots: &[(Option<u32>, PathBuf)]) -> Vec<LookAlike> {
    let host = node.host.and_then(|host| node.tables.get(&host));
    let table = |pid: Option<u32>| match pid {
        Some(pid) => node
            .tables
            .values()
            .find(|table| table.pid == pid)
            .cloned()
            .or_else(|| podstuck_confine::proc::mounts(pid).map(std::sync::Arc::new)),
        None => host.cloned(),
    };
    let places = roots.iter().filter_map(|(pid, root)| table(*pid)?.place(root));
    let places: Vec<(Device, PathBuf)> = places.collect();
    let found = node.all().filter(|(_, table, mount)| {
        kubelet_root_of(&mount.point).is_some() && !is_proven(table, mount, &places)
    });
    let found = found.map(|(namespace, table, mount)| LookAlike {
        point: mount.point.clone(),
        namespace,
        pid: table.pid,
    });
    found.collect()
}

/// Whether it, or a mount that it is mounted on, is a part of such a directory or mounted in one.
fn is_proven(table: &Mounts, mount: &Mount, places: &[(Device, PathBuf)]) -> bool {
    let lies_in = |device: Device, path: &Path| {
        places.iter().any(|(own, root)| *own == device && path.starts_with(root))
    };
    let mut mount = mount;
    // No table has more steps than mounts, and one may be read while it changes.
    for _ in 0..table.all.len() {
        if lies_in(mount.device, &mount.root) {
            return true;
        }
        let Some(parent) = table.by_id(mount.parent) else { return false };
        let Ok(below) = mount.point.strip_prefix(&parent.point) else { return false };
        if lies_in(parent.device, &parent.root.join(below)) {
            return true;
        }
        mount = parent;
    }
    false
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use super::*;
    use podstuck_confine::proc::parse_mounts;

    const UID: &str = "0f0e0d0c-1111-4222-8333-444455556666";

    fn node(host: &str, container: &str) -> NodeMounts {
        let table = |pid, text: &str| {
            let text = text.replace("UID", UID);
            Arc::new(parse_mounts(pid, text.as_bytes()))
        };
        let tables = BTreeMap::from([(10, table(1, host)), (20, table(77, container))]);
        NodeMounts { tables, host: Some(10) }
    }

    fn points(node: &NodeMounts) -> Vec<(String, u32, u32)> {
        let roots = [(None, PathBuf::from("/var/lib/kubelet/pods"))];
        let all = all(node, &roots).into_iter();
        all.map(|it| (it.point.display().to_string().replace(UID, "UID"), it.namespace, it.pid))
            .collect()
    }

    #[test]
    fn what_is_mounted_in_the_directory_of_pods_is_none_wherever_that_is_seen() {
        let host = "1 0 8:1 / / rw - ext4 a rw\n\
            2 1 0:9 / /var/lib/kubelet/pods/UID/volumes/p/v rw - tmpfs t rw\n\
            3 2 0:8 / /var/lib/kubelet/pods/UID/volumes/p/v/pods/UID/volumes/p/w rw - tmpfs t rw\n";
        let container = "4 0 0:40 / / rw - overlay o rw\n\
            5 4 8:1 /var/lib/kubelet /host/var/lib/kubelet rw - ext4 a rw\n\
            6 5 0:9 / /host/var/lib/kubelet/pods/UID/volumes/p/v rw - tmpfs t rw\n\
            7 4 8:1 /var/lib/kubelet/pods/UID/volumes/p/u /pods/UID/volumes/p/u rw - ext4 a rw\n";
        assert_eq!(points(&node(host, container)), []);
    }

    #[test]
    fn what_only_reads_so_is_named_with_its_namespace() {
        let host = "1 0 8:1 / / rw - ext4 a rw\n\
            2 1 8:1 /srv /srv/pods/UID/volumes/p/v rw - ext4 a rw\n";
        let container = "4 0 0:40 / / rw - overlay o rw\n\
            5 4 0:41 / /var/lib/kubelet/pods/UID/volumes/p/v rw - tmpfs t rw\n";
        let found = points(&node(host, container));
        assert_eq!(
            found,
            [
                ("/srv/pods/UID/volumes/p/v".into(), 10, 1),
                ("/var/lib/kubelet/pods/UID/volumes/p/v".into(), 20, 77)
            ]
        );
    }
}
