//! The agent sees the node's mounts, in a container whose rights are the manifest's: it keeps none of them busy, and no file
//! system alive after its unmount.

use std::{
    cell::RefCell,
    env, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::stat::{major, minor},
};
use podstuck_tests::{lab, requires, root_and_btf};

use super::{
    as_by_systemd::AsBySystemd,
    image::{agents_pod, has_counted, run_agent},
    made::{done, has, made, tool},
};

/// A disk that is mounted for one pod after the other. While its file system is alive, the kernel has a directory for it.
struct Disk {
    device: String,
    _top: tempfile::TempDir,
}

impl Disk {
    fn new() -> Self {
        let top = tempfile::Builder::new().prefix("podstuck-test-").tempdir_in("/var/tmp").unwrap();
        let image = top.path().join("disk");
        fs::File::create(&image).unwrap().set_len(8 << 20).unwrap();
        // Without a journal a mount writes little.
        done(tool("mkfs.ext4").args(["-q", "-F", "-O", "^has_journal"]).arg(&image));
        let device = done(tool("losetup").args(["--find", "--show"]).arg(&image));
        Self { device: device.trim().to_owned(), _top: top }
    }

    fn is_alive(&self) -> bool {
        Path::new("/sys/fs/ext4").join(self.device.rsplit('/').next().unwrap()).exists()
    }

    /// Whether it is not only in mount namespaces of tests that run beside this one, such as a lab's. What no process
    /// has mounted is kept by a descriptor or a namespace that only the agent can have.
    fn is_kept_by_what_is_tested(&self) -> bool {
        let number = fs::metadata(&self.device).unwrap().rdev();
        let number = format!("{}:{}", major(number), minor(number));
        let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
        let has_it = |process: &PathBuf| {
            let table = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
            table.lines().any(|line| line.split(' ').nth(2) == Some(&number))
        };
        let keepers = processes.filter(has_it).collect::<Vec<_>>();
        let is_tested = |process: &PathBuf| {
            let words = fs::read_to_string(process.join("cmdline")).unwrap_or_default();
            ["podstuck-agent", "\0watch\0", HOLDER].iter().any(|word| words.contains(word))
        };
        keepers.is_empty() || keepers.iter().any(is_tested)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = tool("losetup").args(["--detach", &self.device]).status();
    }
}

/// The command line of a process that has a copy of the mounts.
const HOLDER: &str = "sleep\x003600";

/// What went wrong in a number of deletions.
#[derive(Debug, Default)]
struct Trouble {
    busy_unmounts: u32,
    busy_directories: u32,
    kept_alive: u32,
    /// For less than [`MOMENT`]: any process that makes a mount namespace copies the mounts, and drops most of them.
    alive_for_a_moment: u32,
}

const MOMENT: Duration = Duration::from_secs(2);

impl Trouble {
    /// What a holder causes, and nothing else on the machine.
    fn of_a_holder(&self) -> [u32; 3] {
        [self.busy_unmounts, self.busy_directories, self.kept_alive]
    }
}

/// A pod's directory with three mounts.
struct Pod {
    directory: PathBuf,
    points: [PathBuf; 3],
}

impl Pod {
    fn make(root: &Path, disk: &Disk, nth: u32) -> Self {
        let name = format!("{nth:08x}-5a5a-4000-8000-000000000000");
        let directory = root.join("pods").join(name);
        let volumes = directory.join("volumes");
        let memory = volumes.join("kubernetes.io~empty-dir/memory");
        let [on_disk, bound] =
            ["disk", "bound"].map(|it| volumes.join("kubernetes.io~csi").join(it).join("mount"));
        for point in [&memory, &on_disk, &bound] {
            fs::create_dir_all(point).unwrap();
        }
        let none = None::<&str>;
        mount(Some("tmpfs"), &memory, Some("tmpfs"), MsFlags::empty(), none).unwrap();
        mount(Some(&*disk.device), &on_disk, Some("ext4"), MsFlags::empty(), none).unwrap();
        mount(Some(&on_disk), &bound, none, MsFlags::MS_BIND, none).unwrap();
        fs::write(memory.join("f"), "f").unwrap();
        fs::write(bound.join("f"), "f").unwrap();
        Self { directory, points: [bound, on_disk, memory] }
    }

    /// As kubelet does it: it unmounts, and removes the directories.
    fn delete(self, disk: &Disk, trouble: &mut Trouble) {
        fs::remove_file(self.points[0].join("f")).unwrap();
        for point in &self.points {
            while let Err(why) = umount2(point, MntFlags::empty()) {
                assert_eq!(why, Errno::EBUSY, "{}", point.display());
                trouble.busy_unmounts += 1;
            }
        }
        if disk.is_alive() {
            let begun = Instant::now();
            while disk.is_alive() && begun.elapsed() < MOMENT {
                thread::sleep(Duration::from_millis(1));
            }
            let is_kept = disk.is_alive() && disk.is_kept_by_what_is_tested();
            trouble.kept_alive += u32::from(is_kept);
            trouble.alive_for_a_moment += u32::from(!is_kept);
        }
        trouble.busy_directories += remove(&self.directory);
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        for point in &self.points {
            let _ = umount2(point, MntFlags::MNT_DETACH);
        }
    }
}

/// Makes and deletes pods, one after the other.
fn delete_pods(root: &Path, disk: &Disk, count: u32) -> Trouble {
    let mut trouble = Trouble::default();
    let begun = Instant::now();
    (0..count).for_each(|nth| Pod::make(root, disk, nth).delete(disk, &mut trouble));
    println!("measured: {count} pods deleted in {:.1?}: {trouble:?}", begun.elapsed());
    trouble
}

/// Removes a tree of directories alone; how often one was busy.
fn remove(tree: &Path) -> u32 {
    let inside = fs::read_dir(tree).unwrap().map(|entry| entry.unwrap().path());
    let mut busy: u32 = inside.collect::<Vec<PathBuf>>().iter().map(|it| remove(it)).sum();
    while let Err(why) = fs::remove_dir(tree) {
        assert_eq!(why.raw_os_error(), Some(Errno::EBUSY as i32), "{}", tree.display());
        busy += 1;
    }
    busy
}

#[test]
fn the_agent_keeps_no_mount_of_a_deleted_pod() {
    requires!(made(), has("runc"), has("losetup"), has("mkfs.ext4"), root_and_btf());
    // By hand thousands, which take minutes.
    let count = env::var("PODSTUCK_TEST_DELETIONS").map_or(300, |text| text.parse().unwrap());
    let _machine = AsBySystemd::new();
    let disk = Disk::new();
    // A pod that is stuck all the time, about which the agent examines processes and mounts.
    let (stuck, ready) = lab("immutable-attribute", &[]);
    let [uid, root] = ["pod_uid", "kubelet_root"].map(|key| ready[key].as_str().unwrap());
    let root = Path::new(root);
    let alone = delete_pods(root, &disk, count);
    assert_eq!(alone.of_a_holder(), [0; 3]);
    // What would be seen of a holder: a process with a copy of the mounts, from which nothing is unmounted.
    let mut trouble = Trouble::default();
    let pod = Pod::make(root, &disk, count);
    let mut holder = tool("unshare");
    holder.args(["--mount", "--propagation=private"]).args(HOLDER.split('\0'));
    let mut holder = holder.spawn().unwrap();
    while fs::read_link(format!("/proc/{}/ns/mnt", holder.id())).unwrap()
        == fs::read_link("/proc/self/ns/mnt").unwrap()
    {
        thread::sleep(Duration::from_millis(10));
    }
    // Until its copy is private.
    thread::sleep(Duration::from_millis(200));
    pod.delete(&disk, &mut trouble);
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(trouble.of_a_holder(), [0, 0, 1]);
    stuck.resume();

    // This one is there before the agent is.
    let before = RefCell::new(Some(Pod::make(root, &disk, count)));

    let state = tempfile::tempdir().unwrap();
    let beside = RefCell::new(None);
    let options = ["--kubelet-root", root.to_str().unwrap()];
    run_agent(&agents_pod(state.path()), &options, &|container| {
        let lines = fs::read_to_string(container.at("out")).unwrap();
        let is_found = lines.lines().any(|line| line.contains("\"finding\"") && line.contains(uid));
        if beside.borrow().is_none() && has_counted(state.path()) && is_found {
            let mut trouble = Trouble::default();
            before.take().unwrap().delete(&disk, &mut trouble);
            assert_eq!(trouble.of_a_holder(), [0; 3]);
            beside.replace(Some(delete_pods(root, &disk, count)));
        }
        beside.borrow().is_some()
    });
    stuck.stop();
    assert_eq!(beside.into_inner().unwrap().of_a_holder(), [0; 3]);
}
