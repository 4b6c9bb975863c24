//! Where kubelet keeps its pods on this node.

use std::{
    fs,
    path::{Path, PathBuf},
};

use procfs::process::all_processes_with_root;

use super::{
    cgroup::{best_path, pod_of_cgroup},
    component::KUBELETS,
};

/// kubelet's default of `--root-dir`.
const USUAL: &str = "/var/lib/kubelet";

/// A path of the node, where it can be read from here.
pub fn on_host(host_root: &Path, path: &Path) -> PathBuf {
    host_root.join(path.strip_prefix("/").unwrap_or(path))
}

/// kubelet's root directories: those given, else those of running kubelets, else the usual one.
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

fn running(proc: &Path) -> Vec<PathBuf> {
    let processes = all_processes_with_root(proc).into_iter().flatten().flatten();
    // The name first: reading a command line takes the process's memory lock, which a process in
    // trouble may hold for ever. And not a container's: it may call itself as it likes.
    let kubelets = processes.filter(|process| {
        let named = process.stat().is_ok_and(|s| KUBELETS.contains(&s.comm.as_bytes()));
        named && !in_pod(&proc.join(process.pid.to_string()))
    });
    let mut roots: Vec<PathBuf> =
        kubelets.filter_map(|process| root_dir(&process.cmdline().ok()?)).collect();
    roots.sort();
    roots.dedup();
    roots
}

fn in_pod(process: &Path) -> bool {
    let contents = fs::read(process.join("cgroup")).unwrap_or_default();
    best_path(&contents).is_some_and(|path| pod_of_cgroup(&path).is_some())
}

/// `--root-dir` of a kubelet's command line.
fn root_dir(words: &[String]) -> Option<PathBuf> {
    let program = Path::new(words.first()?).file_name()?;
    if !KUBELETS.contains(&program.as_encoded_bytes()) {
        return None;
    }
    let flag = |word: &String| word.trim_start_matches('-').to_owned();
    words.iter().enumerate().find_map(|(i, word)| match flag(word).strip_prefix("root-dir") {
        Some("") => words.get(i + 1).map(PathBuf::from),
        Some(rest) => rest.strip_prefix('=').map(PathBuf::from),
        None => None,
    })
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
