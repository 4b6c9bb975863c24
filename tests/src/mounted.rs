//! Mounts of a test's own.

use std::{
    borrow::BorrowMut,
    fs::{self, File},
    ops::Deref,
    path::{Path, PathBuf},
    process::Command,
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
};
use tempfile::NamedTempFile;

const NONE: Option<&str> = None;

/// Where file systems are made: the words after which the image's name comes.
pub const EXT4: &[&str] = &["mkfs.ext4", "-q", "-F"];
/// The same for btrfs.
pub const BTRFS: &[&str] = &["mkfs.btrfs", "-q"];

/// What a command prints, without white space around it; it must succeed.
pub fn done(mut command: impl BorrowMut<Command>) -> String {
    let command = command.borrow_mut();
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Runs a printed command in a shell; it must succeed.
pub fn obey(command: &str) {
    done(Command::new("sh").args(["-c", command]));
}

/// Gives this test's thread and its children a mount namespace of their own.
pub fn own_mounts() {
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).unwrap();
}

/// A place where something is mounted. When this is dropped, it is unmounted lazily, as a process may still use it.
pub struct Mounted(pub PathBuf);

impl Mounted {
    /// Mounts a file system in memory, with these options of tmpfs(5).
    pub fn memory(point: impl Into<PathBuf>, options: &str) -> Self {
        let point = point.into();
        mount(Some("podstuck"), &point, Some("tmpfs"), MsFlags::empty(), Some(options)).unwrap();
        Self(point)
    }

    /// Mounts a directory or a file at another place.
    pub fn bind(from: &Path, point: impl Into<PathBuf>) -> Self {
        let point = point.into();
        mount(Some(from), &point, NONE, MsFlags::MS_BIND, NONE).unwrap();
        Self(point)
    }

    /// Mounts an image, with these options of mount(8) beside `loop`. The loop device goes with the mount.
    pub fn image(image: &Path, point: impl Into<PathBuf>, options: &str) -> Self {
        let point = point.into();
        let options = format!("loop,{options}");
        done(
            Command::new("mount").args(["-o", options.trim_end_matches(',')]).args([image, &point]),
        );
        Self(point)
    }

    /// Freezes the file system until what is returned is dropped.
    pub fn freeze(&self) -> Frozen {
        done(Command::new("fsfreeze").arg("--freeze").arg(&self.0));
        Frozen(self.0.clone())
    }
}

impl Deref for Mounted {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

/// A frozen file system.
pub struct Frozen(PathBuf);

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("--unfreeze").arg(&self.0).status();
    }
}

/// Makes an image of this many bytes, which are not allocated, with a file system.
pub fn make_image(image: &Path, bytes: u64, make: &[&str]) {
    File::create(image).unwrap().set_len(bytes).unwrap();
    let mut make_on = Command::new(make[0]);
    done(make_on.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").args(&make[1..]).arg(image));
}

/// A disk of its own, whose image lies in `/var/tmp`.
pub struct Disk {
    mounted: Mounted,
    _image: NamedTempFile,
}

impl Disk {
    /// Makes one and mounts it on a directory, which is made.
    pub fn mount(point: &Path, bytes: u64, make: &[&str], options: &str) -> Self {
        fs::create_dir_all(point).unwrap();
        let image = NamedTempFile::with_prefix_in("podstuck-", "/var/tmp").unwrap();
        make_image(image.path(), bytes, make);
        Self { mounted: Mounted::image(image.path(), point, options), _image: image }
    }
}

impl Deref for Disk {
    type Target = Mounted;

    fn deref(&self) -> &Mounted {
        &self.mounted
    }
}

/// What tests with btrfs need.
///
/// # Errors
///
/// When this machine cannot make or mount one.
pub fn has_btrfs() -> Result<(), &'static str> {
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    if !known.lines().any(|line| line.trim() == "btrfs") {
        return Err("this kernel has no btrfs");
    }
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if has("mkfs.btrfs") && has("btrfs") { Ok(()) } else { Err("no mkfs.btrfs") }
}
