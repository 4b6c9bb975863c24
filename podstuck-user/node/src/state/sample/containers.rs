//! Containers, by what their runtimes keep of them on the disk, and by what is mounted for them.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    layers::{self, mounted_by_docker},
    mounts::MountPoller,
    target_roots::TargetRootFinder,
    views::{self, View, mounts_of},
};
use crate::{
    identity::{
        classify::classify,
        containers::{Container, joined},
        from_host, on_host,
        runtimes::Daemons,
        target_roots::{Holds, TargetRoot},
        uid::is_long_id,
    },
    state::{
        containers::{OnDisk, Read, ReadContainers, Stamp},
        seen_by::shown,
    },
};
use podstuck_confine::{
    alive::{self, Occasion},
    helper::ask_each,
};
use podstuck_model::{
    degraded::Feed,
    identity::{Component, TargetKind},
    mounts::Mounts,
};

/// All of a node.
pub type All = Arc<Vec<Arc<Container>>>;

/// What is below one root.
#[derive(Debug, Default)]
struct Known {
    /// The process as which it is read, and its mount namespace; `None` for the host's.
    seen_by: Option<(u32, u32)>,
    files: HashMap<OsString, (Stamp, Vec<Container>)>,
}

/// The containers of a node, looked at once.
#[derive(Debug, Default)]
pub struct OnNode {
    /// All that were found.
    pub all: All,
    /// Where runtimes keep their things.
    pub looked_in: Vec<PathBuf>,
}

/// By what is kept in these directories, and in those that the host's mounts tell of.
pub fn of_node(host_root: &Path, roots: &[TargetRoot]) -> OnNode {
    let mounts = MountPoller::default().sample();
    let views = views::all(&mounts, &Daemons::default());
    let mounted = TargetRootFinder::default().sample(&[], &views, mounts.host);
    let roots = [roots, &mounted].concat();
    let all = ContainerCollector::default().sample(host_root, &roots, &views);
    let data = roots.into_iter().filter(|root| root.holds != Holds::Pods);
    OnNode { all, looked_in: data.map(|root| root.path).collect() }
}

/// The state that is kept from one sample to the next.
#[derive(Debug, Default)]
pub(super) struct ContainerCollector {
    roots: HashMap<(Option<u32>, PathBuf), Known>,
    tables: Vec<Arc<Mounts>>,
    all: All,
}

impl ContainerCollector {
    /// All that are there now. What could not be read is as it was.
    pub(super) fn sample(&mut self, host_root: &Path, roots: &[TargetRoot], views: &[View]) -> All {
        let has_changed = self.read(host_root, roots, views);
        let is_same = self.tables.len() == views.len()
            && self.tables.iter().zip(views).all(|(old, view)| Arc::ptr_eq(old, &view.mounts));
        if has_changed || !is_same {
            self.tables = views.iter().map(|view| view.mounts.clone()).collect();
            let all = joined(self.containers(host_root));
            if all != *self.all {
                self.all = Arc::new(all);
            }
        }
        self.all.clone()
    }

    /// The container of a bundle in a mount namespace, of which `None` is the host's. What is the host's was read
    /// below its root directory here.
    pub(super) fn of_bundle(
        &self,
        host_root: &Path,
        namespace: Option<u32>,
        bundle: &Path,
    ) -> Option<&Container> {
        let seen = |known: &&Known| known.seen_by.map(|(_, own)| own) == namespace;
        let config = bundle.join("config.json");
        let config = if namespace.is_none() { on_host(host_root, &config) } else { config };
        let mut files = self.roots.values().filter(seen);
        let (_, containers) = files.find_map(|known| known.files.get(config.as_os_str()))?;
        containers.first()
    }

    /// What runtimes of the host have written of their containers' states: the file, as the host has it, and the container.
    pub(super) fn written(&self, host_root: &Path) -> Vec<(PathBuf, &Container)> {
        let of_host = self.roots.values().filter(|known| known.seen_by.is_none());
        let files = of_host.flat_map(|known| &known.files);
        let with_state = files.filter_map(|(file, (_, containers))| {
            let one = containers.first().filter(|it| it.described.state.is_some())?;
            Some((from_host(host_root, Path::new(file)), one))
        });
        let mut found: Vec<_> = with_state.collect();
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        found
    }

    /// Whether something is new, or gone.
    fn read(&mut self, host_root: &Path, roots: &[TargetRoot], views: &[View]) -> bool {
        let mut before = std::mem::take(&mut self.roots);
        let mut wanted: Vec<((Option<u32>, PathBuf), Holds)> = Vec::new();
        let mut dead: HashMap<Option<(u32, u32)>, Option<String>> = HashMap::new();
        for root in roots.iter().filter(|root| root.holds != Holds::Pods) {
            let place = match root.process() {
                Some(pid) => (Some(pid), root.path.clone()),
                None => (None, on_host(host_root, &root.path)),
            };
            if self.roots.contains_key(&place) {
                continue;
            }
            let mut known = before.remove(&place).unwrap_or_default();
            known.seen_by = root.seen_by;
            self.roots.insert(place.clone(), known);
            let table = mounts_of(place.0, views);
            let mount = table.and_then(|table| Some((table.pid, table.covering(&place.1)?.id)));
            // A file system that completes nothing takes a second to say so.
            let why = dead
                .entry(mount)
                .or_insert_with(|| alive::why_not_in(table?, &place.1, Occasion::Unknown));
            match why {
                Some(why) => alive::looked(Feed::Node, &place.1, Some(why)),
                None => wanted.push((place, root.holds)),
            }
        }
        let is_gone = before.values().any(|known| !known.files.is_empty());
        let mut has_changed = is_gone;
        let named = |(pid, path): &(Option<u32>, PathBuf)| (*pid, OsString::from(path));
        let wanted = wanted.into_iter().map(|(place, holds)| {
            let files = self.roots.get(&place).into_iter().flat_map(|known| &known.files);
            let stamp = |(file, (stamp, _)): (&OsString, &(Stamp, _))| Read {
                file: file.into(),
                stamp: *stamp,
            };
            let known = files.map(stamp).collect();
            (place, holds, known)
        });
        let wanted: Vec<(_, Holds, Vec<Read>)> = wanted.collect();
        let question = |left: &[(_, Holds, Vec<Read>)]| ReadContainers {
            roots: left.iter().map(|(place, holds, _)| (named(place), *holds)).collect(),
            known: left.iter().map(|(_, _, known)| known.clone()).collect(),
            parts: Vec::new(),
        };
        ask_each(
            wanted,
            |(place, ..)| shown(&named(place)),
            |((pid, path), ..)| (pid.unwrap_or_else(std::process::id), path.clone()),
            question,
            |(place, ..), answer| {
                let answer = answer.map_err(|why| why.to_string()).flatten();
                let failed = answer.as_ref().err().map(String::as_str);
                alive::looked(Feed::Node, &place.1, failed);
                if let (Ok(found), Some(known)) = (answer, self.roots.get_mut(&place)) {
                    has_changed |= known.take(found);
                }
            },
        );
        has_changed
    }

    fn containers(&self, host_root: &Path) -> Vec<Container> {
        let mut layers: HashMap<PathBuf, PathBuf> = HashMap::new();
        for mount in self.tables.iter().flat_map(|table| &table.all) {
            if let Some(layer) = layers::of_mount(&mount.super_options)
                && mount.fs_type == "overlay"
            {
                layers.entry(mount.point.clone()).or_insert(layer);
            }
        }
        let of_docker: HashMap<(&Path, &OsStr), &PathBuf> = layers
            .iter()
            .filter_map(|(point, layer)| Some((mounted_by_docker(point)?, layer)))
            .collect();
        let mut all = Vec::new();
        for ((_, root), known) in &self.roots {
            let root = from_host(host_root, root);
            for container in known.files.values().flat_map(|(_, containers)| containers) {
                let mut container = container.clone();
                let bundles: Vec<PathBuf> =
                    container.parts.iter().filter(|part| is_bundle(part)).cloned().collect();
                let mounted = bundles
                    .iter()
                    .filter_map(|part| layers.get(&from_host(host_root, part).join("rootfs")));
                container.parts.extend(mounted.cloned());
                if container.runtime == Component::Dockerd {
                    let layer = of_docker.get(&(root.as_path(), container.id.as_ref()));
                    container.parts.extend(layer.copied().cloned());
                }
                if known.seen_by.is_some() {
                    // The same path may lead to something else on the host.
                    container.parts.retain(|part| has_unique_name(part));
                }
                for part in &mut container.parts {
                    *part = from_host(host_root, part);
                }
                all.push(container);
            }
        }
        // One order for all: a table's own is another one each time.
        all.sort_by(|a, b| (&a.id, a.runtime, &a.parts).cmp(&(&b.id, b.runtime, &b.parts)));
        all
    }
}

impl Known {
    fn take(&mut self, found: Vec<OnDisk>) -> bool {
        let mut before = std::mem::take(&mut self.files);
        let mut has_changed = false;
        for OnDisk { file, stamp, containers } in found {
            let known = before.remove(file.as_os_str()).map(|(_, containers)| containers);
            has_changed |= containers.is_some();
            let containers = containers.or(known).unwrap_or_default();
            self.files.insert(file.into(), (stamp, containers));
        }
        has_changed || !before.is_empty()
    }
}

fn is_bundle(part: &Path) -> bool {
    classify(part).kind == TargetKind::ContainerBundle
}

fn has_unique_name(part: &Path) -> bool {
    part.file_name().and_then(OsStr::to_str).is_some_and(|name| is_long_id(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use podstuck_model::mounts::Mount;

    fn mounts(point: &str, options: &str) -> Arc<Mounts> {
        let mount = Mount {
            point: point.into(),
            fs_type: "overlay".into(),
            super_options: options.into(),
            ..Mount::default()
        };
        Arc::new(Mounts { all: vec![mount], ..Mounts::default() })
    }

    /// A root in which there is one container, and where else it says that it has something.
    fn collector(id: &str, seen_by: Option<(u32, u32)>, more: &[&str]) -> ContainerCollector {
        below("/r", id, seen_by, more)
    }

    fn below(
        root: &str,
        id: &str,
        seen_by: Option<(u32, u32)>,
        more: &[&str],
    ) -> ContainerCollector {
        let bundle = format!("{root}/io.containerd.runtime.v2.task/k8s.io/{id}");
        let parts = [bundle.as_str()].iter().chain(more).map(PathBuf::from).collect();
        let one = Container { parts, ..Container::new(id.into(), Component::Containerd) };
        let file = OsString::from(format!("{bundle}/config.json"));
        let files = HashMap::from([(file, (Stamp::default(), vec![one]))]);
        let roots = HashMap::from([((None, root.into()), Known { seen_by, files })]);
        ContainerCollector { roots, ..ContainerCollector::default() }
    }

    #[test]
    fn a_snapshot_belongs_to_the_container_that_it_is_mounted_for() {
        let bundle = Path::new("/r/io.containerd.runtime.v2.task/k8s.io/aa");
        let upper = "rw,lowerdir=/l,upperdir=/c/snapshots/7/fs,workdir=/c/snapshots/7/work";
        let mut collector = collector("aa", None, &[]);
        collector.tables = vec![mounts(bundle.join("rootfs").to_str().unwrap(), upper)];
        let [one] = collector.containers(Path::new("/")).try_into().unwrap();
        assert_eq!(one.parts, [bundle, Path::new("/c/snapshots/7")]);
        let of_bundle = |namespace| collector.of_bundle(Path::new("/"), namespace, bundle);
        assert_eq!(of_bundle(None).map(|it| it.id.as_str()), Some("aa"));
        assert!(of_bundle(Some(7)).is_none());
    }

    #[test]
    fn a_snapshot_that_dockerd_has_mounted_belongs_to_its_container() {
        let id = "a".repeat(64);
        let point = format!("/d/rootfs/overlayfs/{id}");
        let upper = "rw,lowerdir=/l,upperdir=/c/snapshots/7/fs,workdir=/c/snapshots/7/work";
        let parts = |root: &str, runtime, point: &str| {
            let one = Container::new(id.clone(), runtime);
            let file = OsString::from(format!("{root}/containers/{id}/config.v2.json"));
            let files = HashMap::from([(file, (Stamp::default(), vec![one]))]);
            let roots = HashMap::from([((None, root.into()), Known { seen_by: None, files })]);
            let tables = vec![mounts(point, upper)];
            let collector = ContainerCollector { roots, tables, ..ContainerCollector::default() };
            let [one] = collector.containers(Path::new("/host")).try_into().unwrap();
            one.parts
        };
        assert_eq!(parts("/host/d", Component::Dockerd, &point), [Path::new("/c/snapshots/7")]);
        // Another data root, another runtime, another name.
        assert!(parts("/host/e", Component::Dockerd, &point).is_empty());
        assert!(parts("/host/d", Component::CriO, &point).is_empty());
        let other = format!("/d/rootfs/{id}");
        assert!(parts("/host/d", Component::Dockerd, &other).is_empty());
    }

    #[test]
    fn from_a_debug_pod_a_bundle_is_where_the_host_has_it() {
        let bundle = Path::new("/r/io.containerd.runtime.v2.task/k8s.io/aa");
        let host_root = Path::new("/host");
        let upper = "rw,lowerdir=/l,upperdir=/c/snapshots/7/fs,workdir=/c/snapshots/7/work";
        let mut collector = below("/host/r", "aa", None, &[]);
        collector.tables = vec![mounts(bundle.join("rootfs").to_str().unwrap(), upper)];
        let [one] = collector.containers(host_root).try_into().unwrap();
        assert_eq!(one.parts, [bundle, Path::new("/c/snapshots/7")]);
        let of_bundle = collector.of_bundle(host_root, None, bundle);
        assert_eq!(of_bundle.map(|it| it.id.as_str()), Some("aa"));
    }

    #[test]
    fn what_another_node_on_this_machine_calls_so_is_not_the_hosts() {
        let id = "a".repeat(64);
        let collector = collector(&id, Some((1, 7)), &["/v/x"]);
        let [one] = collector.containers(Path::new("/")).try_into().unwrap();
        assert_eq!(one.parts.len(), 1, "{one:?}");
        assert!(collector.of_bundle(Path::new("/"), Some(7), &one.parts[0]).is_some());
    }

    #[test]
    fn what_has_not_changed_stays_and_what_is_gone_goes() {
        let stamp = Stamp::default();
        let of = |file: &str, containers| OnDisk { file: file.into(), stamp, containers };
        let one = Container::new("aa".into(), Component::Containerd);
        let mut known = Known::default();
        assert!(known.take(vec![of("/a", Some(vec![one])), of("/b", Some(Vec::new()))]));
        assert!(!known.take(vec![of("/a", None), of("/b", None)]));
        assert_eq!(known.files[OsStr::new("/a")].1[0].id, "aa");
        assert!(known.take(vec![of("/a", None)]) && known.files.len() == 1);
    }
}
