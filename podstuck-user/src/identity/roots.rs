//! Where kubelet keeps its pods on this node.

use std::{
    ffi::OsStr,
    fs::File,
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use procfs::process::{Process, all_processes_with_root};

use super::{
    cgroup::{best_path, pod_of_cgroup},
    component::KUBELETS,
    layout::normalise,
};

/// kubelet's own default.
const DEFAULT: &str = "/var/lib/kubelet";
/// Roots that distributions choose without an argument that says so; taken if they hold pods.
const ELSEWHERE: [&str; 4] = [
    // MicroK8s, whose arguments are in a file.
    "/var/snap/microk8s/common/var/lib/kubelet",
    // k0s below its default data directory.
    "/var/lib/k0s/kubelet",
    // k3s before 0.10.
    "/var/lib/rancher/k3s/agent/kubelet",
    // IBM Cloud.
    "/var/data/kubelet",
];

/// Files in `/proc` that are read here are a few kilobytes; a longer one is cut.
const READ_MOST: u64 = 256 * 1024;

/// A path of the node, to be read through the host root.
pub fn under(host_root: &Path, path: &Path) -> PathBuf {
    host_root.join(path.strip_prefix("/").unwrap_or(path))
}

/// kubelet's root directories, as the node names them: the given ones if any, else those that
/// running kubelets were started with, the default, and those of distributions that exist.
pub fn kubelet_roots(host_root: &Path, given: &[PathBuf]) -> Vec<PathBuf> {
    let mut roots = Vec::new();
    if given.is_empty() {
        add_all(&mut roots, running(&under(host_root, Path::new("/proc"))));
        add_all(&mut roots, [PathBuf::from(DEFAULT)]);
        let exists = |root: &PathBuf| under(host_root, root).join("pods").is_dir();
        add_all(&mut roots, ELSEWHERE.map(PathBuf::from).into_iter().filter(exists));
    } else {
        add_all(&mut roots, given.iter().cloned());
    }
    roots
}

fn add_all(roots: &mut Vec<PathBuf>, more: impl IntoIterator<Item = PathBuf>) {
    for root in more {
        let root = normalise(&root);
        if !roots.contains(&root) {
            roots.push(root);
        }
    }
}

/// The roots in the arguments of running kubelets.
fn running(proc: &Path) -> Vec<PathBuf> {
    let processes = match all_processes_with_root(proc) {
        Ok(processes) => processes,
        Err(error) => {
            tracing::debug!("cannot look for running kubelets: {error}");
            return Vec::new();
        }
    };
    // Processes come and go while the list is read.
    processes.flatten().filter_map(|process| root_of(&process)).collect()
}

/// The arguments lie in the memory of the process, and reading them can wait for it. So the name
/// decides first whether they are of interest, then the control group: a container's process may
/// call itself kubelet, but where it keeps its files is of no interest.
fn root_of(process: &Process) -> Option<PathBuf> {
    let comm = read(process, "comm")?;
    if !KUBELETS.contains(&comm.trim_ascii_end()) {
        return None;
    }
    let cgroup = read(process, "cgroup").and_then(|contents| best_path(&contents));
    if cgroup.is_some_and(|path| pod_of_cgroup(&path).is_some()) {
        return None;
    }
    root_dir(&read(process, "cmdline")?)
}

fn read(process: &Process, name: &str) -> Option<Vec<u8>> {
    let file: File = process.open_relative(name).ok()?;
    let mut contents = Vec::new();
    file.take(READ_MOST).read_to_end(&mut contents).ok()?;
    Some(contents)
}

/// The value of `--root-dir` among NUL-terminated arguments, or of what k3s hands on to its
/// kubelet as `--kubelet-arg=root-dir=`. Of several, kubelet takes the last. A relative one is
/// relative to a directory that is not known here.
fn root_dir(cmdline: &[u8]) -> Option<PathBuf> {
    let arguments: Vec<&[u8]> = cmdline.split(|b| *b == 0).collect();
    let mut found = None;
    for (i, argument) in arguments.iter().enumerate() {
        let next = arguments.get(i + 1).copied();
        let value = match *argument {
            b"--root-dir" => next,
            b"--kubelet-arg" => next.and_then(|next| next.strip_prefix(b"root-dir=")),
            _ => argument
                .strip_prefix(b"--root-dir=")
                .or(argument.strip_prefix(b"--kubelet-arg=root-dir=")),
        };
        let path = value.map(|value| Path::new(OsStr::from_bytes(value)));
        found = path.filter(|path| path.is_absolute()).or(found);
    }
    found.map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn process(host: &Path, pid: u32, comm: &str, cgroup: &str, cmdline: &str) {
        let dir = host.join(format!("proc/{pid}"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("comm"), format!("{comm}\n")).unwrap();
        fs::write(dir.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
        fs::write(dir.join("cmdline"), cmdline).unwrap();
    }

    #[test]
    fn the_argument_in_all_its_forms() {
        let table: [(&str, Option<&str>); 9] = [
            ("/usr/bin/kubelet\0--v=2\0--root-dir\0/data/kubelet\0", Some("/data/kubelet")),
            ("kubelet\0--root-dir=/mnt/kubelet\0", Some("/mnt/kubelet")),
            ("kubelet\0--root-dir=/a\0--root-dir=/b\0", Some("/b")),
            ("k3s\0server\0--kubelet-arg=root-dir=/c\0", Some("/c")),
            ("k3s\0server\0--kubelet-arg\0root-dir=/d\0", Some("/d")),
            ("kubelet\0--root-dir=relative\0", None),
            ("kubelet\0--root-dir", None),
            ("kubelet\0--cert-dir=/x\0", None),
            ("", None),
        ];
        for (cmdline, expected) in table {
            let found = root_dir(cmdline.as_bytes());
            assert_eq!(found.as_deref(), expected.map(Path::new), "{cmdline:?}");
        }
    }

    #[test]
    fn given_roots_are_the_only_ones() {
        let given = ["/a/".into(), "/b/./c".into(), "/a".into()];
        let roots = kubelet_roots(Path::new("/nonexistent"), &given);
        assert_eq!(roots, [PathBuf::from("/a"), "/b/c".into()]);
    }

    #[test]
    fn running_kubelets_come_before_the_defaults() {
        let host = tempfile::tempdir().unwrap();
        let uid = "0123456789abcdef0123456789abcdef";
        process(host.path(), 10, "kubelet", "/system.slice/kubelet.service", "kubelet\0--root-dir=/k\0");
        process(host.path(), 11, "kubelet", "/", "kubelet\0--root-dir=/var/lib/kubelet/\0");
        process(host.path(), 12, "kubelet", &format!("/kubepods/pod{uid}"), "kubelet\0--root-dir=/evil\0");
        process(host.path(), 13, "bash", "/", "bash\0--root-dir=/no\0");
        fs::create_dir_all(host.path().join("var/data/kubelet/pods")).unwrap();
        let mut roots = kubelet_roots(host.path(), &[]);
        assert_eq!(roots.pop(), Some("/var/data/kubelet".into()));
        // The order of /proc is that of the directory.
        roots.sort();
        assert_eq!(roots, [PathBuf::from("/k"), "/var/lib/kubelet".into()]);
    }

    #[test]
    fn without_proc_the_default_remains() {
        assert_eq!(kubelet_roots(Path::new("/nonexistent"), &[]), [PathBuf::from(DEFAULT)]);
    }
}
