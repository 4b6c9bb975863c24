//! Pods by kubelet's directories on the disk, joined with their mounts and remaining processes.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock, PoisonError},
};

use super::{
    Only, Places,
    block_volumes::{self, Sysfs},
    drivers::{Drivers, Sight, Volume},
    halted::Trees,
    hierarchies::Hierarchies,
    pod_mounts::{Elsewhere, PodMounts},
    roots_on_disk::{Place, Reading, Shares},
    turns::Turns,
    views::{View, mounts_of},
};
use crate::{
    identity::{classify::kubelet_root_of, on_host, uid::is_pod_uid},
    state::{
        dra,
        pod_dirs::{PodOnDisk, RootOnDisk},
        sockets::{self, Listener},
    },
};
use podstuck_confine::alive;
use podstuck_model::{
    csi::{CsiState, Registration, VolumeData},
    degraded::{Degraded, Feed},
    dra::{DeviceDriver, KeptClaim},
    identity::Target,
    linked_root::LinkedRoot,
    mounted::Mounted,
    mounts::NodeMounts,
    node::{PodState, VolumeState},
    object::FileId,
    path::safe_path,
};

/// The state that is kept from one sample to the next.
#[derive(Debug, Default)]
pub(super) struct PodCollector {
    /// By root. What was read last is believed while the disk does not answer.
    roots: BTreeMap<PathBuf, RootOnDisk>,
    /// Those of which this is old, or nothing.
    unread: Vec<PathBuf>,
    shares: Shares,
    drivers: Drivers,
    /// Number of the sample.
    turn: usize,
}

impl PodCollector {
    /// kubelets' roots that could not be read the last time. What only a mount names has no pods that are missed.
    pub(super) fn unread(&self, places: &Places) -> Vec<PathBuf> {
        let unread = self.unread.iter().filter(|root| places.kubelet_roots.contains(root));
        unread.cloned().collect()
    }

    /// Roots that are reached by a symbolic link.
    pub(super) fn linked(&self) -> Vec<LinkedRoot> {
        let linked = self.roots.iter().filter_map(|(named, root)| {
            let (link, leads_to) = root.link.clone()?;
            Some(LinkedRoot { named: named.clone(), link: link.into(), leads_to: leads_to.into() })
        });
        linked.collect()
    }

    /// All pods now, by what these views show. If `by_turns`, not every directory of a pod that runs is read again.
    pub(super) fn sample(
        &mut self,
        places: &Places,
        by_turns: bool,
        (node, views): (&NodeMounts, &[View]),
        cgroups: &Hierarchies,
    ) -> Vec<PodState> {
        self.turn = self.turn.wrapping_add(1);
        let turns = Turns::new(by_turns.then_some(self.turn), cgroups);
        self.read(places, views, |pod| turns.is_known(pod));
        let elsewhere = Elsewhere::new(node, views);
        let mounts = PodMounts::of(views);
        let (maps, sysfs) = (block_volumes::maps_by_pod(views), Sysfs::default());
        let listening = OnceListening::default();
        let trees = Trees::among(cgroups.trees());
        let mut seen = Collisions::default();
        let mut pods = Vec::new();
        let mut roots: Vec<(&PathBuf, &RootOnDisk)> = self.roots.iter().collect();
        // What kubelet has goes before what only a mount names.
        let rank = |root: &PathBuf| places.kubelet_roots.iter().position(|known| known == root);
        roots.sort_by_key(|(root, _)| rank(root).unwrap_or(usize::MAX));
        for (root, on_disk) in roots {
            for pod in &on_disk.pods {
                // The same directory may be seen by two ways.
                let wanted = places.only.includes_pod(&pod.uid);
                if !wanted || !seen.is_first(root, pod) {
                    continue;
                }
                let mounted = mounts.below(&pod.uid, root, on_disk.link.as_ref());
                let mounted = mounted.as_slice();
                let view = seen_by(&pod.uid, on_disk, views, mounted);
                let mut volumes = join(root, pod, mounted);
                if let Only::Below(directory) = &places.only {
                    volumes.retain(|volume| volume.path.starts_with(directory));
                }
                // Where kubelet makes no groups for pods, a container is known by its mounts.
                let unknown =
                    !cgroups.knows(&pod.uid) && mounted.iter().any(|(_, m)| elsewhere.has(m));
                let populated = if unknown { None } else { turns.populated(&pod.uid) };
                for volume in &mut volumes {
                    let Some(csi) = &mut volume.csi else { continue };
                    csi.registration = registration(csi, &on_disk.registered, &listening);
                    csi.registry_changed = on_disk
                        .registry_changed
                        .filter(|_| csi.registration == Registration::Absent);
                    // Not asked for a running pod.
                    if csi.registration == Registration::Listening
                        && populated == Some(false)
                        && let VolumeData::Known { driver, .. } = &csi.data
                        && let Some(view) = view.or_else(|| views.first())
                    {
                        let has_usual = on_disk.drivers.iter().any(|name| *name == **driver);
                        let listening = listening.all();
                        let sight = Sight { node, views, listening, trees: &trees };
                        let mounted = volume.mounts.last();
                        let (point, namespace) = match mounted {
                            Some(mount) => (&*mount.point, mount.namespace),
                            None => (&*volume.path, view.namespace),
                        };
                        let asked = Volume { point, namespace, mounted };
                        csi.driver =
                            self.drivers.look(sight, &csi.socket, (driver, has_usual), asked);
                    }
                }
                let mapped = maps.get(pod.uid.as_bytes()).map_or(&[][..], Vec::as_slice);
                let mut devices = block_volumes::join(root, on_disk, pod, mapped, &sysfs);
                if let Only::Below(directory) = &places.only {
                    devices.retain(|device| device.path().starts_with(directory));
                }
                let times = &pod.times;
                pods.push(PodState {
                    seen_by: view.map(|view| (view.pid, view.namespace)),
                    uid: pod.uid.clone(),
                    directory: root.join("pods").join(&pod.uid),
                    started: times.started.is_some_and(|started| started >= booted()),
                    before_boot: times.started.is_some_and(|started| started < booted()),
                    populated,
                    changed: times.changed,
                    volume_removed: times.volume_removed,
                    volumes,
                    devices,
                    claims: kept_claims(root, on_disk, &pod.uid, &listening),
                });
            }
        }
        seen.tell();
        pods
    }

    /// Reads all roots as every view shows them: a kubelet in a container of its own (kind, a lab)
    /// has its own files, too. Those that kubelets name come first, and of these those that are believed more.
    fn read(&mut self, places: &Places, views: &[View], is_known: impl Fn(&PodOnDisk) -> bool) {
        let mut roots: Vec<Place> = Vec::new();
        for root in &places.kubelet_roots {
            roots.push((root.clone(), None, on_host(&places.host_root, root).into()));
            let seen = views.iter().map(|view| (root.clone(), Some(view.pid), root.into()));
            roots.extend(seen);
        }
        for view in views {
            // Users may mount their own anywhere.
            let mounts = view.mounts.all.iter().filter(|mount| !mount.is_a_users());
            let mut found: Vec<PathBuf> =
                mounts.filter_map(|mount| kubelet_root_of(&mount.point)).collect();
            found.sort();
            found.dedup();
            found.retain(|root| !places.kubelet_roots.contains(root));
            roots.extend(found.into_iter().map(|root| (root.clone(), Some(view.pid), root.into())));
        }
        let looks = roots.iter().map(|(_, pid, path)| (mounts_of(*pid, views), Path::new(path)));
        let is_left_out = alive::left_out(Feed::Node, looks);
        let before = std::mem::take(&mut self.roots);
        let (mut reading, mut left) = (Reading::after_sample(before), Vec::new());
        for (place, is_left_out) in roots.into_iter().zip(is_left_out) {
            if is_left_out {
                reading.fail(place.0);
                continue;
            }
            let (root, pid, path) = &place;
            let covering = mounts_of(*pid, views).and_then(|it| it.covering(Path::new(path)));
            left.push(((root.clone(), covering.map(|mount| mount.device)), place));
        }
        reading.read(left, &mut self.shares, is_known);
        (self.roots, self.unread) = reading.after();
    }
}

/// A view in which a pod's directory is seen: the first in which the pod has mounts, if there is one. The directory is
/// also seen where they are not mounted.
fn seen_by<'a>(
    uid: &str,
    on_disk: &RootOnDisk,
    views: &'a [View],
    mounted: &[(PathBuf, Mounted)],
) -> Option<&'a View> {
    let sees = |view: &&View| {
        on_disk.pods.iter().any(|pod| pod.uid == uid && pod.seen_by == Some(view.pid))
    };
    let has_mounts =
        |view: &&View| mounted.iter().any(|(_, mount)| mount.namespace == view.namespace);
    let mut seeing = views.iter().filter(sees);
    seeing.clone().find(has_mounts).or_else(|| seeing.next())
}

/// Directories of one UID that are not the same. The first one counts.
#[derive(Default)]
struct Collisions<'a> {
    seen: HashMap<&'a str, (&'a Path, Option<FileId>)>,
    found: Vec<(&'a str, &'a Path, &'a Path)>,
}

impl<'a> Collisions<'a> {
    fn is_first(&mut self, root: &'a Path, pod: &'a PodOnDisk) -> bool {
        let Some((first, file)) = self.seen.get(pod.uid.as_str()) else {
            self.seen.insert(&pod.uid, (root, pod.file));
            return true;
        };
        // One path may lead to another directory in another mount namespace, where something is mounted there.
        if *first != root && file.is_some() && pod.file.is_some() && *file != pod.file {
            self.found.push((&pod.uid, first, root));
        }
        false
    }

    fn tell(self) {
        let directory = |root: &Path, uid| root.join("pods").join(uid);
        let shown = self.found.iter().map(|(uid, first, root)| Degraded {
            sentence: format!(
                "pod {uid} has directories in several roots: podstuck examines {} and not the one that is seen in {}",
                safe_path(&directory(first, uid)),
                safe_path(root),
            ),
            feeds: vec![Feed::Node],
            place: Some(directory(root, uid)),
            is_passing: false,
        });
        let mut shown: Vec<Degraded> = shown.take(SHOWN).collect();
        let more = self.found.len().saturating_sub(SHOWN);
        if more > 0 {
            shown.push(Degraded::new(
                format!("{more} more pods have directories in several roots"),
                &[],
            ));
        }
        *COLLISIONS.lock().unwrap_or_else(PoisonError::into_inner) = shown;
    }
}

/// The collisions of the last sample.
static COLLISIONS: Mutex<Vec<Degraded>> = Mutex::new(Vec::new());
/// Collisions that are reported one by one.
const SHOWN: usize = 8;

/// Pods of one UID in several roots, of which one is not looked at.
pub fn collisions() -> Vec<Degraded> {
    COLLISIONS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Asked only when a driver's socket is there, and then once.
#[derive(Default)]
struct OnceListening(OnceLock<Vec<Listener>>);

impl OnceListening {
    fn all(&self) -> &[Listener] {
        self.0.get_or_init(sockets::listening)
    }

    fn on(&self, socket: &Path) -> bool {
        sockets::listener_on(socket, self.all()).is_some()
    }
}

fn registration(
    csi: &CsiState,
    registered: &[OsString],
    listening: &OnceListening,
) -> Registration {
    if !matches!(csi.data, VolumeData::Known { .. }) {
        return Registration::Unknown;
    }
    let here = csi.socket.file_name().is_some_and(|name| registered.iter().any(|r| r == name));
    by_sockets(here.then_some(&*csi.socket).as_slice(), listening)
}

/// By a driver's sockets that are in kubelet's directory of plugins.
fn by_sockets(sockets: &[&Path], listening: &OnceListening) -> Registration {
    if sockets.is_empty() {
        Registration::Absent
    } else if sockets.iter().any(|socket| listening.on(socket)) {
        Registration::Listening
    } else {
        Registration::Deaf
    }
}

/// The ResourceClaims that kubelet keeps for this pod alone. Of one that other pods share, kubelet asks its drivers nothing
/// when this pod ends.
fn kept_claims(
    root: &Path,
    on_disk: &RootOnDisk,
    uid: &str,
    listening: &OnceListening,
) -> Vec<KeptClaim> {
    let registry = root.join("plugins_registry");
    let driver = |name: &String| {
        let sockets = on_disk.registered.iter().filter(|it| is_socket_of(it, name));
        let sockets: Vec<PathBuf> = sockets.map(|it| registry.join(it)).collect();
        let sockets: Vec<&Path> = sockets.iter().map(PathBuf::as_path).collect();
        DeviceDriver { name: name.clone(), registration: by_sockets(&sockets, listening) }
    };
    let own = on_disk.claims.iter().filter(|claim| claim.pods == [uid]);
    let claims = own.map(|claim| KeptClaim {
        namespace: claim.namespace.clone(),
        name: claim.name.clone(),
        drivers: claim.drivers.iter().map(driver).collect(),
        source: root.join(dra::FILE).display().to_string(),
    });
    claims.collect()
}

/// Whether a socket is one of this driver of devices: `DRIVER-reg.sock`, or `DRIVER-UID-reg.sock` of one that is updated
/// without a pause (dynamic-resource-allocation/kubeletplugin).
fn is_socket_of(socket: &OsStr, driver: &str) -> bool {
    let name = socket.to_str().and_then(|name| name.strip_suffix("-reg.sock"));
    let rest = name.and_then(|name| name.strip_prefix(driver));
    rest.is_some_and(|rest| {
        rest.is_empty() || rest.strip_prefix('-').is_some_and(|uid| is_pod_uid(uid.as_bytes()))
    })
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
                registry_changed: None,
                driver: None,
            }
        });
        VolumeState {
            target_id: 0,
            target: Target::unknown().into(),
            path: directory.join(&volume.path),
            file: volume.file,
            csi,
            mounts: below.map(|(_, mounted)| mounted.clone()).collect(),
        }
    });
    volumes.collect()
}

/// When the node was booted, in seconds since 1970; 0 when that is unknown.
fn booted() -> i64 {
    static BOOTED: OnceLock<i64> = OnceLock::new();
    let read = || procfs::boot_time_secs().ok().and_then(|at| i64::try_from(at).ok());
    let known = BOOTED.get().copied().or_else(read);
    known.map_or(0, |at| *BOOTED.get_or_init(|| at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use podstuck_confine::proc::parse_mounts;

    use super::super::roots_on_disk::tests::on_disk_pod;
    use crate::state::dra::ClaimOnDisk;

    #[test]
    fn a_pod_is_seen_where_its_volumes_are_mounted_and_else_by_the_host() {
        let view = |pid, namespace| View { pid, namespace, mounts: Arc::default() };
        let views = [view(1, 10), view(7, 20), view(8, 30)];
        let mut on_disk = RootOnDisk::default();
        for pid in [1, 7, 8] {
            on_disk.pods.push(PodOnDisk { seen_by: Some(pid), ..on_disk_pod("u") });
        }
        let table = b"40 20 0:9 / /k/pods/u/volumes/v rw - tmpfs tmpfs rw\n";
        let mount = parse_mounts(7, table).all.remove(0);
        let mounted = [(PathBuf::from("volumes/v"), Mounted::of(&mount, (7, 20), String::new()))];
        let pid = |uid, mounted| seen_by(uid, &on_disk, &views, mounted).map(|view| view.pid);
        assert_eq!(pid("u", &mounted), Some(7));
        assert_eq!(pid("u", &[]), Some(1));
        assert_eq!(pid("other", &[]), None);
    }

    #[test]
    fn a_claim_of_one_pod_alone_is_kept_and_its_drivers_sockets_are_looked_at() {
        const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
        let claim = |name: &str, pods: &[&str]| ClaimOnDisk {
            namespace: "shop".into(),
            name: name.into(),
            pods: pods.iter().map(|it| (*it).to_owned()).collect(),
            drivers: ["a.b", "c.d", "e.f"].map(str::to_owned).to_vec(),
        };
        let sockets = ["a.b-reg.sock".to_owned(), format!("c.d-{UID}-reg.sock")];
        let on_disk = RootOnDisk {
            // Another driver, whose name begins in the same way.
            registered: [&sockets[..], &["e.f-g-reg.sock".into()]]
                .concat()
                .into_iter()
                .map(OsString::from)
                .collect(),
            claims: vec![
                claim("gpu", &[UID]),
                claim("shared", &[UID, "other"]),
                claim("x", &["other"]),
            ],
            ..RootOnDisk::default()
        };
        let listener = Listener { path: "/registration/a.b-reg.sock".into(), inode: 7 };
        let listening = OnceListening(OnceLock::from(vec![listener]));
        let found = kept_claims(Path::new("/k"), &on_disk, UID, &listening);
        let [kept] = &found[..] else { panic!("{found:?}") };
        assert_eq!((kept.shown(), &*kept.source), ("shop/gpu".into(), "/k/dra_manager_state"));
        let states: Vec<Registration> = kept.drivers.iter().map(|it| it.registration).collect();
        assert_eq!(states, [Registration::Listening, Registration::Deaf, Registration::Absent]);
    }

    #[test]
    fn of_two_directories_of_one_pod_the_first_counts_and_the_other_is_reported() {
        let pod = |inode: Option<u64>| PodOnDisk {
            file: inode.map(|inode| FileId { device: 1, inode }),
            ..on_disk_pod("u")
        };
        let (own, again, other, unknown) = (pod(Some(7)), pod(Some(7)), pod(Some(8)), pod(None));
        let mut seen = Collisions::default();
        assert!(seen.is_first(Path::new("/k"), &own));
        // The same directory by another path, and one whose identity is not known.
        assert!(!seen.is_first(Path::new("/k2"), &again));
        assert!(!seen.is_first(Path::new("/k3"), &unknown));
        assert!(seen.found.is_empty());
        assert!(!seen.is_first(Path::new("/home/u"), &other));
        assert_eq!(seen.found, [("u", Path::new("/k"), Path::new("/home/u"))]);
        seen.tell();
        let [collision] = collisions().try_into().unwrap();
        assert!(
            collision.sentence.contains("podstuck examines /k/pods/u"),
            "{}",
            collision.sentence
        );
    }

    #[test]
    fn a_driver_without_its_socket_is_not_registered() {
        let csi = |data| CsiState {
            data,
            socket: "/k/plugins_registry/d-reg.sock".into(),
            registration: Registration::Unknown,
            registry_changed: None,
            driver: None,
        };
        let known =
            VolumeData::Known { driver: "d".into(), handle: "h".into(), lifecycle: String::new() };
        let none = OnceListening(OnceLock::from(Vec::new()));
        let of = |data, names: &[&str]| {
            let names: Vec<OsString> = names.iter().map(OsString::from).collect();
            registration(&csi(data), &names, &none)
        };
        assert_eq!(of(known.clone(), &[]), Registration::Absent);
        assert_eq!(of(known, &["e-reg.sock", "d-reg.sock"]), Registration::Deaf);
        assert_eq!(of(VolumeData::Missing, &[]), Registration::Unknown);
    }
}
