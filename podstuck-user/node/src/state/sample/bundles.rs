//! Root file systems of containers, as containerd's shims mount them on the host.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use super::{Only, containers::ContainerCollector, views::View};
use crate::identity::{cgroup::container_id, classify::classify};
use podstuck_confine::proc;
use podstuck_model::{
    identity::{Target, TargetKind},
    mounts::{Device, Mount},
    node::LeftRootfs,
};

/// Those whose container has ended, that are of interest.
pub(super) fn sample(
    only: &Only,
    host_root: &Path,
    views: &[View],
    host: Option<u32>,
    containers: &ContainerCollector,
) -> Vec<LeftRootfs> {
    let mut found: Vec<(&View, PathBuf, &Mount)> = Vec::new();
    let mut seen = BTreeSet::new();
    let is_host = |view: &&View| Some(view.namespace) == host;
    let (first, then): (Vec<_>, Vec<_>) = views.iter().partition(is_host);
    for view in first.into_iter().chain(then) {
        let mounted =
            view.mounts.all.iter().filter_map(|mount| Some((bundle(&mount.point)?, mount)));
        // Another kubelet's namespace may have copies, which hold nothing.
        let new = mounted.filter(|(_, mount)| seen.insert((mount.device, &mount.point)));
        found.extend(new.map(|(bundle, mount)| (view, bundle, mount)));
    }
    let states = found.into_iter().filter_map(|(view, bundle, mount)| {
        let apart = Some(view.namespace).filter(|own| Some(*own) != host);
        let known = containers.of_bundle(host_root, apart, &bundle)?;
        let pod = known.described.pod.as_ref().map(|pod| pod.uid.clone()).unwrap_or_default();
        let wanted = match only {
            Only::All => true,
            Only::Pod(uid) => *uid == pod,
            Only::Below(directory) => mount.point.starts_with(directory),
            Only::Container { id, .. } => *id == known.id,
        };
        let state = || left(view, mount, pod, known.init?);
        wanted.then(state).flatten()
    });
    states.collect()
}

/// The bundle whose root file system is mounted there.
fn bundle(point: &Path) -> Option<PathBuf> {
    if point.file_name() != Some(OsStr::new("rootfs")) {
        return None;
    }
    let bundle = point.parent()?;
    (classify(bundle).kind == TargetKind::ContainerBundle).then(|| bundle.to_owned())
}

fn left(view: &View, mount: &Mount, pod: String, init: u32) -> Option<LeftRootfs> {
    let container = mount.point.parent()?.file_name()?.to_str()?.to_owned();
    if is_process_of(init, &container, Some(mount.device)) {
        return None;
    }
    let mount = view.mounted(mount);
    Some(LeftRootfs { target_id: 0, target: Target::unknown().into(), container, pod, mount })
}

/// Whether a process is a container's: its id may have been given again. It is in the container's control group, or
/// sees its root file system as its own: the runtime's client chooses the group's name.
pub(super) fn is_process_of(pid: u32, container: &str, root: Option<Device>) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mut names = groups.lines().flat_map(|line| line.split(['/', ':']));
    if names.any(|name| name == container || container_id(name) == Some(container)) {
        return true;
    }
    let is_own = |mount: &Mount| mount.point == Path::new("/") && Some(mount.device) == root;
    root.is_some() && proc::mounts(pid).is_some_and(|table| table.all.iter().any(is_own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_root_file_system_of_a_bundle_counts() {
        let id = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
        let top = format!("/run/containerd/io.containerd.runtime.v2.task/k8s.io/{id}");
        assert_eq!(bundle(Path::new(&format!("{top}/rootfs"))), Some(top.clone().into()));
        assert_eq!(bundle(Path::new(&format!("{top}/rootfs/tmp"))), None);
        assert_eq!(bundle(Path::new("/srv/rootfs")), None);
    }
}
