//! What holds a pod, done to it by the mechanism that does it in the field, and undone.

use std::{
    fs::{self, File},
    os::{fd::AsRawFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_test_node::Node;
use procfs::process::Process;

use super::pods::OnNode;

/// Where the control file system of FUSE is, if it is mounted.
const FUSE_CONTROL: &str = "/sys/fs/fuse/connections";

/// Something that was done to a pod; dropping it undoes what no remedy has undone.
pub enum Fault {
    /// A file with the attribute.
    Attribute(PathBuf),
    /// A mount.
    Mounted(PathBuf),
    /// A file that makes something fail.
    Failing(PathBuf),
    /// A process.
    Held(Child),
    /// A process that is stopped.
    Stopped(Pid),
    /// A control group of version 1.
    Frozen(PathBuf),
    /// A FUSE file system; the kernel's requests are not read here.
    Silent {
        point: PathBuf,
        /// A remedy may mount the control file system, which is not one of the node's files.
        had_control: bool,
        _device: File,
    },
}

impl Fault {
    /// A file that must not be removed.
    pub fn immutable(file: &Path) -> Self {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "kept").unwrap();
        chattr("+i", file);
        Self::Attribute(file.into())
    }

    /// A directory of the host, mounted in a volume.
    pub fn bind(from: &Path, on: &Path) -> Self {
        for folder in [from, on] {
            fs::create_dir_all(folder).unwrap();
        }
        mount(Some(from), on, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
        Self::Mounted(on.into())
    }

    /// A volume that a mount makes read-only.
    pub fn read_only(volume: &Path) -> Self {
        fs::write(volume.join("kept"), "data").unwrap();
        let fault = Self::bind(volume, volume);
        let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(None::<&str>, volume, None::<&str>, flags, None::<&str>).unwrap();
        fault
    }

    /// Memory, mounted somewhere.
    pub fn tmpfs(on: &Path) -> Self {
        mount(Some("none"), on, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        Self::Mounted(on.into())
    }

    /// A process of the host whose working directory is there.
    pub fn held(directory: &Path) -> Self {
        let mut sleep = Command::new("/bin/sleep");
        sleep.arg("3600").current_dir(directory).stdin(Stdio::null()).process_group(0);
        Self::Held(sleep.spawn().unwrap())
    }

    /// A network plugin that fails to take down the pod's network.
    pub fn network(node: &Node, pod: &str) -> Self {
        let control = node.failing_network(pod);
        fs::write(&control, "").unwrap();
        Self::Failing(control)
    }

    /// It works again.
    pub fn network_works(node: &Node, pod: &str) {
        fs::remove_file(node.failing_network(pod)).unwrap();
    }

    /// A shim that does not answer.
    pub fn stopped_shim(pod: &OnNode) -> Self {
        let first = processes_of(&pod.freezer()).next().unwrap();
        let shim = Process::new(first).unwrap().stat().unwrap().ppid;
        let shim = Pid::from_raw(shim);
        kill(shim, Signal::SIGSTOP).unwrap();
        Self::Stopped(shim)
    }

    /// A control group whose processes do not run.
    pub fn frozen(group: &Path) -> Self {
        fs::write(group.join("freezer.state"), "FROZEN").unwrap();
        Self::Frozen(group.into())
    }

    /// A FUSE file system in a volume, whose server does not answer.
    pub fn hung_fuse(on: &Path) -> Self {
        fs::create_dir_all(on).unwrap();
        let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let kind = Some("fuse.podstuck-test");
        mount(Some("silent"), on, kind, MsFlags::empty(), Some(options.as_str())).unwrap();
        let had_control =
            Path::new(FUSE_CONTROL).read_dir().is_ok_and(|mut all| all.next().is_some());
        Self::Silent { point: on.into(), had_control, _device: device }
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        // A remedy may have done it already.
        match self {
            Self::Attribute(file) if file.exists() => chattr("-i", file),
            Self::Attribute(_) => (),
            Self::Mounted(point) => {
                let _ = umount2(&*point, MntFlags::MNT_DETACH);
            }
            Self::Silent { point, had_control, .. } => {
                let _ = umount2(&*point, MntFlags::MNT_DETACH);
                if !*had_control {
                    let _ = umount2(FUSE_CONTROL, MntFlags::MNT_DETACH);
                }
            }
            Self::Failing(file) => {
                let _ = fs::remove_file(file);
            }
            Self::Stopped(pid) => {
                let _ = kill(*pid, Signal::SIGCONT);
            }
            Self::Held(holder) => {
                let _ = holder.kill();
                let _ = holder.wait();
            }
            Self::Frozen(group) => {
                let _ = fs::write(group.join("freezer.state"), "THAWED");
            }
        }
    }
}

/// Processes of a pod, by its control group.
fn processes_of(group: &Path) -> impl Iterator<Item = i32> {
    let groups =
        fs::read_dir(group).unwrap().flatten().map(|entry| entry.path().join("cgroup.procs"));
    let lists: Vec<String> = groups.filter_map(|list| fs::read_to_string(list).ok()).collect();
    let pids: Vec<i32> =
        lists.iter().flat_map(|list| list.lines()).map(|pid| pid.parse().unwrap()).collect();
    pids.into_iter()
}

fn chattr(flag: &str, file: &Path) {
    assert!(Command::new("chattr").arg(flag).arg(file).status().unwrap().success());
}

/// Many directories, which take kubelet minutes to remove.
pub fn many_directories(volume: &Path, count: u32) {
    const EACH: u32 = 500;
    for folder in 0..count / EACH {
        let folder = volume.join(folder.to_string());
        fs::create_dir(&folder).unwrap();
        (0..EACH).for_each(|name| fs::create_dir(folder.join(name.to_string())).unwrap());
    }
}

/// Where hosts keep what is mounted into pods.
pub fn host_directory(node: &Node, name: &str) -> PathBuf {
    node.top().join("disk/host").join(name)
}

/// Unmounts that directory of the host wherever it is in a volume, as the second command does, once the
/// first one has ended the process that holds it.
pub fn unmount_in_volumes(node: &Node, name: &str) {
    for mount in Process::myself().unwrap().mountinfo().unwrap() {
        let is_in_volume = mount.mount_point.iter().any(|part| part == "volumes");
        if is_in_volume && Path::new(&mount.root).ends_with(name) {
            let unmounts = || umount2(&mount.mount_point, MntFlags::empty()).is_ok();
            node.wait_for("the unmount", unmounts).unwrap();
        }
    }
}

/// What is known of a pod while it runs.
pub type Setup = fn(&Node, &OnNode) -> Vec<Fault>;
