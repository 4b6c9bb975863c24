//! An ext4 file system of the test's own, in a file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use nix::mount::{MntFlags, umount2};

use super::{output, program};

/// Mounted until this is dropped.
pub(crate) struct LoopDisk {
    image: PathBuf,
    point: PathBuf,
}

impl LoopDisk {
    /// Makes one for `inodes` files and mounts it on a directory, which is made.
    pub(crate) fn on(point: PathBuf, name: &str, inodes: u32) -> Self {
        fs::create_dir_all(&point).unwrap();
        // `/run` is memory, and small: the image lies elsewhere.
        let image = Path::new("/var/tmp").join(format!("{name}.img"));
        let disk = Self { image, point };
        // A directory takes a block.
        let size = (4 << 30) + u64::from(inodes) * 8192;
        fs::File::create(&disk.image).unwrap().set_len(size).unwrap();
        let mut make = program("mkfs.ext4");
        make.args(["-q", "-F", "-N", &inodes.to_string()]).arg(&disk.image);
        output(make);
        let mut attach = program("mount");
        attach.args(["-o", "loop"]).args([&disk.image, &disk.point]);
        output(attach);
        disk
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = umount2(&self.point, MntFlags::MNT_DETACH);
        let _ = fs::remove_file(&self.image);
    }
}
