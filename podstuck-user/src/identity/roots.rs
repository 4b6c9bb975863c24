//! Where kubelet keeps its pods on this node.

use std::{
    fs,
    path::{Path, PathBuf},
};

use procfs::process::Process;

use super::{
    cgroup::{best_path, pod_of_cgroup},
    component::KUBELETS,
};
use crate::proc::{comm, processes_in};

/// Programs that run a kubelet within themselves or start one, under names other than its own.
const WRAPPERS: [&[u8]; 2] = [b"k3s", b"rke2"];
/// kubelet's default of `--root-dir`.
const USUAL: &str = "/var/lib/kubelet";

/// A path of the node, where it can be read from here.
pub(crate) fn on_host(host_root: &Path, path: &Path) -> PathBuf {
    host_root.join(path.strip_prefix("/").unwrap_or(path))
}

/// kubelet's root directories: those given, else those of running kubelets, else the usual one.
pub(crate) fn kubelet_roots(host_root: &Path, given: &[PathBuf]) -> Vec<PathBuf> {
    if !given.is_empty() {
        return given.to_vec();
    }
    let mut roots = running(&on_host(host_root, Path::new("/proc")));
    if !roots.iter().any(|root| root == Path::new(USUAL)) {
        roots.push(USUAL.into());
    }
    roots
}

/// Running kubelets, and programs that contain one. Their names are read first: reading a command
/// line takes the process's memory lock, which a process in trouble may hold for ever. And none in a
/// container: it may call itself as it likes.
pub(crate) fn running_kubelets(proc: &Path) -> Vec<u32> {
    let mut pids = processes_in(proc);
    pids.retain(|pid| {
        let process = proc.join(pid.to_string());
        let comm = comm(&process);
        let is_known = |names: &[&[u8]]| names.contains(&comm.as_slice());
        (is_known(&KUBELETS) || is_known(&WRAPPERS)) && !in_pod(&process)
    });
    pids
}

fn running(proc: &Path) -> Vec<PathBuf> {
    let kubelets = running_kubelets(proc).into_iter().filter_map(|pid| {
        let process = Process::new_with_root(proc.join(pid.to_string())).ok()?;
        root_dir(&process.cmdline().ok()?)
    });
    let mut roots: Vec<PathBuf> = kubelets.collect();
    roots.sort();
    roots.dedup();
    roots
}

fn in_pod(process: &Path) -> bool {
    let contents = fs::read(process.join("cgroup")).unwrap_or_default();
    best_path(&contents).is_some_and(|path| pod_of_cgroup(&path).is_some())
}

/// kubelet's `--root-dir` in the command line of a kubelet, or of a program that hands its own
/// `--kubelet-arg` on to the kubelet in it.
fn root_dir(words: &[String]) -> Option<PathBuf> {
    let program = Path::new(words.first()?).file_name()?.as_encoded_bytes();
    if !KUBELETS.contains(&program) && !WRAPPERS.contains(&program) {
        return None;
    }
    // As in `--flag value` and `--flag=value`; one dash is as good as two.
    let values = |flag: &'static str| {
        words.iter().enumerate().filter_map(move |(i, word)| {
            match word.trim_start_matches('-').strip_prefix(flag)? {
                "" => words.get(i + 1).map(String::as_str),
                rest => rest.strip_prefix('='),
            }
        })
    };
    let handed_on = values("kubelet-arg").filter_map(|arg| arg.strip_prefix("root-dir="));
    values("root-dir").chain(handed_on).last().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_read_from_both_forms_of_the_flag() {
        let words = |text: &str| text.split(' ').map(String::from).collect::<Vec<_>>();
        let of = |text: &str| root_dir(&words(text));
        assert_eq!(of("/usr/bin/kubelet --v=2 --root-dir=/data/k"), Some("/data/k".into()));
        assert_eq!(of("kubelet --root-dir /data/k"), Some("/data/k".into()));
        assert_eq!(of("kubelet --v=2"), None);
        assert_eq!(of("vim --root-dir=/data/k"), None);
        let k3s = "/usr/local/bin/k3s server --kubelet-arg=v=2 --kubelet-arg=root-dir=/data/k";
        assert_eq!(of(k3s), Some("/data/k".into()));
        assert_eq!(of("k3s-agent --kubelet-arg root-dir=/data/k"), Some("/data/k".into()));
        assert_eq!(of("rke2 agent --kubelet-arg=root-dir=/data/k"), Some("/data/k".into()));
        assert_eq!(of("k3s agent --kubelet-arg=cgroup-root=/x"), None);
    }

    #[test]
    fn what_is_given_is_taken() {
        let given = [PathBuf::from("/mine")];
        assert_eq!(kubelet_roots(Path::new("/"), &given), given);
        assert!(kubelet_roots(Path::new("/"), &[]).contains(&PathBuf::from(USUAL)));
    }

    #[test]
    fn the_host_is_found_below_its_root() {
        assert_eq!(on_host(Path::new("/host"), Path::new("/a")), Path::new("/host/a"));
        assert_eq!(on_host(Path::new("/"), Path::new("/a")), Path::new("/a"));
    }
}
