//! Pods as kubelet left them on the disk, joined with what is mounted and who is left.

use std::{
    collections::{BTreeMap, HashSet},
    ffi::OsString,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use super::{
    Only, Places,
    hierarchies::Hierarchies,
    pod_mounts::{Elsewhere, by_pod},
    views::View,
};
use crate::{
    identity::{classify::kubelet_root_of, on_host},
    model::{
        identity::Target,
        mounts::NodeMounts,
        node::{CsiState, Mounted, PodState, Registration, VolumeData, VolumeState},
    },
    state::{
        helper,
        pod_dirs::{PodOnDisk, ReadPods, RootOnDisk},
        sockets,
    },
};

/// What is kept from one look to the next.
#[derive(Debug, Default)]
pub(super) struct PodCollector {
    /// By root. What was read last is believed while the disk does not answer.
    roots: BTreeMap<PathBuf, RootOnDisk>,
}

impl PodCollector {
    /// All pods now, by what these views show.
    pub(super) fn sample(
        &mut self,
        places: &Places,
        node: &NodeMounts,
        views: &[View],
        cgroups: &Hierarchies,
    ) -> Vec<PodState> {
        self.read(places, views);
        let elsewhere = Elsewhere::new(node, views);
        let mounts = by_pod(views);
        let mut listening = OnceListening::default();
        let mut seen = HashSet::new();
        let mut pods = Vec::new();
        for (root, on_disk) in &self.roots {
            for pod in &on_disk.pods {
                // The same directory may be seen by two ways.
                let wanted = !matches!(&places.only, Only::Pod(uid) if *uid != pod.uid);
                if !wanted || !seen.insert(pod.uid.clone()) {
                    continue;
                }
                let mounted = mounts.get(pod.uid.as_bytes()).map_or(&[][..], Vec::as_slice);
                let mut volumes = join(root, pod, mounted);
                if let Only::Below(directory) = &places.only {
                    volumes.retain(|volume| volume.path.starts_with(directory));
                }
                for csi in volumes.iter_mut().filter_map(|volume| volume.csi.as_mut()) {
                    csi.registration = registration(csi, &on_disk.registered, &mut listening);
                }
                // Where kubelet makes no groups for pods, a container is known by its mounts.
                let unknown =
                    !cgroups.knows(&pod.uid) && mounted.iter().any(|(_, m)| elsewhere.has(m));
                let populated = if unknown { None } else { cgroups.populated(&pod.uid) };
                pods.push(PodState {
                    uid: pod.uid.clone(),
                    directory: root.join("pods").join(&pod.uid),
                    started: pod.started.is_some_and(|started| started >= booted()),
                    populated,
                    volumes,
                });
            }
        }
        pods
    }

    /// Reads all roots as every view shows them: a kubelet in a container of its own (kind, a lab)
    /// has its own files, too.
    fn read(&mut self, places: &Places, views: &[View]) {
        let mut roots: Vec<(PathBuf, Option<u32>, OsString)> = Vec::new();
        for root in &places.kubelet_roots {
            roots.push((root.clone(), None, on_host(&places.host_root, root).into()));
            let seen = views.iter().map(|view| (root.clone(), Some(view.pid), root.into()));
            roots.extend(seen);
        }
        for view in views {
            let mut found: Vec<PathBuf> =
                view.mounts.all.iter().filter_map(|m| kubelet_root_of(&m.point)).collect();
            found.sort();
            found.dedup();
            found.retain(|root| !places.kubelet_roots.contains(root));
            roots.extend(found.into_iter().map(|root| (root.clone(), Some(view.pid), root.into())));
        }
        let asked = roots.iter().map(|(_, pid, path)| (*pid, path.clone())).collect();
        let answers = match helper::ask(ReadPods { roots: asked }) {
            Ok(answers) => answers,
            Err(error) => {
                tracing::info!("the pods' directories were not read: {error}");
                return;
            }
        };
        self.roots.clear();
        for ((root, ..), answer) in roots.into_iter().zip(answers) {
            let Some(mut answer) = answer else { continue };
            let known = self.roots.entry(root).or_default();
            known.pods.append(&mut answer.pods);
            known.registered.append(&mut answer.registered);
        }
    }
}

/// Asked only when a driver's socket is there, and then once.
#[derive(Default)]
struct OnceListening(OnceLock<HashSet<PathBuf>>);

impl OnceListening {
    fn on(&mut self, socket: &Path) -> bool {
        sockets::is_listened_to(socket, self.0.get_or_init(sockets::listening))
    }
}

fn registration(
    csi: &CsiState,
    registered: &[OsString],
    listening: &mut OnceListening,
) -> Registration {
    if !matches!(csi.data, VolumeData::Known { .. }) {
        return Registration::Unknown;
    }
    let here = csi.socket.file_name().is_some_and(|name| registered.iter().any(|r| r == name));
    match here {
        false => Registration::Absent,
        true if listening.on(&csi.socket) => Registration::Listening,
        true => Registration::Deaf,
    }
}

fn join(root: &Path, pod: &PodOnDisk, mounted: &[(PathBuf, Mounted)]) -> Vec<VolumeState> {
    let directory = root.join("pods").join(&pod.uid);
    let volumes = pod.volumes.iter().map(|volume| {
        let below = mounted.iter().filter(|(point, _)| point.starts_with(&volume.path));
        let csi = volume.data.as_ref().map(|data| {
            let driver = match data {
                VolumeData::Known { driver, .. } => driver.as_str(),
                _ => "",
            };
            CsiState {
                data: data.clone(),
                socket: root.join("plugins_registry").join(format!("{driver}-reg.sock")),
                registration: Registration::Unknown,
            }
        });
        VolumeState {
            target_id: 0,
            target: Target::unknown().into(),
            path: directory.join(&volume.path),
            csi,
            mounts: below.map(|(_, mounted)| mounted.clone()).collect(),
        }
    });
    volumes.collect()
}

/// When the node was booted, in seconds since 1970; 0 when that is unknown.
fn booted() -> i64 {
    static BOOTED: OnceLock<i64> = OnceLock::new();
    *BOOTED.get_or_init(|| {
        procfs::boot_time_secs().ok().and_then(|at| i64::try_from(at).ok()).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_without_its_socket_is_not_registered() {
        let csi = |data| CsiState {
            data,
            socket: "/k/plugins_registry/d-reg.sock".into(),
            registration: Registration::Unknown,
        };
        let known =
            VolumeData::Known { driver: "d".into(), handle: "h".into(), lifecycle: String::new() };
        let mut nobody = OnceListening(OnceLock::from(HashSet::new()));
        let mut of = |data, names: &[&str]| {
            let names: Vec<OsString> = names.iter().map(OsString::from).collect();
            registration(&csi(data), &names, &mut nobody)
        };
        assert_eq!(of(known.clone(), &[]), Registration::Absent);
        assert_eq!(of(known, &["e-reg.sock", "d-reg.sock"]), Registration::Deaf);
        assert_eq!(of(VolumeData::Missing, &[]), Registration::Unknown);
    }
}
