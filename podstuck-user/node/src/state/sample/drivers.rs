//! Who answers kubelet's calls to a CSI driver. A driver's registrar, a container of its own, may live
//! while the driver is down, so that its registration proves nothing about the driver.
//!
//! A listener in a container names its socket as it sees it, mostly `/csi/csi.sock`. By the mount tables
//! that is a directory of a file system, and so is the path that kubelet calls: they are compared there.

use std::{
    collections::{HashMap, HashSet},
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::{driver_process, halted::Trees, views::View};
use crate::state::{
    memory::ReadCommandLine,
    namespaces,
    pod_dirs::USUAL_SOCKET,
    registrar::{is_registrar, registration_path},
    sockets::{self, Listener},
};
use podstuck_confine::{helper, proc};
use podstuck_model::{csi::DriverState, mounted::Mounted, mounts::NodeMounts};

/// The state that is kept from one sample to the next.
#[derive(Debug, Default)]
pub(super) struct Drivers {
    /// By the number of a socket: a process that has it open, and its start.
    owners: HashMap<u64, (u32, u64)>,
    /// By process and its start: its command line.
    commands: HashMap<(u32, u64), Vec<u8>>,
}

/// The inputs of a sample.
#[derive(Clone, Copy)]
pub(super) struct Sight<'a> {
    pub(super) node: &'a NodeMounts,
    pub(super) views: &'a [View],
    pub(super) listening: &'a [Listener],
    pub(super) trees: &'a Trees,
}

/// A volume that a driver is asked for.
#[derive(Clone, Copy)]
pub(super) struct Volume<'a> {
    /// Where it is mounted, or would be.
    pub(super) point: &'a Path,
    /// For whom, by the inode number of the mount namespace.
    pub(super) namespace: u32,
    /// Nothing where it is not mounted any more.
    pub(super) mounted: Option<&'a Mounted>,
}

impl Drivers {
    /// The process that answers for the driver registered at a socket, and whether its unmounts reach kubelet. `None`
    /// where that is not known.
    pub(super) fn look(
        &mut self,
        sight: Sight<'_>,
        registration: &Path,
        (driver, has_usual): (&str, bool),
        volume: Volume<'_>,
    ) -> Option<DriverState> {
        let registrar = sockets::listener_on(registration, sight.listening)?;
        let registrar = self.owner(registrar.inode, sight.listening)?;
        let command = self.command(registrar)?;
        let view = sight.views.iter().find(|view| view.namespace == volume.namespace)?;
        let process = |pid| driver_process::look(sight, pid, volume);
        let usual =
            registration.parent()?.with_file_name("plugins").join(driver).join(USUAL_SOCKET);
        let (socket, source) = match registration_path(&command) {
            Some(socket) => (socket, format!("/proc/{registrar}/cmdline")),
            None if has_usual => (usual, "kubelet's directory".to_owned()),
            // A registrar may get its options otherwise. Who registers without one is the driver itself.
            None if is_registrar(&command) => return None,
            None => {
                let source = format!("/proc/{registrar}/cmdline");
                let (socket, process) = (registration.to_owned(), Some(process(registrar)?));
                return Some(DriverState { socket, source, process, registrar: Some(registrar) });
            }
        };
        let found = self.listeners(sight, view, &socket, volume.point)?;
        let process = match found.first() {
            Some(pid) => Some(process(*pid)?),
            None => None,
        };
        Some(DriverState { socket, source, process, registrar: Some(registrar) })
    }

    /// The processes that listen on a path as kubelet sees it; `None` when a candidate cannot be identified.
    fn listeners(
        &mut self,
        sight: Sight<'_>,
        view: &View,
        socket: &Path,
        volume: &Path,
    ) -> Option<Vec<u32>> {
        let mut wanted = vec![view.mounts.place(socket)?];
        wanted.extend(by_volume(socket, volume).and_then(|path| view.mounts.place(&path)));
        let same_name = |listener: &&Listener| listener.path.file_name() == socket.file_name();
        let mut found = Vec::new();
        for listener in sight.listening.iter().filter(same_name) {
            let pid = self.owner(listener.inode, sight.listening)?;
            let table = sight.node.tables.get(&namespaces::of_process(pid)?)?;
            // A path that is not absolute is one of the working directory at that time.
            let here = listener.path.is_absolute().then(|| table.place(&listener.path))??;
            if wanted.contains(&here) {
                found.push(pid);
            }
        }
        Some(found)
    }

    /// A process that has the socket open.
    fn owner(&mut self, inode: u64, listening: &[Listener]) -> Option<u32> {
        // Another process may have been given the id since.
        let is_known = |known: &(u32, u64)| proc::started(known.0) == Some(known.1);
        if !self.owners.get(&inode).is_some_and(is_known) {
            // All that may be asked for next are looked for in one go.
            let name = |listener: &Listener| listener.path.file_name().map(OsStr::to_owned);
            let wanted = listening.iter().find(|listener| listener.inode == inode).and_then(name);
            let may_be_asked = |l: &&Listener| l.inode == inode || is_endpoint(&name(l), &wanted);
            let inodes: HashSet<u64> =
                listening.iter().filter(may_be_asked).map(|listener| listener.inode).collect();
            let owners = sockets::owners(&inodes).into_iter();
            let owners =
                owners.filter_map(|(inode, pid)| Some((inode, (pid, proc::started(pid)?))));
            self.owners = owners.collect();
        }
        self.owners.get(&inode).map(|(pid, _)| *pid)
    }

    fn command(&mut self, pid: u32) -> Option<Vec<u8>> {
        let key = (pid, proc::started(pid)?);
        if let Some(known) = self.commands.get(&key) {
            return Some(known.clone());
        }
        let command = helper::ask(ReadCommandLine { pid }).ok()?;
        // Few have ended.
        self.commands.retain(|(pid, _), _| proc::threads(*pid).next().is_some());
        self.commands.insert(key, command.clone());
        Some(command)
    }
}

/// Names under which drivers and their registrars listen, and the one that is asked for.
fn is_endpoint(name: &Option<OsString>, wanted: &Option<OsString>) -> bool {
    let is_usual = |name: &OsString| name == "csi.sock" || name.as_bytes().ends_with(b"-reg.sock");
    name == wanted || name.as_ref().is_some_and(is_usual)
}

/// The same socket by the place of a volume's mount. Where kubelet's root is a symbolic link, it is called by
/// the link, and mounts are listed by what that leads to.
fn by_volume(socket: &Path, volume: &Path) -> Option<PathBuf> {
    let before = |path: &Path, name: &str| {
        let mut above = path.ancestors().filter(|above| above.file_name() == Some(name.as_ref()));
        above.next().and_then(Path::parent).map(Path::to_owned)
    };
    let inside = socket.strip_prefix(before(socket, "plugins")?).ok()?;
    Some(before(volume, "pods")?.join(inside))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::net::UnixListener, sync::Arc};

    use super::*;

    #[test]
    fn a_socket_in_a_container_is_the_one_on_the_host() {
        let table = |text: &str| proc::parse_mounts(7, text.as_bytes());
        let host = table("9 1 8:1 / / rw - ext4 /dev/sda1 rw\n");
        let inside = table(
            "20 1 0:50 / / rw - overlay o rw\n\
             21 20 8:1 /var/lib/kubelet/plugins/x /csi rw - ext4 /dev/sda1 rw\n",
        );
        let wanted = host.place(Path::new("/var/lib/kubelet/plugins/x/csi.sock"));
        assert!(wanted.is_some());
        assert_eq!(inside.place(Path::new("/csi/csi.sock")), wanted);
        assert_ne!(inside.place(Path::new("/run/csi.sock")), wanted);
        let linked = by_volume(
            Path::new("/var/lib/kubelet/plugins/x/csi.sock"),
            Path::new("/data/kubelet/pods/u/volumes/kubernetes.io~csi/pv/mount"),
        );
        assert_eq!(linked, Some("/data/kubelet/plugins/x/csi.sock".into()));
        assert_eq!(by_volume(Path::new("/run/csi.sock"), Path::new("/k/pods/u")), None);
    }

    /// The kernel takes a mount from the table before it has written back what is left, and the driver waits.
    #[test]
    fn a_driver_is_found_also_where_its_volume_is_not_mounted_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let registration = dir.path().join("plugins_registry/x-reg.sock");
        fs::create_dir_all(registration.parent().unwrap()).unwrap();
        let _listens = UnixListener::bind(&registration).unwrap();
        let own = std::process::id();
        let namespace = namespaces::of_process(own).unwrap();
        let mounts = Arc::new(proc::mounts(own).unwrap());
        let node = NodeMounts { tables: [(namespace, mounts.clone())].into(), host: None };
        let (views, listening) = (vec![View { pid: own, namespace, mounts }], sockets::listening());
        let trees = Trees::among(&[]);
        let sight = Sight { node: &node, views: &views, listening: &listening, trees: &trees };
        let volume = Volume { point: dir.path(), namespace, mounted: None };
        let commands = [((own, proc::started(own).unwrap()), b"x\0".to_vec())].into();
        let mut drivers = Drivers { commands, ..Drivers::default() };
        let state = drivers.look(sight, &registration, ("x", false), volume).unwrap();
        assert_eq!(state.process.map(|process| process.pid), Some(own));
    }
}
