//! Removes the lab's directory in all cases.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::{attribute, layout::Pod};

/// The lab's directory, removed when this is dropped.
#[derive(Debug)]
pub(super) struct LabDirectory {
    path: PathBuf,
    present: bool,
}

impl LabDirectory {
    pub(super) fn new(directory: TempDir) -> Self {
        Self { path: directory.keep(), present: true }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the directory with its contents.
    pub(super) fn remove(&mut self) -> Result<()> {
        if !self.present {
            return Ok(());
        }
        self.present = false;
        let path = &self.path;
        if let Some(mount) = mount_below(path)? {
            bail!(
                "{} is still mounted, so nothing below {} was removed; unmount it, then remove the \
                 directory",
                mount.display(),
                path.display()
            );
        }
        let removed = fs::remove_dir_all(path).or_else(|error| {
            if error.kind() != io::ErrorKind::PermissionDenied {
                return Err(error);
            }
            clear_attributes(path);
            fs::remove_dir_all(path)
        });
        removed.with_context(|| format!("cannot remove {}; remove it by hand", path.display()))
    }
}

impl Drop for LabDirectory {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            super::note(&format!("podstuck lab: {error:#}"));
        }
    }
}

/// Moves the rest of the pod out of the directories of pods, so that a watcher does not report the clean-up as
/// deletions of the pod.
///
/// Moves the directories above the pod's own: a renamed pod directory still counts as the pod's.
pub(super) fn move_aside(pod: &Pod) {
    for (place, name) in [(pod.directory(), "retired"), (pod.logs(), "retired-logs")] {
        // If the rename fails, the files are removed in place.
        let _ = place.parent().map(|pods| fs::rename(pods, pod.root.join(name)));
    }
}

/// Clears the attributes that forbid deletion, recursively. An error here shows up in the following removal, with its
/// reason.
fn clear_attributes(path: &Path) {
    let _ = attribute::clear(path);
    let Ok(entries) = fs::read_dir(path) else { return };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => clear_attributes(&entry.path()),
            Ok(kind) if kind.is_file() => {
                let _ = attribute::clear(&entry.path());
            }
            _ => {}
        }
    }
}

/// A mount at or below `root` in this thread's mount namespace.
fn mount_below(root: &Path) -> Result<Option<PathBuf>> {
    let source = "/proc/thread-self/mountinfo";
    let table = fs::read(source).with_context(|| format!("cannot read {source}"))?;
    let root = as_in_mountinfo(root);
    // `ID PARENT DEVICE ROOT POINT ...`
    let points =
        table.split(|byte| *byte == b'\n').filter_map(|line| line.split(|b| *b == b' ').nth(4));
    let found =
        points.map(|point| Path::new(OsStr::from_bytes(point))).find(|p| p.starts_with(&root));
    Ok(found.map(Path::to_owned))
}

/// The name as the kernel escapes it there: white space and backslashes in octal.
fn as_in_mountinfo(path: &Path) -> PathBuf {
    let mut escaped = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => escaped.extend(format!("\\{byte:03o}").into_bytes()),
            _ => escaped.push(*byte),
        }
    }
    OsString::from_vec(escaped).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_below_a_directory_only() {
        assert!(mount_below(Path::new("/proc")).unwrap().is_some());
        assert!(mount_below(Path::new("/pro")).unwrap().is_none());
    }

    #[test]
    fn names_are_compared_as_the_kernel_writes_them() {
        assert_eq!(as_in_mountinfo(Path::new("/a b\\c")), Path::new("/a\\040b\\134c"));
    }

    #[test]
    fn a_dropped_directory_is_gone() {
        let directory = LabDirectory::new(tempfile::tempdir().unwrap());
        let path = directory.path().to_owned();
        fs::create_dir_all(path.join("a/b")).unwrap();
        drop(directory);
        assert!(!path.exists());
    }
}
