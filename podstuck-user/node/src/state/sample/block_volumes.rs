//! Raw block volumes of pods: what kubelet has on its disk, joined with what is mounted and with the kernel's
//! devices that are made of them.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::views::View;
use crate::{
    identity::uid::is_pod_uid,
    state::{
        block_volumes::maps_of,
        pod_dirs::{PodOnDisk, RootOnDisk},
    },
};
use podstuck_model::{
    block_volume::{BlockVolume, DeviceUser},
    identity::Target,
    mounted::Mounted,
    path::safe,
};

/// The directory of all raw block volumes, of each plugin.
const DIRECTORY: &str = "volumeDevices";
/// In it, the drivers' own maps: `publish/<volume>/<uid>`.
const PUBLISHED: &str = "publish";

/// Devices that are bound over kubelet's and drivers' maps, by the UID of the pod: the file's name.
pub(super) fn maps_by_pod(views: &[View]) -> HashMap<&[u8], Vec<Mounted>> {
    let mut found: HashMap<&[u8], Vec<Mounted>> = HashMap::new();
    for view in views {
        for mount in view.mounts.all.iter().filter(|mount| !mount.is_a_users()) {
            let Some(name) = mount.point.file_name().map(OsStr::as_bytes) else { continue };
            if is_pod_uid(name) && mount.point.iter().any(|part| part == DIRECTORY) {
                found.entry(name).or_default().push(view.mounted(mount));
            }
        }
    }
    found
}

/// What is left of a pod's raw block volumes.
pub(super) fn join(
    root: &Path,
    on_disk: &RootOnDisk,
    pod: &PodOnDisk,
    mounted: &[Mounted],
    sysfs: &Sysfs,
) -> Vec<BlockVolume> {
    let directory = root.join("pods").join(&pod.uid);
    let mut left: Vec<&Mounted> = mounted.iter().collect();
    let mut of_volume = |name: &OsStr| -> Vec<Mounted> {
        let (its, others) = left.iter().partition(|mount| mount.point.iter().any(|it| it == name));
        left = others;
        let mut its: Vec<Mounted> = Vec::into_iter(its).cloned().collect();
        // A copy in another mount namespace blocks no unmount in this one.
        let first = its.first().map(|mount| mount.namespace);
        its.sort_by_key(|it| (Some(it.namespace) != first, is_published(&it.point)));
        its
    };
    let of_pod = on_disk.maps.iter().filter(|maps| maps.pods.contains(&pod.uid));
    // One root may be read by several ways.
    let mut maps: Vec<_> = of_pod.collect();
    maps.sort_by(|a, b| a.volume.cmp(&b.volume));
    maps.dedup_by(|a, b| a.volume == b.volume);
    let target = Arc::new(Target::unknown());
    let mut volumes = Vec::new();
    for link in &pod.devices {
        let path = directory.join(&link.path);
        let Some(name) = path.file_name() else { continue };
        let own = maps.iter().position(|maps| maps.volume == *name).map(|at| maps.remove(at));
        let data = own.or_else(|| on_disk.maps.iter().find(|maps| maps.volume == *name));
        volumes.push(BlockVolume {
            target_id: 0,
            target: target.clone(),
            leads_to: link.leads_to.as_ref().map(PathBuf::from),
            map: own.map(|maps| map(root, &maps.volume, &pod.uid)),
            mounts: of_volume(name),
            data: data.map(|maps| maps.data.clone()),
            link: Some(path),
            users: Vec::new(),
        });
    }
    // The pod's link goes first.
    volumes.extend(maps.into_iter().map(|maps| BlockVolume {
        target_id: 0,
        target: target.clone(),
        link: None,
        leads_to: None,
        map: Some(map(root, &maps.volume, &pod.uid)),
        mounts: of_volume(&maps.volume),
        data: Some(maps.data.clone()),
        users: Vec::new(),
    }));
    // The driver's map goes last, while kubelet still has what it wrote about the volume.
    for maps in &on_disk.maps {
        // A root may be a link, a mount's point has none.
        let published = maps_of(Path::new("")).join(PUBLISHED).join(&maps.volume).join(&pod.uid);
        let (its, others) = left.iter().partition(|mount| mount.point.ends_with(&published));
        left = others;
        let mounts: Vec<Mounted> = Vec::into_iter(its).cloned().collect();
        if !mounts.is_empty() {
            let (link, leads_to, map, users) = (None, None, None, Vec::new());
            let (target_id, target, data) = (0, target.clone(), Some(maps.data.clone()));
            volumes.push(BlockVolume {
                target_id,
                target,
                link,
                leads_to,
                map,
                mounts,
                data,
                users,
            });
        }
    }
    let rest: Vec<Mounted> = left.into_iter().cloned().collect();
    if !rest.is_empty() {
        let (link, leads_to, map, data, users) = (None, None, None, None, Vec::new());
        let (target_id, mounts) = (0, rest);
        volumes.push(BlockVolume { target_id, target, link, leads_to, map, mounts, data, users });
    }
    volumes.iter_mut().for_each(|volume| volume.users = sysfs.users_of(volume));
    volumes
}

/// Whether it is a driver's map: kubelet unmounts its own before.
fn is_published(point: &Path) -> bool {
    point.iter().skip_while(|part| *part != DIRECTORY).nth(1).is_some_and(|it| it == PUBLISHED)
}

fn map(root: &Path, volume: &OsStr, uid: &str) -> PathBuf {
    maps_of(root).join(volume).join("dev").join(uid)
}

/// Devices of a volume, after which no more are looked for.
const USERS: usize = 32;

/// What the kernel tells of its devices. It is all memory: no disk is asked.
pub(super) struct Sysfs {
    classes: PathBuf,
}

impl Default for Sysfs {
    fn default() -> Self {
        Self { classes: "/sys/class/block".into() }
    }
}

impl Sysfs {
    /// The devices that are made of a volume's, and those that are made of these.
    fn users_of(&self, volume: &BlockVolume) -> Vec<DeviceUser> {
        let mut found: Vec<DeviceUser> = devices(volume).flat_map(|it| self.holders(it)).collect();
        let files = volume.mounts.iter().map(|mount| mount.point.as_path());
        let files: Vec<&Path> = files.chain(volume.map.as_deref()).collect();
        if !files.is_empty() {
            found.extend(self.loops(&files));
        }
        let mut next = 0;
        while let Some(name) = found.get(next).map(|user| user.name.clone()) {
            next += 1;
            let device = Path::new("/dev").join(&name);
            let mut above = self.holders(Path::new(&name));
            above.extend(self.loops(&[&device]));
            above.retain(|user| !found.contains(user));
            found.extend(above);
            if found.len() > USERS {
                break;
            }
        }
        found.sort();
        found.dedup();
        found
    }

    /// What the kernel lists as made of a device.
    fn holders(&self, device: &Path) -> Vec<DeviceUser> {
        let entries = fs::read_dir(self.classes.join(device).join("holders"));
        let entries = entries.into_iter().flatten().flatten();
        let user = |entry: fs::DirEntry| {
            self.user(&entry.file_name(), shown(device), shown(&entry.path()))
        };
        entries.map(user).collect()
    }

    /// Loop devices that are made of one of these files.
    fn loops(&self, files: &[&Path]) -> Vec<DeviceUser> {
        let entries = fs::read_dir(&self.classes).into_iter().flatten().flatten();
        let of_files = |entry: fs::DirEntry| {
            let source = entry.path().join("loop/backing_file");
            let text = fs::read(&source).ok()?;
            let text = text.strip_suffix(b"\n").unwrap_or(&text);
            // As of a device that went away while the loop device has its file open.
            let text = text.strip_suffix(b" (deleted)").unwrap_or(text);
            let behind = Path::new(OsStr::from_bytes(text));
            let of = files.iter().find(|file| ***file == *behind)?;
            Some(self.user(&entry.file_name(), shown(of), shown(&source)))
        };
        entries.filter_map(of_files).collect()
    }

    fn user(&self, name: &OsStr, of: String, source: String) -> DeviceUser {
        let read = |what: &str| {
            let text = fs::read(self.classes.join(name).join("dm").join(what)).unwrap_or_default();
            safe(text.trim_ascii()).into_owned()
        };
        let kind = table_of(&read("uuid"));
        let what = [kind, &read("name")].map(str::to_owned).join(" ").trim().to_owned();
        DeviceUser { name: shown(Path::new(name)), what, of, source }
    }
}

/// Whose table of the device mapper it is: its tools put that first (`DM_UUID_PREFIX` of cryptsetup, LVM's
/// `UUID_PREFIX`, multipath-tools').
pub(super) fn table_of(uuid: &str) -> &'static str {
    match uuid.split('-').next() {
        Some("CRYPT") => "encrypted volume",
        Some("LVM") => "logical volume",
        Some("mpath") => "multipath device",
        _ => "",
    }
}

/// The names of a volume's devices: a device is a file in devtmpfs, whose name the mount table has.
fn devices(volume: &BlockVolume) -> impl Iterator<Item = &Path> {
    let bound = volume.mounts.iter().filter(|mount| mount.what.contains("devtmpfs"));
    let bound = bound.filter_map(|mount| mount.root.strip_prefix("/").ok());
    let linked = volume.leads_to.iter().filter_map(|path| path.strip_prefix("/dev").ok());
    let is_plain = |name: &&Path| name.components().count() == 1;
    let mut names: Vec<&Path> = bound.chain(linked).filter(is_plain).collect();
    names.sort();
    names.dedup();
    names.into_iter()
}

fn shown(path: &Path) -> String {
    safe(path.as_os_str().as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{
        block_volumes::{LinkOnDisk, MapsOnDisk},
        pod_dirs::Times,
        scratch::write,
    };
    use podstuck_model::csi::VolumeData;

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    fn known() -> VolumeData {
        VolumeData::Known { driver: "d".into(), handle: "h".into(), lifecycle: String::new() }
    }

    fn on_disk(maps: &[&str]) -> RootOnDisk {
        let of = |name: &&str| MapsOnDisk {
            volume: (*name).into(),
            pods: vec![UID.into()],
            data: known(),
        };
        RootOnDisk { maps: maps.iter().map(of).collect(), ..RootOnDisk::default() }
    }

    fn pod(links: &[&str]) -> PodOnDisk {
        let link = |name: &&str| LinkOnDisk {
            path: format!("volumeDevices/kubernetes.io~csi/{name}").into(),
            leads_to: Some("/dev/sdb".into()),
        };
        let (uid, times) = (UID.into(), Times::default());
        let devices = links.iter().map(link).collect();
        PodOnDisk { uid, file: None, times, volumes: Vec::new(), devices, seen_by: None }
    }

    fn mapped(text: &str) -> Vec<Mounted> {
        let mounts = Arc::new(podstuck_confine::proc::parse_mounts(7, text.as_bytes()));
        let views = [View { pid: 7, namespace: 1, mounts }];
        maps_by_pod(&views).remove(UID.as_bytes()).unwrap_or_default()
    }

    #[test]
    fn a_volume_is_what_is_left_of_it() {
        let csi = "/k/plugins/kubernetes.io/csi/volumeDevices";
        let mounts = mapped(&format!(
            "9 1 0:5 /sdb {csi}/pv/dev/{UID} rw - devtmpfs udev rw\n\
             10 1 0:5 /sdc {csi}/publish/two/{UID} rw - devtmpfs udev rw\n\
             11 1 0:5 /sdd /k/plugins/kubernetes.io/x/volumeDevices/az/v/{UID} rw - devtmpfs udev rw\n\
             12 1 0:5 /sde /k/plugins/x/{UID} rw - devtmpfs udev rw\n"
        ));
        let found = join(
            Path::new("/k"),
            &on_disk(&["pv", "two"]),
            &pod(&["pv"]),
            &mounts,
            &Sysfs { classes: "/nonexistent".into() },
        );
        let ids = |volume: &BlockVolume| -> Vec<u32> {
            volume.mounts.iter().map(|mount| mount.id).collect()
        };
        let links: Vec<(bool, bool, Vec<u32>)> =
            found.iter().map(|it| (it.link.is_some(), it.map.is_some(), ids(it))).collect();
        let (linked, only_mapped) = ((true, true, vec![9]), (false, true, vec![10]));
        assert_eq!(links, [linked, only_mapped, (false, false, vec![11])]);
        assert!(found[0].is_called("kubernetes.io/csi/d^h") && !found[2].is_called("v"));
        assert_eq!(
            found[0].path(),
            Path::new(&format!("/k/pods/{UID}/volumeDevices/kubernetes.io~csi/pv"))
        );
        let none = Sysfs { classes: "/nonexistent".into() };
        assert!(join(Path::new("/k"), &on_disk(&[]), &pod(&[]), &[], &none).is_empty());
    }

    /// kubelet unmounts its own map first, and asks the driver after that.
    #[test]
    fn the_drivers_map_is_of_the_volume_that_kubelet_wrote_about_and_comes_after_kubelets() {
        let csi = "/k/plugins/kubernetes.io/csi/volumeDevices";
        let published = format!("10 1 0:5 /sdb {csi}/publish/pv/{UID} rw - devtmpfs udev rw\n");
        let own = format!("11 1 0:5 /sdb {csi}/pv/dev/{UID} rw - devtmpfs udev rw\n");
        let of = |pods: &[&str], links: &[&str], mounts: &str| {
            let mut on_disk = on_disk(&["csi", "pv"]);
            for maps in &mut on_disk.maps {
                maps.pods = pods.iter().map(|uid| (*uid).into()).collect();
            }
            on_disk.maps.retain(|maps| pods.is_empty() || maps.volume == "pv");
            let none = Sysfs { classes: "/nonexistent".into() };
            join(Path::new("/k"), &on_disk, &pod(links), &mapped(mounts), &none)
        };
        let [left] = &of(&[], &[], &published)[..] else { panic!() };
        assert!(left.link.is_none() && left.map.is_none() && left.mounts[0].id == 10);
        assert!(left.is_called("kubernetes.io/csi/d^h"));
        let [both] = &of(&[UID], &["pv"], &format!("{published}{own}"))[..] else { panic!() };
        assert_eq!(both.mounts.iter().map(|mount| mount.id).collect::<Vec<_>>(), [11, 10]);
        // Of a volume that kubelet wrote nothing about, it is known by nothing.
        let other = published.replace("publish/pv", "publish/other");
        let [unknown] = &of(&[], &[], &other)[..] else { panic!() };
        assert!(unknown.data.is_none() && !unknown.is_called("kubernetes.io/csi/d^h"));
    }

    #[test]
    fn the_kernels_devices_on_it_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let class = |path: &str, text: &str| write(dir.path().join(path), text);
        let map = format!("/k/plugins/kubernetes.io/csi/volumeDevices/pv/dev/{UID}");
        class("sdb/holders/dm-3", "");
        class("dm-3/dm/name", "osd-block\n");
        class("dm-3/dm/uuid", "CRYPT-LUKS2-0123-osd-block\n");
        class("loop4/loop/backing_file", &format!("{map}\n"));
        class("loop5/loop/backing_file", "/var/other\n");
        class("loop4/holders/dm-4", "");
        class("dm-4/dm/name", "vg-root\n");
        class("dm-4/dm/uuid", "LVM-0123\n");
        class("loop6/loop/backing_file", "/dev/dm-4\n");
        class("loop7/loop/backing_file", &format!("{map} (deleted)\n"));
        let mounts = mapped(&format!("9 1 0:5 /sdb {map} rw - devtmpfs udev rw\n"));
        let sysfs = Sysfs { classes: dir.path().into() };
        let found = join(Path::new("/k"), &on_disk(&["pv"]), &pod(&["pv"]), &mounts, &sysfs);
        let users: Vec<(&str, &str, &str)> = found[0]
            .users
            .iter()
            .map(|user| (user.name.as_str(), user.what.as_str(), user.of.as_str()))
            .collect();
        assert_eq!(
            users,
            [
                ("dm-3", "encrypted volume osd-block", "sdb"),
                ("dm-4", "logical volume vg-root", "loop4"),
                ("loop4", "", map.as_str()),
                ("loop6", "", "/dev/dm-4"),
                ("loop7", "", map.as_str()),
            ]
        );
    }
}
