//! Whose mounts count: a volume is mounted when kubelet or the host sees it mounted. Copies in
//! containers do not keep a pod from going.

use std::{fs, os::linux::fs::MetadataExt, path::Path, sync::Arc};

use crate::{
    identity::roots::running_kubelets,
    state::mounts::{self, Mounts},
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

/// The host's view, and those of kubelets that have others; with the kubelets.
pub(super) fn all() -> (Vec<View>, Vec<u32>) {
    let kubelets = running_kubelets(Path::new("/proc"));
    // Where the first process may not be read, the host is what we see ourselves.
    let host = if namespace_of(1).is_some() { 1 } else { std::process::id() };
    let mut views: Vec<View> = Vec::new();
    for pid in [host].into_iter().chain(kubelets.iter().copied()) {
        let Some(namespace) = namespace_of(pid) else { continue };
        if views.iter().any(|view| view.namespace == namespace) {
            continue;
        }
        if let Some(mounts) = mounts::of_namespace(pid, namespace) {
            views.push(View { pid, namespace, mounts: Arc::new(mounts) });
        }
    }
    (views, kubelets)
}

fn namespace_of(pid: u32) -> Option<u32> {
    // Answered by nsfs; it reaches no other file system.
    let metadata = fs::metadata(format!("/proc/{pid}/ns/mnt")).ok()?;
    u32::try_from(metadata.st_ino()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_always_seen() {
        let (views, _) = all();
        let host = views.first().unwrap();
        assert!(host.pid == 1 || host.pid == std::process::id());
        assert!(host.mounts.at(Path::new("/proc")).count() >= 1);
    }
}
