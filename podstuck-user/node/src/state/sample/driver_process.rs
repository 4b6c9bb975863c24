//! A CSI driver's process: whether it can answer, and whether what it unmounts reaches kubelet.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::drivers::{Sight, Volume};
use crate::state::{namespaces, thread::since_boot};
use podstuck_confine::{proc, silent};
use podstuck_model::{
    csi::{DriverProcess, Reach},
    halted::Halted,
    mounted::Mounted,
    mounts::{Mount, Mounts},
    path::safe,
};

/// Threads looked at. A driver in Go has some tens.
const THREADS: usize = 256;

/// A request to a FUSE server, which can be interrupted at first (fs/fuse/dev.c).
const FUSE_WAIT: &str = "request_wait_answer";

/// The process now; `None` when it has ended.
pub(super) fn look(sight: Sight<'_>, pid: u32, volume: Volume<'_>) -> Option<DriverProcess> {
    let (state, ticks) = proc::stat(pid, pid)?;
    let namespace = namespaces::of_process(pid)?;
    let table = |namespace| sight.node.tables.get(&namespace).map(|table| &**table);
    let reach = match (table(volume.namespace), table(namespace), volume.mounted) {
        _ if namespace == volume.namespace => Reach::Whole,
        (Some(kubelets), Some(drivers), Some(mounted)) => reach(kubelets, drivers, mounted),
        _ => Reach::Unknown,
    };
    let waits = || proc::threads(pid).take(THREADS).find_map(|tid| waits(pid, tid));
    let halted = sight.trees.halted(pid, state).or_else(waits);
    let comm = safe(&proc::comm(Path::new(&format!("/proc/{pid}")))).into_owned();
    let started = since_boot(ticks);
    Some(DriverProcess { pid, comm, started, ticks: Some(ticks), reach, halted })
}

/// A thread that waits where no signal reaches it, or for a server: that one is in state S.
fn waits(pid: u32, tid: u32) -> Option<Halted> {
    let (state, _) = proc::stat(pid, tid)?;
    if !matches!(state, 'D' | 'S') {
        return None;
    }
    let place = PathBuf::from(format!("/proc/{pid}/task/{tid}"));
    let channel = silent::read(&place, |place| fs::read(place.join("wchan")).ok())?;
    let channel = safe(&channel).into_owned();
    let waits = state == 'D' || channel == FUSE_WAIT;
    waits.then_some(Halted::Waits { tid, state, channel })
}

/// By the rule of propagation (`propagate_umount` in fs/pnode.c): an unmount goes from the mount that
/// the victim is mounted on to that one's peers and to what receives from them.
fn reach(kubelets: &Mounts, drivers: &Mounts, mounted: &Mounted) -> Reach {
    let parent = |table: &Mounts, mount: &Mount| table.by_id(mount.parent).cloned();
    let Some(below) = kubelets.by_id(mounted.id).and_then(|mount| parent(kubelets, mount)) else {
        return Reach::Unknown;
    };
    let groups = [below.shared, below.master];
    let is_source = |mount: &Mount| mount.shared.is_some() && groups.contains(&mount.shared);
    let same = |mount: &&Mount| {
        let shows_same = mount.device == mounted.device && mount.root == mounted.root;
        shows_same && below_pods(&mount.point) == below_pods(&mounted.point)
    };
    match drivers.all.iter().find(same) {
        Some(copy) => match parent(drivers, copy) {
            Some(on) if is_source(&on) => Reach::Whole,
            // It may reach kubelet's over several others.
            Some(on) if on.shared.is_some() => Reach::Unknown,
            Some(_) => Reach::Cut { mounted: true },
            None => Reach::Unknown,
        },
        None => {
            let Ok(inside) = mounted.point.strip_prefix(&below.point) else {
                return Reach::Unknown;
            };
            let place = below.root.join(inside);
            let shows = |m: &&Mount| m.device == below.device && place.starts_with(&m.root);
            let mut here = drivers.all.iter().filter(shows).peekable();
            let any = here.peek().is_some();
            if any && here.all(|mount| mount.shared.is_none()) {
                Reach::Cut { mounted: false }
            } else {
                Reach::Unknown
            }
        }
    }
}

/// A driver may see kubelet's directory elsewhere: from the pods on, paths agree.
fn below_pods(path: &Path) -> Option<&Path> {
    let mut rest = path.components();
    rest.find(|name| name.as_os_str() == "pods").map(|_| rest.as_path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use podstuck_model::mounts::Device;

    const POD: &str = "/var/lib/kubelet/pods/0f0e0d0c-1111-2222-3333-444455556666";

    fn reach_of(host: &str, driver: &str) -> Reach {
        let point = format!("{POD}/volumes/kubernetes.io~csi/pv/mount");
        let volume = |id: u32, parent: u32, prefix: &str, tags: &str| {
            format!("{id} {parent} 8:16 / {prefix}{point} rw {tags}- ext4 /dev/sdb rw\n")
        };
        let fill = |text: &str| {
            let text = text.replace("VOLUME", &volume(31, 21, "", ""));
            let text = text.replace("COPY", &volume(41, 40, "", ""));
            text.replace("ELSEWHERE", &volume(41, 40, "/host", ""))
        };
        let table = |text: &str| proc::parse_mounts(7, fill(text).as_bytes());
        let mounted = Mounted {
            point: point.clone().into(),
            id: 31,
            what: String::new(),
            is_fuse: false,
            device: Device { major: 8, minor: 16 },
            root: "/".into(),
            shared: false,
            namespace: 1,
            pid: 1,
            source: String::new(),
        };
        reach(&table(host), &table(driver), &mounted)
    }

    #[test]
    fn an_unmount_reaches_kubelet_through_a_shared_mount_only() {
        let host = "21 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\nVOLUME";
        let kubelets = |tags: &str| {
            format!("40 39 8:1 /var/lib/kubelet /var/lib/kubelet rw {tags}- ext4 /dev/sda1 rw\n")
        };
        for (tags, volume, expected) in [
            ("shared:1 ", "COPY", Reach::Whole),
            ("shared:7 master:1 ", "COPY", Reach::Unknown),
            ("master:1 ", "COPY", Reach::Cut { mounted: true }),
            ("", "COPY", Reach::Cut { mounted: true }),
            ("", "", Reach::Cut { mounted: false }),
            ("shared:1 ", "", Reach::Unknown),
        ] {
            assert_eq!(reach_of(host, &(kubelets(tags) + volume)), expected, "{tags}{volume}");
        }
        let elsewhere = "40 39 8:1 / /host rw shared:1 - ext4 /dev/sda1 rw\nELSEWHERE";
        assert_eq!(reach_of(host, elsewhere), Reach::Whole);
        let blind = "40 39 8:1 /var/lib/kubelet/plugins/x /csi rw - ext4 /dev/sda1 rw\n";
        assert_eq!(reach_of(host, blind), Reach::Unknown);
    }

    #[test]
    fn a_process_that_is_stopped_says_so() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
        while proc::stat(child.id(), child.id()).unwrap().0 != 'T' {
            std::thread::yield_now();
        }
        assert_eq!(waits(child.id(), child.id()), None);
        assert!(proc::started(child.id()).is_some());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
