//! A disk that can be frozen.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

/// A file system of its own, frozen for as long as it is said.
pub(crate) struct Freezable {
    top: tempfile::TempDir,
}

impl Freezable {
    pub(crate) fn mount() -> Self {
        let top = tempfile::tempdir().unwrap();
        let (image, at) = (top.path().join("image"), top.path().join("at"));
        fs::create_dir(&at).unwrap();
        fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        run_ok(Command::new("mkfs.ext4").arg("-q").arg(&image));
        run_ok(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at));
        Self { top }
    }

    pub(crate) fn at(&self) -> PathBuf {
        self.top.path().join("at")
    }

    pub(crate) fn freeze(&self) {
        run_ok(Command::new("fsfreeze").arg("--freeze").arg(self.at()));
    }

    pub(crate) fn thaw(&self) {
        run_ok(Command::new("fsfreeze").arg("--unfreeze").arg(self.at()));
    }
}

impl Drop for Freezable {
    fn drop(&mut self) {
        // It fails unless a test has failed.
        let _ = Command::new("fsfreeze")
            .arg("--unfreeze")
            .arg(self.at())
            .stderr(Stdio::null())
            .status();
        let _ = Command::new("umount").arg("--lazy").arg(self.at()).status();
    }
}

fn run_ok(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}
