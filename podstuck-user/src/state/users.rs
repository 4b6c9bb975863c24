//! Processes that have something open below a directory, or are in it, by the text of their links.
//! The links are read, never followed.

use std::{ffi::OsStr, fs, path::Path};

use crate::model::path::safe;

/// Users that are named. One is enough to go and ask.
const NAMED: usize = 8;
/// `O_ACCMODE`; without it a descriptor is read only, or `O_PATH`.
const ACCESS: u32 = 0o3;

/// A process that uses something below a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Process id.
    pub pid: u32,
    /// Its name. Safe to show.
    pub comm: String,
    /// What it has there, as in `its working directory`.
    pub how: &'static str,
    /// It has something open there to write to.
    pub writes: bool,
}

/// Who is below a directory, as far as the paths are those of our mount namespace, those first who
/// write. `owner` is left out: it is the one who deletes.
pub fn below(directory: &Path, owner: u32) -> Vec<User> {
    let mut users = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if pid == owner || pid == std::process::id() {
            continue;
        }
        if let Some((how, writes)) = uses(&entry.path(), directory) {
            let comm = fs::read(entry.path().join("comm")).unwrap_or_default();
            users.push(User { pid, comm: safe(comm.trim_ascii_end()).into_owned(), how, writes });
        }
    }
    users.sort_by_key(|user| !user.writes);
    users.truncate(NAMED);
    users
}

/// What a process has below a directory, and whether it writes there.
fn uses(process: &Path, directory: &Path) -> Option<(&'static str, bool)> {
    let is_below = |link: &Path| fs::read_link(link).is_ok_and(|to| to.starts_with(directory));
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let mut open = open.filter(|entry| is_below(&entry.path())).peekable();
    if is_below(&process.join("cwd")) {
        let writes = open.any(|entry| is_written(process, &entry.file_name()));
        return Some(("its working directory", writes));
    }
    open.peek()?;
    if open.any(|entry| is_written(process, &entry.file_name())) {
        return Some(("a file open for writing", true));
    }
    Some(("an open file", false))
}

/// Whether a descriptor may be written to. What `fdinfo` says comes from memory.
fn is_written(process: &Path, descriptor: &OsStr) -> bool {
    let text = fs::read_to_string(process.join("fdinfo").join(descriptor)).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & ACCESS != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_in_a_directory_is_found() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(below(dir.path(), 0), []);
        let mut child =
            std::process::Command::new("sleep").arg("60").current_dir(dir.path()).spawn().unwrap();
        let found = below(dir.path(), 0);
        let of_owner = below(dir.path(), child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        let how = "its working directory";
        let comm = found[0].comm.clone();
        assert_eq!(found, [User { pid: found[0].pid, comm, how, writes: false }]);
        assert_eq!(found[0].pid, child.id());
        assert_eq!(of_owner, []);
    }

    #[test]
    fn who_writes_comes_before_those_who_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let writer = fs::File::create(&path).unwrap();
        let mut sleep = std::process::Command::new("sleep");
        sleep.arg("60");
        let mut start = |input: fs::File| sleep.stdin(input).spawn().unwrap();
        let mut children: Vec<_> =
            (0..NAMED).map(|_| start(fs::File::open(&path).unwrap())).collect();
        children.push(start(writer));
        let found = below(dir.path(), 0);
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!((found.len(), found[0].pid), (NAMED, children[NAMED].id()));
        assert!(found[0].writes && found[1..].iter().all(|user| !user.writes));
        assert_eq!((found[0].how, found[1].how), ("a file open for writing", "an open file"));
    }
}
