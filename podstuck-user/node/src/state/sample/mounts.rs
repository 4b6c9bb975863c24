//! The mount tables of all namespaces, again and again, and cheaply: a table is taken apart only
//! when its text has changed.
//!
//! The kernel reports a change to a process that polls an open table, but an open one keeps its namespace
//! alive, and with it every mount, device and network file system of a container that has ended.
//! So only the tables of our own namespace and of the first process's, which do not end before us,
//! are kept open and polled; the others are read each time.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::{Read, Seek},
    os::fd::AsFd,
    sync::Arc,
};

use rustix::event::{PollFd, PollFlags, poll};

use crate::state::{mounts, namespaces};
use podstuck_confine::proc::{Looks, mount_table, parse_mounts, processes};
use podstuck_model::mounts::{Mounts, NodeMounts};

/// Reads mount tables, and remembers those that have not changed.
#[derive(Default)]
pub(super) struct MountPoller {
    /// Our own namespace and the first process's.
    open: HashMap<u32, Polled>,
    /// Those that have a process.
    read: HashMap<u32, Known>,
    /// The namespaces of processes.
    namespaces: Looks<Option<u32>>,
}

/// A table that is polled.
struct Polled {
    file: File,
    table: Arc<Mounts>,
}

/// A table that is read each time.
struct Known {
    text: Vec<u8>,
    table: Arc<Mounts>,
}

impl MountPoller {
    /// The tables as they are now.
    pub(super) fn sample(&mut self) -> NodeMounts {
        let mut tables = HashMap::new();
        let own = std::process::id();
        for (namespace, pids) in self.with_processes() {
            let lasting = pids.iter().find(|pid| **pid == 1 || **pid == own);
            let table = match lasting {
                Some(pid) => self.polled(namespace, *pid),
                None => None,
            };
            if let Some(table) = table.or_else(|| self.compared(namespace, &pids)) {
                tables.insert(namespace, table);
            }
        }
        self.read.retain(|namespace, _| tables.contains_key(namespace));
        mounts::of_node(tables.into_iter().collect())
    }

    /// Every mount namespace that a process is in, with its processes. Some may have left it since an earlier look.
    fn with_processes(&mut self) -> BTreeMap<u32, Vec<u32>> {
        let mut all: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (pid, namespace) in self.namespaces.look(processes(), namespaces::of_process) {
            if let Some(namespace) = namespace {
                all.entry(*namespace).or_default().push(pid);
            }
        }
        all
    }

    fn polled(&mut self, namespace: u32, pid: u32) -> Option<Arc<Mounts>> {
        if let Some(mut polled) = self.open.remove(&namespace) {
            if polled.has_changed() {
                // A change is reported only once: where the table cannot be read, it is opened again.
                polled.table = Arc::new(parse_mounts(pid, &text_of(&mut polled.file)?));
            }
            let table = polled.table.clone();
            self.open.insert(namespace, polled);
            return Some(table);
        }
        let mut file = File::open(mount_table(pid)).ok()?;
        let table = Arc::new(parse_mounts(pid, &text_of(&mut file)?));
        self.open.insert(namespace, Polled { file, table: table.clone() });
        Some(table)
    }

    fn compared(&mut self, namespace: u32, pids: &[u32]) -> Option<Arc<Mounts>> {
        let is_in = |pid: &&u32| namespaces::of_process(**pid) == Some(namespace);
        let mut inside = pids.iter().filter(is_in);
        let (pid, text) = inside.find_map(|pid| Some((*pid, fs::read(mount_table(*pid)).ok()?)))?;
        if let Some(known) = self.read.get(&namespace)
            && known.text == text
            && known.table.pid == pid
        {
            return Some(known.table.clone());
        }
        let table = Arc::new(parse_mounts(pid, &text));
        self.read.insert(namespace, Known { text, table: table.clone() });
        Some(table)
    }
}

impl Polled {
    /// Whether the namespace has changed since it was last asked or opened (`mounts_poll` in
    /// fs/proc_namespace.c).
    fn has_changed(&self) -> bool {
        let mut ask = [PollFd::from_borrowed_fd(self.file.as_fd(), PollFlags::PRI)];
        let now = rustix::event::Timespec::default();
        // Unsure is changed.
        poll(&mut ask, Some(&now)).map_or(true, |ready| ready > 0)
    }
}

fn text_of(file: &mut File) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    file.rewind().ok()?;
    file.read_to_end(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It has left a namespace in which the poller has found it.
    #[test]
    fn the_table_of_a_process_that_has_left_is_not_taken_for_the_namespaces() {
        let mut poller = MountPoller::default();
        let own = std::process::id();
        assert!(poller.compared(namespaces::of_process(own).unwrap(), &[own]).is_some());
        assert!(poller.compared(1, &[own]).is_none());
    }

    #[test]
    fn what_has_not_changed_is_the_same() {
        let mut poller = MountPoller::default();
        let own = namespaces::of_process(std::process::id()).unwrap();
        let (first, second) = (poller.sample(), poller.sample());
        assert!(!first.tables[&own].all.is_empty());
        // They differ if another process mounts something meanwhile.
        let (first, second) = (&first.tables[&own], &second.tables[&own]);
        assert!(Arc::ptr_eq(first, second) || first != second);
    }
}
