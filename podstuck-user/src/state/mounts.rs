//! Mounts as a process sees them. `/proc/PID/mountinfo` is text that the kernel keeps; reading it
//! touches no file system.

use std::{
    fs,
    os::linux::fs::MetadataExt,
    path::{Path, PathBuf},
};

use procfs::process::Process;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// `mnt_id`, unique while it exists.
    pub id: u32,
    /// Where it is mounted.
    pub point: PathBuf,
    /// Directory of its file system that is visible there.
    pub root: String,
    /// File system type.
    pub fs_type: String,
    /// Device or whatever the type calls its source.
    pub source: String,
    /// `major:minor`
    pub device: String,
}

impl Mount {
    /// What is mounted, in a few words.
    pub fn describe(&self) -> String {
        let what = if self.root == "/" {
            format!("{} of type {}", self.source, self.fs_type)
        } else {
            format!("directory {} of {} ({})", self.root, self.source, self.fs_type)
        };
        format!("{what}, device {}", self.device)
    }
}

/// All mounts of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    /// In the order of mounting.
    pub all: Vec<Mount>,
    /// The file they were read from.
    pub source: String,
}

impl Mounts {
    /// Mounts exactly at a path, the uppermost last.
    pub fn at<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a Mount> {
        self.all.iter().filter(move |m| m.point == path)
    }

    /// Mounts somewhere below a path.
    pub fn below<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a Mount> {
        self.all.iter().filter(move |m| m.point != path && m.point.starts_with(path))
    }

    /// The mount of an id.
    pub fn by_id(&self, id: u32) -> Option<&Mount> {
        self.all.iter().find(|m| m.id == id)
    }
}

/// Mounts of the namespace with this inode number: of `pid` if it still is in there, else of
/// another process that is. `None` when the namespace has no process left that can be read.
pub fn of_namespace(pid: u32, namespace: u32) -> Option<Mounts> {
    let candidates = [Some(pid), Some(std::process::id())].into_iter().flatten();
    let direct = candidates.filter(|pid| is_in(*pid, namespace)).find_map(of_process);
    direct.or_else(|| {
        let everybody = procfs::process::all_processes().ok()?;
        let mut inside =
            everybody.flatten().map(|p| p.pid.unsigned_abs()).filter(|p| is_in(*p, namespace));
        inside.find_map(of_process)
    })
}

fn is_in(pid: u32, namespace: u32) -> bool {
    // `stat` of a namespace link is answered by nsfs; it reaches no other file system.
    fs::metadata(format!("/proc/{pid}/ns/mnt")).is_ok_and(|m| m.st_ino() == u64::from(namespace))
}

fn of_process(pid: u32) -> Option<Mounts> {
    let entries = Process::new(i32::try_from(pid).ok()?).ok()?.mountinfo().ok()?;
    let all = entries
        .into_iter()
        .map(|m| Mount {
            id: m.mnt_id.unsigned_abs(),
            point: m.mount_point,
            root: m.root,
            fs_type: m.fs_type,
            source: m.mount_source.unwrap_or_default(),
            device: m.majmin,
        })
        .collect();
    Some(Mounts { all, source: format!("/proc/{pid}/mountinfo") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_mounts_are_found_by_namespace() {
        let own = fs::metadata("/proc/self/ns/mnt").unwrap().st_ino() as u32;
        let mounts = of_namespace(u32::MAX >> 1, own).unwrap();
        assert!(mounts.at(Path::new("/proc")).count() >= 1);
        let root = mounts.at(Path::new("/")).next().unwrap();
        assert_eq!(mounts.by_id(root.id), Some(root));
        assert!(mounts.below(Path::new("/")).any(|m| m.point == Path::new("/proc")));
    }

    #[test]
    fn nobody_lives_in_a_namespace_that_does_not_exist() {
        assert_eq!(of_namespace(1, 1), None);
    }
}
