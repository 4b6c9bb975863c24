//! Root file systems of containers, as containerd's shims mount them on the host.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use super::{Only, views::View};
use crate::{
    identity::{cgroup::container_id, classify::classify},
    model::{
        identity::{Target, TargetKind},
        mounts::Mount,
        node::LeftRootfs,
    },
    state::{
        bundles::{Bundle, ReadBundles},
        helper, namespaces,
    },
};

/// What is kept from one look to the next.
#[derive(Debug, Default)]
pub(super) struct BundleCollector {
    /// What a bundle says never changes; those that are still mounted.
    known: BTreeMap<(u32, PathBuf), Bundle>,
}

impl BundleCollector {
    /// Those whose container has ended, of pods that are of interest.
    pub(super) fn sample(
        &mut self,
        only: &Only,
        views: &[View],
        host: Option<u32>,
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
        self.learn(&found);
        let states = found.into_iter().filter_map(|(view, bundle, mount)| {
            let known = self.known.get(&(view.namespace, bundle))?;
            let pod = known.pod.clone()?;
            let wanted = match only {
                Only::All => true,
                Only::Pod(uid) => *uid == pod,
                Only::Below(directory) => mount.point.starts_with(directory),
            };
            let state = || left(view, mount, pod, known.init?);
            wanted.then(state).flatten()
        });
        states.collect()
    }

    /// Reads those that are new, and forgets those that are gone.
    fn learn(&mut self, found: &[(&View, PathBuf, &Mount)]) {
        let key = |(view, bundle, _): &(&View, PathBuf, &Mount)| (view.namespace, bundle.clone());
        let all: BTreeMap<(u32, PathBuf), u32> =
            found.iter().map(|one| (key(one), one.0.pid)).collect();
        self.known.retain(|key, _| all.contains_key(key));
        let new: Vec<_> = all.iter().filter(|(key, _)| !self.known.contains_key(*key)).collect();
        if new.is_empty() {
            return;
        }
        // Where the view is our own, no other process is needed to look.
        let ours = namespaces::of_process(std::process::id());
        let through = |namespace: u32, pid: u32| (ours != Some(namespace)).then_some(pid);
        let place = |((namespace, path), pid): &(&(u32, PathBuf), &u32)| {
            (through(*namespace, **pid), path.into())
        };
        let bundles = new.iter().map(place).collect();
        match helper::ask(ReadBundles { bundles }) {
            Ok(answers) => {
                let keys: Vec<_> = new.into_iter().map(|(key, _)| key.clone()).collect();
                // One that is being made says nothing yet.
                let whole = keys.into_iter().zip(answers).filter(|(_, told)| told.init.is_some());
                self.known.extend(whole);
            }
            Err(error) => tracing::info!("the runtimes' bundles were not read: {error}"),
        }
    }
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
    if is_process_of(init, &container) {
        return None;
    }
    let mount = view.mounted(mount);
    Some(LeftRootfs { target_id: 0, target: Target::unknown().into(), container, pod, mount })
}

/// Whether a process is in the control group of a container: its id may have been given again.
fn is_process_of(pid: u32, container: &str) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mut names = groups.lines().flat_map(|line| line.split(['/', ':']));
    names.any(|name| container_id(name) == Some(container))
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
