//! Of all mounts those that a device may be kept busy by: a recording, and a comparison of two looks, need
//! not carry the thousands of others.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::Arc,
};

use podstuck_model::{
    file_system::has_server,
    mounts::{Mount, Mounts, NodeMounts},
};

/// What was picked out of each table, as long as the table is the same.
#[derive(Debug, Default)]
pub(super) struct DeviceMounts {
    /// By namespace: the whole table, and what was picked. As many as there are namespaces.
    picked: HashMap<u32, (Arc<Mounts>, Arc<Mounts>)>,
}

impl DeviceMounts {
    /// Mounts of file systems on block devices or behind a server, and what is mounted at the same places.
    pub(super) fn of(&mut self, node: &NodeMounts) -> NodeMounts {
        self.picked.retain(|namespace, _| node.tables.contains_key(namespace));
        for (namespace, table) in &node.tables {
            let known = self.picked.get(namespace);
            if !known.is_some_and(|(whole, _)| Arc::ptr_eq(whole, table)) {
                let picked = Arc::new(pick(table));
                // The same `Arc` where none of these mounts has changed.
                let picked = match known {
                    Some((_, before)) if *before == picked => before.clone(),
                    _ => picked,
                };
                self.picked.insert(*namespace, (table.clone(), picked));
            }
        }
        let tables =
            self.picked.iter().map(|(namespace, (_, picked))| (*namespace, picked.clone()));
        NodeMounts { tables: tables.collect(), host: node.host }
    }
}

fn pick(table: &Mounts) -> Mounts {
    let counts = |mount: &&Mount| mount.device.major != 0 || has_server(&mount.fs_type);
    let on_device = table.all.iter().filter(counts);
    let places: HashSet<&Path> = on_device.map(|mount| mount.point.as_path()).collect();
    let all = table.all.iter().filter(|mount| places.contains(mount.point.as_path()));
    Mounts { all: all.cloned().collect(), source: table.source.clone(), pid: table.pid }
}

#[cfg(test)]
mod tests {
    use super::*;
    use podstuck_confine::proc::parse_mounts;

    fn node(text: &str) -> NodeMounts {
        let tables = [(1, Arc::new(parse_mounts(7, text.as_bytes())))].into();
        NodeMounts { tables, host: Some(1) }
    }

    #[test]
    fn what_covers_a_device_stays_and_the_rest_goes() {
        let disk = "2 1 8:1 / /v rw - ext4 /dev/a rw\n3 2 0:9 / /v rw - tmpfs t rw\n";
        let mut mounts = DeviceMounts::default();
        let first = mounts.of(&node(&format!("{disk}4 1 0:10 / /x rw - tmpfs t rw\n")));
        assert_eq!(first.tables[&1].all.iter().map(|m| m.id).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(first.host, Some(1));
        let other = mounts.of(&node(&format!("{disk}5 1 0:11 / /y rw - tmpfs t rw\n")));
        assert!(Arc::ptr_eq(&first.tables[&1], &other.tables[&1]), "nothing of it has changed");
        assert!(mounts.of(&NodeMounts::default()).tables.is_empty());
    }
}
