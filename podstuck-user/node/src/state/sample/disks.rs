//! Block devices that may not answer, and what they are made of, down to a server or a piece of hardware: what sysfs
//! knows of them, which the kernel answers from memory (Documentation/ABI/{stable,testing}/sysfs-*).

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::{block_volumes::table_of, views::View};
use crate::state::disks::{self, Requests};
use podstuck_model::{
    disk::{Disk, NvmeController, ServedBy},
    mounts::Device,
    path::safe,
};

/// Devices described in one sample.
const MOST: usize = 64;

/// Describes devices by sysfs.
struct Sysfs<'a> {
    top: &'a Path,
    views: &'a [View],
}

/// Devices with requests in flight, suspended ones among those of volumes, and those that they are made of.
pub(super) fn sample(views: &[View], of_volumes: impl Iterator<Item = Device>) -> Vec<Disk> {
    let of_volumes = of_volumes.collect();
    Sysfs { top: Path::new("/sys"), views }.disks(disks::read(), &of_volumes)
}

impl Sysfs<'_> {
    fn disks(&self, all: Vec<Requests>, of_volumes: &BTreeSet<Device>) -> Vec<Disk> {
        let all: BTreeMap<String, Requests> =
            all.into_iter().map(|it| (it.name.clone(), it)).collect();
        let mut found: Vec<Disk> = Vec::new();
        let is_first = |it: &&Requests| {
            let may_be_suspended = it.name.starts_with("dm-") && of_volumes.contains(&it.device);
            it.in_flight > 0 || (may_be_suspended && self.is_suspended(&it.name))
        };
        let mut next: Vec<&Requests> = all.values().filter(is_first).collect();
        while let Some(requests) = next.pop() {
            if found.len() >= MOST || found.iter().any(|disk| disk.name == requests.name) {
                continue;
            }
            let disk = self.disk(requests);
            next.extend(disk.below.iter().filter_map(|name| all.get(name)));
            found.push(disk);
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }

    fn disk(&self, requests: &Requests) -> Disk {
        let Requests { name, device, done, in_flight } = requests;
        Disk {
            name: safe(name.as_bytes()).into_owned(),
            device: *device,
            in_flight: *in_flight,
            done: *done,
            below: self.below(name),
            served_by: self.served_by(name),
        }
    }

    fn class(&self, name: &str) -> PathBuf {
        self.top.join("class/block").join(name)
    }

    /// The devices below: what the kernel lists as its slaves, or the disk of a partition.
    fn below(&self, name: &str) -> Vec<String> {
        let class = self.class(name);
        let mut below: Vec<String> = names(&class.join("slaves")).collect();
        if class.join("partition").exists()
            && let Ok(place) = fs::canonicalize(&class)
            && let Some(disk) = place.parent().and_then(Path::file_name).and_then(OsStr::to_str)
        {
            below.push(disk.to_owned());
        }
        below.sort();
        below
    }

    fn is_suspended(&self, name: &str) -> bool {
        text(&self.class(name).join("dm/suspended")).as_deref() == Some("1")
    }

    fn served_by(&self, name: &str) -> Option<ServedBy> {
        let class = self.class(name);
        if let Ok(path) = fs::read(class.join("loop/backing_file")) {
            let path = OsStr::from_bytes(path.strip_suffix(b"\n").unwrap_or(&path));
            return Some(self.file(Path::new(path)));
        }
        if let Some(named) = text(&class.join("dm/name")) {
            let kind = table_of(&text(&class.join("dm/uuid")).unwrap_or_default()).to_owned();
            return Some(ServedBy::Mapper {
                name: named,
                kind,
                is_suspended: self.is_suspended(name),
            });
        }
        if name.starts_with("nbd") {
            return Some(ServedBy::Nbd { pid: text(&class.join("pid"))?.parse().ok() });
        }
        if let Some(number) = name.strip_prefix("rbd") {
            let image = self.top.join("bus/rbd/devices").join(number);
            let [pool, name] = ["pool", "name"].map(|what| text(&image.join(what)));
            return Some(ServedBy::Rbd { image: format!("{}/{}", pool?, name?) });
        }
        if name.starts_with("nvme") {
            let controllers = controllers(&class.join("device"));
            return (!controllers.is_empty()).then_some(ServedBy::Nvme { controllers });
        }
        self.remote(&class)
            .or_else(|| Some(ServedBy::Scsi { state: text(&class.join("device/state"))? }))
    }

    fn file(&self, path: &Path) -> ServedBy {
        let mount = self.views.iter().find_map(|view| view.mounts.covering(path));
        let mount = mount.map(|mount| {
            format!(
                "{} of type {} on {}",
                shown(mount.source.as_bytes()),
                shown(mount.fs_type.as_bytes()),
                shown(mount.point.as_os_str().as_bytes())
            )
        });
        ServedBy::File { path: path.to_owned(), mount }
    }

    /// The session or port through which a SCSI disk is reached, by its place in the tree of devices.
    fn remote(&self, class: &Path) -> Option<ServedBy> {
        let place = fs::canonicalize(class).ok()?;
        let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|it| it.is_ascii_digit());
        for part in place.iter().filter_map(OsStr::to_str) {
            if let Some(number) = part.strip_prefix("session").filter(|it| is_number(it)) {
                let session = self.top.join("class/iscsi_session").join(part);
                let connection =
                    self.top.join(format!("class/iscsi_connection/connection{number}:0"));
                let of = |what| text(&connection.join(what)).unwrap_or_default();
                return Some(ServedBy::Iscsi {
                    target: text(&session.join("targetname"))?,
                    portal: format!("{}:{}", of("persistent_address"), of("persistent_port")),
                    state: text(&session.join("state")).unwrap_or_default(),
                });
            }
            if part.starts_with("rport-") {
                let port = self.top.join("class/fc_remote_ports").join(part);
                return Some(ServedBy::FibreChannel {
                    port: text(&port.join("port_name"))?,
                    state: text(&port.join("port_state")).unwrap_or_default(),
                });
            }
        }
        None
    }
}

/// The controllers of an NVMe namespace: its own, or with multipath those of its subsystem.
fn controllers(device: &Path) -> Vec<NvmeController> {
    let place = fs::canonicalize(device).unwrap_or_default();
    let name = |place: &Path| Some(place.file_name()?.to_str()?.to_owned());
    let controller = |place: &Path| {
        let of = |what| text(&place.join(what));
        let (name, address) = (name(place)?, of("address").unwrap_or_default());
        Some(NvmeController { name, address, transport: of("transport")?, state: of("state")? })
    };
    let own = controller(&place).into_iter();
    let paths = names(&place).filter(|name| name.starts_with("nvme"));
    let mut all: Vec<_> = own.chain(paths.filter_map(|it| controller(&place.join(it)))).collect();
    all.sort();
    all
}

fn names(directory: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

/// An attribute, safe to show; `None` where it is not there or empty.
fn text(file: &Path) -> Option<String> {
    let text = fs::read(file).ok()?;
    let text = shown(text.trim_ascii());
    (!text.is_empty()).then_some(text)
}

fn shown(text: &[u8]) -> String {
    safe(text).into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::state::scratch::write;

    fn requests(name: &str, minor: u32, in_flight: u64) -> Requests {
        Requests { name: name.into(), device: Device { major: 8, minor }, done: 7, in_flight }
    }

    /// A device at its place in the tree, with attributes, and its link in the class.
    fn device(top: &Path, place: &str, attributes: &[(&str, &str)]) {
        let place = top.join("devices").join(place);
        for (name, value) in attributes {
            write(place.join(name), value);
        }
        let class = top.join("class/block");
        fs::create_dir_all(&place).unwrap();
        fs::create_dir_all(&class).unwrap();
        symlink(&place, class.join(place.file_name().unwrap())).unwrap();
    }

    fn found(top: &Path, all: Vec<Requests>) -> Vec<Disk> {
        let of_volumes = all.iter().map(|it| it.device).collect();
        Sysfs { top, views: &[] }.disks(all, &of_volumes)
    }

    #[test]
    fn a_device_is_followed_to_what_serves_it() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path();
        let of_session = "platform/host3/session4/target3:0:0/3:0:0:0/block/sda";
        device(top, of_session, &[("device/state", "blocked\n")]);
        device(top, &format!("{of_session}/sda1"), &[("partition", "1\n")]);
        write(top.join("class/iscsi_session/session4/targetname"), "iqn.2026-01.example:a\n");
        write(top.join("class/iscsi_session/session4/state"), "FAILED\n");
        let connection = top.join("class/iscsi_connection/connection4:0");
        write(connection.join("persistent_address"), "192.0.2.7\n");
        write(connection.join("persistent_port"), "3260\n");
        let dm = [("dm/name", "mpatha\n"), ("dm/uuid", "mpath-36001\n"), ("dm/suspended", "0\n")];
        device(top, "virtual/block/dm-0", &dm);
        write(top.join("devices/virtual/block/dm-0/slaves/sda1/x"), "");
        device(top, "virtual/block/dm-1", &[("dm/name", "idle"), ("dm/suspended", "0\n")]);
        device(top, "virtual/block/dm-2", &[("dm/name", "held"), ("dm/suspended", "1\n")]);
        let all = vec![
            requests("sda", 0, 2),
            requests("sda1", 1, 2),
            requests("dm-0", 2, 1),
            requests("dm-1", 3, 0),
            requests("dm-2", 4, 0),
        ];
        let disks = found(top, all);
        let names: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
        assert_eq!(names, ["dm-0", "dm-2", "sda", "sda1"], "an idle one is not described");
        assert_eq!(
            (&disks[0].below[..], &disks[3].below[..]),
            (&["sda1".into()][..], &["sda".into()][..])
        );
        assert!(disks[1].is_suspended() && !disks[0].is_suspended());
        let session = ServedBy::Iscsi {
            target: "iqn.2026-01.example:a".into(),
            portal: "192.0.2.7:3260".into(),
            state: "FAILED".into(),
        };
        assert_eq!(disks[2].served_by, Some(session));
    }

    #[test]
    fn the_controllers_of_a_multipath_namespace_are_those_of_its_subsystem() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path();
        let subsystem = "virtual/nvme-subsystem/nvme-subsys0";
        device(top, &format!("{subsystem}/nvme0n1"), &[]);
        let subsystem = top.join("devices").join(subsystem);
        symlink(&subsystem, subsystem.join("nvme0n1/device")).unwrap();
        for (name, value) in
            [("transport", "tcp\n"), ("address", "traddr=192.0.2.7\n"), ("state", "connecting\n")]
        {
            write(top.join("devices/fabrics/nvme1").join(name), value);
        }
        symlink(top.join("devices/fabrics/nvme1"), subsystem.join("nvme1")).unwrap();
        let disks = found(top, vec![requests("nvme0n1", 0, 1)]);
        let Some(ServedBy::Nvme { controllers }) = &disks[0].served_by else { panic!("{disks:?}") };
        let [only] = &controllers[..] else { panic!("{controllers:?}") };
        assert_eq!((only.transport.as_str(), only.state.as_str()), ("tcp", "connecting"));
    }

    #[test]
    fn other_devices_name_their_servers() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path();
        device(top, "virtual/block/loop7", &[("loop/backing_file", "/srv/a b\n")]);
        device(top, "virtual/block/nbd0", &[("pid", "77\n")]);
        device(top, "rbd/0/block/rbd0", &[]);
        write(top.join("bus/rbd/devices/0/pool"), "kube\n");
        write(top.join("bus/rbd/devices/0/name"), "csi-vol-1\n");
        device(top, "pci0/ata1/host0/target0/block/sdb", &[("device/state", "offline\n")]);
        let served = |name: &str| found(top, vec![requests(name, 0, 1)])[0].served_by.clone();
        let file = ServedBy::File { path: "/srv/a b".into(), mount: None };
        assert_eq!(served("loop7"), Some(file));
        assert_eq!(served("nbd0"), Some(ServedBy::Nbd { pid: Some(77) }));
        assert_eq!(served("rbd0"), Some(ServedBy::Rbd { image: "kube/csi-vol-1".into() }));
        assert_eq!(served("sdb"), Some(ServedBy::Scsi { state: "offline".into() }));
        assert_eq!(served("vda"), None);
    }
}
