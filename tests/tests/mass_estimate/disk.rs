//! A file system of one's own, in a mount namespace that ends with the test's thread: mount and loop
//! device go with it, also when the test fails.

use std::{fs::File, path::PathBuf, process::Command};

use nix::mount::{MsFlags, mount};
use podstuck_tests::own_mounts;
use tempfile::TempDir;

/// Enough for every tree; the image has holes.
const SIZE: u64 = 1 << 30;

pub(crate) struct Disk {
    directory: TempDir,
}

impl Disk {
    /// Fails with the reason why this machine cannot have it.
    pub(crate) fn mount(file_system: &str) -> Result<Self, String> {
        own_mounts();
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let (image, top) = (directory.path().join("image"), directory.path().join("top"));
        std::fs::create_dir(&top).unwrap();
        // Names are hashed with a seed, which decides in which order they are read.
        let uuid = "5d6f3c1a-0b7e-4a55-9c7e-2f8a41d0b6c3";
        let options: &[&str] = match file_system {
            "tmpfs" => {
                let options = Some("size=512m,nr_inodes=400000");
                mount(Some("tmpfs"), &top, Some("tmpfs"), MsFlags::empty(), options)
                    .map_err(|errno| errno.to_string())?;
                return Ok(Self { directory });
            }
            "ext4" => &["-q", "-F", "-N", "400000", "-E", &format!("hash_seed={uuid}")],
            _ => &["-q", "-f"],
        };
        File::create(&image).and_then(|file| file.set_len(SIZE)).unwrap();
        run(Command::new(format!("mkfs.{file_system}")).args(options).arg(&image))?;
        run(Command::new("mount").args(["-o", "loop"]).args([&image, &top]))?;
        Ok(Self { directory })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("top")
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

impl Drop for Disk {
    /// So that the directory can be removed; a loop device goes with its mount.
    fn drop(&mut self) {
        let _ = nix::mount::umount2(&self.path(), nix::mount::MntFlags::MNT_DETACH);
    }
}
