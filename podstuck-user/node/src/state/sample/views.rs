//! Whose mounts count: a volume is mounted when kubelet or the host sees it mounted. Copies in
//! containers do not keep a pod from going.

use std::{cmp::Reverse, fs, sync::Arc};

use crate::{
    identity::runtimes::Daemons,
    state::{namespaces, thread::since_boot},
};
use podstuck_confine::proc;
use podstuck_model::{
    mounted::Mounted,
    mounts::{Mount, Mounts, NodeMounts},
    time::Monotonic,
};

/// A mount namespace in which kubelet runs, or the host's.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// A process in it.
    pub(super) pid: u32,
    /// Its inode number.
    pub(super) namespace: u32,
    /// What is mounted there.
    pub(super) mounts: Arc<Mounts>,
}

impl View {
    /// A mount as it is seen here.
    pub(super) fn mounted(&self, mount: &Mount) -> Mounted {
        Mounted::of(mount, (self.pid, self.namespace), self.mounts.source.clone())
    }
}

/// The host's view first, then those of kubelets that have others, of services first.
pub(super) fn all(node: &NodeMounts, daemons: &Daemons) -> Vec<View> {
    let mut views: Vec<View> = Vec::new();
    let mut add = |pid: u32, namespace: Option<u32>| {
        let Some(namespace) = namespace else { return };
        if views.iter().any(|view| view.namespace == namespace) {
            return;
        }
        if let Some(mounts) = node.tables.get(&namespace) {
            views.push(View { pid, namespace, mounts: mounts.clone() });
        }
    };
    // The first process outlives all others, if it lets us look.
    let lets_us_look = fs::metadata("/proc/1/root/.").is_ok();
    let first = node.host.filter(|_| lets_us_look).or_else(|| namespaces::of_process(1));
    add(1, first);
    // Else a process that is known to be in the same namespace. A kubelet's own namespace may have copies of the host's
    // mounts: to unmount one of those releases nothing, and a lab's kubelet ends before the answer is read.
    let host = node.host.and_then(|host| node.tables.get(&host));
    add(host.map_or(1, |table| table.pid), node.host);
    // Of equals, the process that has run longest is the node's own: a lab's kubelet sees its volumes, too.
    let mut kubelets = daemons.kubelets.clone();
    kubelets.sort_by_key(|pid| {
        (Reverse(daemons.belief(*pid)), proc::started(*pid).unwrap_or(u64::MAX), *pid)
    });
    for pid in kubelets {
        add(pid, namespaces::of_process(pid));
    }
    views
}

/// The mounts by which a place is reached, where they are known: as that process sees them, or as we do.
pub(super) fn mounts_of(pid: Option<u32>, views: &[View]) -> Option<&Mounts> {
    let own = || namespaces::of_process(std::process::id());
    let view = match pid {
        Some(pid) => views.iter().find(|view| view.pid == pid),
        None => own().and_then(|own| views.iter().find(|view| view.namespace == own)),
    };
    view.map(|view| &*view.mounts)
}

/// When the last of these processes was started.
pub(super) fn since(pids: &[u32]) -> Option<Monotonic> {
    pids.iter().filter_map(|pid| proc::started(*pid)).max().map(since_boot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_always_seen() {
        let views = all(&crate::state::mounts::read_all(), &Daemons::default());
        assert!(views.iter().any(|view| !view.mounts.all.is_empty()));
    }
}
