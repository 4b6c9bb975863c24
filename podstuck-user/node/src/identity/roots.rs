//! kubelet's root directories and log directories on this node.

use std::path::{Path, PathBuf};

use super::{
    component::is_kubelets_name,
    kubelet::{Settings, WRAPPERS},
    runtimes::running_daemons,
};
use podstuck_confine::proc::{COMMAND_LINE, command_line};

/// kubelet's default of `--root-dir`.
pub const USUAL: &str = "/var/lib/kubelet";

/// A path of the node as this process can read it.
pub fn on_host(host_root: &Path, path: &Path) -> PathBuf {
    host_root.join(path.strip_prefix("/").unwrap_or(path))
}

/// The host's path of a path below `host_root`, for reports and for commands that run on the host.
pub(crate) fn from_host(host_root: &Path, path: &Path) -> PathBuf {
    let on_host = path.strip_prefix(host_root).ok();
    on_host.map_or_else(|| path.to_owned(), |below| Path::new("/").join(below))
}

/// kubelet's root directories: those given, else those of running kubelets and the default.
pub fn kubelet_roots(host_root: &Path, given: &[PathBuf]) -> Vec<PathBuf> {
    if !given.is_empty() {
        return given.to_vec();
    }
    let mut roots = running(&on_host(host_root, Path::new("/proc")));
    if !roots.iter().any(|root| root == Path::new(USUAL)) {
        roots.push(USUAL.into());
    }
    roots
}

/// Process ids of running kubelets, and of programs that contain one. Only the node's: any process can have the name.
pub fn running_kubelets(proc: &Path) -> Vec<u32> {
    running_daemons(proc).kubelets
}

/// Whether a name is that of a kubelet, or of a program that contains one.
pub(super) fn is_kubelets(comm: &[u8]) -> bool {
    is_kubelets_name(comm) || WRAPPERS.contains(&comm)
}

fn running(proc: &Path) -> Vec<PathBuf> {
    let daemons = running_daemons(proc);
    let all = daemons.kubelets.into_iter().chain(daemons.supervisors);
    let kubelets = all.filter_map(|pid| {
        let text = command_line(&proc.join(pid.to_string()), COMMAND_LINE).ok()?;
        let words = text.split(|byte| *byte == 0);
        let words: Vec<String> = words.map(|word| String::from_utf8_lossy(word).into()).collect();
        Settings::of(&words)?.root
    });
    let mut roots: Vec<PathBuf> = kubelets.collect();
    roots.sort();
    roots.dedup();
    roots
}

/// Log directories for a kubelet root: the one with the same prefix, and the default.
pub fn log_dirs_for(kubelet_root: &Path) -> Vec<PathBuf> {
    let usual = PathBuf::from("/var/log/pods");
    let text = kubelet_root.to_str().unwrap_or_default();
    match text.strip_suffix("/var/lib/kubelet").filter(|prefix| !prefix.is_empty()) {
        Some(prefix) => vec![Path::new(prefix).join("var/log/pods"), usual],
        None => vec![usual],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_roots_are_used() {
        let given = [PathBuf::from("/mine")];
        assert_eq!(kubelet_roots(Path::new("/"), &given), given);
        assert!(kubelet_roots(Path::new("/"), &[]).contains(&PathBuf::from(USUAL)));
    }

    #[test]
    fn the_host_is_found_below_its_root() {
        assert_eq!(on_host(Path::new("/host"), Path::new("/a")), Path::new("/host/a"));
        assert_eq!(on_host(Path::new("/"), Path::new("/a")), Path::new("/a"));
    }

    #[test]
    fn logs_are_searched_for_under_the_prefix_of_kubelet() {
        let dirs = log_dirs_for(Path::new("/lab/var/lib/kubelet"));
        assert_eq!(dirs, ["/lab/var/log/pods", "/var/log/pods"].map(PathBuf::from));
        assert_eq!(log_dirs_for(Path::new("/var/lib/kubelet")), [PathBuf::from("/var/log/pods")]);
    }
}
