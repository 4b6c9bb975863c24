//! Which directories of this node hold targets, as far as that is known before the run begins.

use std::path::{Path, PathBuf};

use podstuck_node::{
    identity::{
        data_roots, on_host,
        roots::running_kubelets,
        runtimes::running_daemons,
        target_roots::{Holds, TargetRoot, TargetRoots},
    },
    state::{kubelet::Kubelet, namespaces, runtime, show_roots::resolve},
};

/// kubelets' roots, those of kubelets apart, where runtimes keep their data, and the only wanted directory. And
/// the process ids of runtimes that did not answer, or not all.
pub(crate) fn known_roots(
    host_root: &Path,
    kubelet_roots: &[PathBuf],
    apart: Vec<TargetRoot>,
    wanted: Option<&Path>,
) -> (TargetRoots, Vec<u32>) {
    // A directory that was named may be a kubelet's root that nobody knows of.
    let named = wanted.filter(|path| resolve(host_root, &path.join("pods")).is_some());
    let named = named.map(|path| TargetRoot::of_host(path, Holds::Pods));
    let (runtimes, silent) = runtimes(host_root);
    let mut known = TargetRoots::new(wanted.map(Path::to_owned));
    for root in data_roots::usual(kubelet_roots).chain(apart).chain(runtimes).chain(named) {
        known.add(root);
    }
    (known, silent)
}

/// The roots of kubelets that see other mounts than the host; and all as we see them, where we see others and
/// whoever named one meant that.
pub(crate) fn apart(host_root: &Path, kubelets: &[Kubelet], roots: &[PathBuf]) -> Vec<TargetRoot> {
    let host = namespaces::of_process(1).or(namespaces::of_process(std::process::id()));
    let mut apart = Vec::new();
    for pid in running_kubelets(&on_host(host_root, Path::new("/proc"))) {
        let Some(own) = namespaces::of_process(pid).filter(|own| Some(*own) != host) else {
            continue;
        };
        let told = kubelets.iter().find(|kubelet| kubelet.pid == pid);
        let told = told.and_then(|kubelet| kubelet.settings.root.as_ref());
        let roots = told.map_or(roots, std::slice::from_ref);
        let seen_by = |root| TargetRoot::of_host(root, Holds::Pods).seen_by(pid, own);
        apart.extend(roots.iter().map(seen_by));
    }
    if let Some(own) = namespaces::own_apart().filter(|_| host_root == "/") {
        let seen_by =
            |root| TargetRoot::of_host(root, Holds::Pods).seen_by(std::process::id(), own);
        apart.extend(roots.iter().map(seen_by));
    }
    apart
}

/// Where running runtimes were told to keep their things, and which of them did not say all of it.
fn runtimes(host_root: &Path) -> (Vec<TargetRoot>, Vec<u32>) {
    let (mut roots, mut silent) = (Vec::new(), Vec::new());
    for (pid, component) in running_daemons(&on_host(host_root, Path::new("/proc"))).runtimes {
        match runtime::told(host_root, pid, component) {
            Some(told) => {
                roots.extend(data_roots::of_runtime(component, &told));
                silent.extend(told.unread.is_some().then_some(pid));
            }
            None => silent.push(pid),
        }
    }
    roots.extend(runtime::storage(host_root));
    (roots, silent)
}
