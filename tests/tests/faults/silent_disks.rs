//! Disks that do not answer until they are resumed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use nix::{
    mount::{MntFlags, umount2},
    sys::signal::Signal,
};
use podstuck_tests::{FuseServer, done, has_fuse, requires, root_and_btf, slowdown};

/// A file system, mounted where it was said.
pub(crate) trait Disk {
    fn at(&self) -> &Path;

    /// Requests wait from now on.
    fn stop(&self);

    /// Requests that wait are answered.
    fn go_on(&self);
}

/// Runs a test with a FUSE server's file system.
pub(crate) fn on_fuse(test: fn(&dyn Disk)) {
    requires!(root_and_btf(), has_fuse());
    let at = tempfile::tempdir().unwrap();
    test(&FuseServer::mount(at.path()));
}

/// Runs a test with a disk of the kernel's.
pub(crate) fn on_device_mapper(test: fn(&dyn Disk)) {
    requires!(root_and_btf(), device_mapper());
    let at = tempfile::tempdir().unwrap();
    test(&Suspended::mount(at.path()));
}

/// While there is this, a disk does not answer. What must not wait for it when a test fails is there before it.
pub(crate) struct Silence<'a>(&'a dyn Disk);

impl<'a> Silence<'a> {
    pub(crate) fn of(disk: &'a dyn Disk) -> Self {
        disk.stop();
        Self(disk)
    }
}

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        self.0.go_on();
    }
}

/// Stopped, it reads no request.
impl Disk for FuseServer {
    fn at(&self) -> &Path {
        self.at()
    }

    fn stop(&self) {
        self.signal(Signal::SIGSTOP);
    }

    fn go_on(&self) {
        self.signal(Signal::SIGCONT);
    }
}

/// A FUSE server that takes a request and does not answer it: a process that waits for it cannot be killed.
pub(crate) struct Held(pub(crate) FuseServer);

impl Disk for Held {
    fn at(&self) -> &Path {
        self.0.at()
    }

    fn stop(&self) {
        self.0.signal(Signal::SIGUSR1);
        self.0.has_said("held\n");
    }

    fn go_on(&self) {
        self.0.signal(Signal::SIGUSR2);
    }
}

/// A disk of the kernel's, which the device mapper suspends. A thread that waits for it cannot be killed, as with
/// one whose cable was pulled.
pub(crate) struct Suspended {
    at: PathBuf,
    name: String,
    looped: String,
    _image: tempfile::TempDir,
}

/// All processes share its devices, and one that is left behind would keep the machine from going down: so this is
/// tried only in a guest.
pub(crate) fn device_mapper() -> Result<(), &'static str> {
    if slowdown() == 1 {
        Err("a disk that hangs in the kernel: in a guest only")
    } else if !Path::new("/dev/mapper/control").exists() {
        Err("no device mapper")
    } else {
        Ok(())
    }
}

impl Suspended {
    const SIZE: u64 = 128 << 20;

    pub(crate) fn mount(at: &Path) -> Self {
        // In memory, and not on what hangs.
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        fs::File::create(&image).unwrap().set_len(Self::SIZE).unwrap();
        let looped = done(Command::new("losetup").arg("-f"));
        done(Command::new("losetup").arg(&looped).arg(&image));
        let name = format!("podstuck-{}", std::process::id());
        let table = format!("0 {} linear {looped} 0", Self::SIZE / 512);
        let disk = Self { at: at.to_owned(), name, looped, _image: directory };
        disk.mapper(&["create", &disk.name, "--table", &table]);
        // Without udev its name has no device file.
        let own = ["info", "-c", "--noheadings", "-o", "blkdevname", &disk.name];
        let device = format!("/dev/{}", disk.mapper(&own));
        done(Command::new("mkfs.ext4").args(["-q", &device]));
        done(Command::new("mount").args(["-t", "ext4", &device]).arg(at));
        disk
    }

    fn mapper(&self, words: &[&str]) -> String {
        let mut mapper = Command::new("dmsetup");
        done(mapper.args(words).args(["--noudevsync", "--noudevrules"]))
    }
}

impl Disk for Suspended {
    fn at(&self) -> &Path {
        &self.at
    }

    fn stop(&self) {
        // What is in memory needs no disk. Not `sync`, which waits for all disks.
        nix::unistd::syncfs(fs::File::open(&self.at).unwrap()).unwrap();
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        // Not frozen by the file system first, as no disk is that dies.
        self.mapper(&["suspend", "--nolockfs", "--noflush", &self.name]);
    }

    fn go_on(&self) {
        self.mapper(&["resume", &self.name]);
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        let quiet = |program: &str, words: &[&str]| {
            Command::new(program)
                .args(words)
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|s| s.success())
        };
        quiet("dmsetup", &["resume", &self.name]);
        let _ = umount2(&self.at, MntFlags::MNT_DETACH);
        // Those that waited end first.
        let is_gone = || quiet("dmsetup", &["remove", "--noudevsync", "--noudevrules", &self.name]);
        for _ in 0..50 {
            if is_gone() {
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
        quiet("losetup", &["-d", &self.looped]);
    }
}
