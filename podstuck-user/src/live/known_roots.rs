//! The directories of this node that hold targets, where they are known before the run begins.

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

/// kubelets' roots, those of kubelets in other namespaces, the runtimes' data directories, and the only wanted
/// directory. And the process ids of runtimes that did not answer, or not completely.
pub(crate) fn known_roots(
    host_root: &Path,
    kubelet_roots: &[PathBuf],
    apart: Vec<TargetRoot>,
    wanted: Option<&Path>,
) -> (TargetRoots, Vec<u32>) {
    // A directory given on the command line may be the root of an unknown kubelet.
    let named = wanted.filter(|path| resolve(host_root, &path.join("pods")).is_some());
    let named = named.map(|path| TargetRoot::of_host(path, Holds::Pods));
    let (runtimes, silent) = runtimes(host_root);
    let mut known = TargetRoots::new(wanted.map(Path::to_owned));
    for root in data_roots::usual(kubelet_roots).chain(apart).chain(runtimes).chain(named) {
        known.add(root);
    }
    (known, silent)
}

/// The roots of kubelets that see other mounts than the host; and all roots as this process sees them, if it sees
/// other mounts and no host root was given.
pub(crate) fn apart(host_root: &Path, kubelets: &[Kubelet], roots: &[PathBuf]) -> Vec<TargetRoot> {
    let host = namespaces::of_process(1).or(namespaces::of_process(std::process::id()));
    let mut apart = Vec::new();
    for pid in running_kubelets(&on_host(host_root, Path::new("/proc"))) {
        let Some(own) = namespaces::of_process(pid).filter(|own| Some(*own) != host) else {
            continue;
        };
        let root = kubelets.iter().find(|kubelet| kubelet.pid == pid);
        let root = root.and_then(|kubelet| kubelet.settings.root.as_ref());
        let roots = root.map_or(roots, std::slice::from_ref);
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

/// The configured directories of running runtimes, and the process ids of those whose settings are incomplete.
fn runtimes(host_root: &Path) -> (Vec<TargetRoot>, Vec<u32>) {
    let (mut roots, mut silent) = (Vec::new(), Vec::new());
    for (pid, component) in running_daemons(&on_host(host_root, Path::new("/proc"))).runtimes {
        match runtime::settings(host_root, pid, component) {
            Some(settings) => {
                roots.extend(data_roots::of_runtime(component, &settings));
                silent.extend(settings.unread.is_some().then_some(pid));
            }
            None => silent.push(pid),
        }
    }
    roots.extend(runtime::storage(host_root));
    (roots, silent)
}
