//! Processes that use something below a directory: have it open, or are in it. All of it is answered
//! from memory, and links are read but never followed.
//!
//! A descriptor tells its mount. Of that it is known which part of the file system it shows, so that
//! a process is found that has the directory mounted elsewhere, as a container has a volume. What lies
//! below the directory is then found by the text of the link, which begins where the mount is.

use std::{
    collections::{BTreeMap, HashMap},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use super::{
    descriptors::{self, Descriptor},
    own,
    process::target,
};
use crate::state::{mounts, namespaces};
use podstuck_confine::proc;
use podstuck_model::{
    mounts::{Mount, Mounts, NodeMounts},
    object::User,
    path::safe,
};

/// Users that are named. One is enough to go and ask.
const NAMED: usize = 8;

/// Who uses something below a directory, as this process sees it in the namespace of this inode number;
/// those first who write. `pid` itself is left out: it is the one who deletes.
pub(in crate::state) fn users_below(pid: u32, namespace: u32, directory: &Path) -> Vec<User> {
    let but: Vec<u32> = own::processes().into_iter().chain([pid]).collect();
    let descriptors = descriptors::all(&but);
    let node = mounts::read_all();
    // The caller's own view, if it still is there.
    let own = proc::mounts(pid).filter(|_| namespaces::of_process(pid) == Some(namespace));
    let Some(table) = own.as_ref().or(node.tables.get(&namespace).map(|table| &**table)) else {
        return Vec::new();
    };
    let Some(below) = Below::new(table, directory, &node) else { return Vec::new() };
    let mut users: BTreeMap<u32, User> = BTreeMap::new();
    for open in descriptors.iter().filter(|open| below.holds(open)) {
        let user = users.entry(open.pid).or_insert_with(|| user(open.pid, "an open file"));
        if open.writes && !is_left_over(&target(&link(open)).0, || age(open)) {
            (user.how, user.writes) = ("a file open for writing".into(), true);
        }
    }
    for pid in proc::processes().into_iter().filter(|pid| !but.contains(pid)) {
        if below.is_in(pid, &node) {
            users.entry(pid).or_insert_with(|| user(pid, "")).how = "its working directory".into();
        }
    }
    let mut users: Vec<User> = users.into_values().collect();
    users.sort_by_key(|user| !user.writes);
    users.truncate(NAMED);
    users
}

/// Who makes files while others are removed has one open that was made so long ago at most.
const NEW: Duration = Duration::from_secs(10);

/// Whether what is open has no name any more, and was there before: what the removal has taken away is not what is there
/// still. A file may have such a name, which proves nothing for its writer.
fn is_left_over(target: &Path, age: impl FnOnce() -> Option<Duration>) -> bool {
    let is_deleted = target.as_os_str().as_bytes().ends_with(b" (deleted)");
    is_deleted && age().is_none_or(|age| age > NEW)
}

fn link(open: &Descriptor) -> String {
    format!("/proc/{}/fd/{}", open.pid, open.fd)
}

/// How long ago it was made; `None` where the file system does not keep that. What is in memory is not asked of a server.
fn age(open: &Descriptor) -> Option<Duration> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let Ok(seen) = statx(CWD, link(open), flags, StatxFlags::BTIME) else {
        // It was closed since, as by who makes one file after the other.
        return Some(Duration::ZERO);
    };
    let is_known = seen.stx_mask & StatxFlags::BTIME.bits() != 0;
    let made = Duration::from_secs(is_known.then_some(seen.stx_btime.tv_sec)?.try_into().ok()?);
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?.checked_sub(made)
}

fn user(pid: u32, how: &str) -> User {
    let comm = safe(&proc::comm(Path::new(&format!("/proc/{pid}")))).into_owned();
    User { pid, started: proc::started(pid), comm, how: how.into(), writes: false }
}

/// Where the directory can be seen: by mount, the path that it has there.
struct Below(HashMap<u32, PathBuf>);

impl Below {
    /// `None` when nothing is mounted where the directory is.
    fn new(table: &Mounts, directory: &Path, node: &NodeMounts) -> Option<Self> {
        let mount = table.covering(directory)?;
        let path = mount.root.join(directory.strip_prefix(&mount.point).ok()?);
        let same = node.all().map(|(_, _, other)| other);
        let same = same.filter(|other| other.device == mount.device);
        let mut shown: HashMap<u32, PathBuf> =
            same.filter_map(|other| Some((other.id, place(other, &path)?))).collect();
        // What is mounted in it is a part of it, too.
        shown.extend(table.below(directory).map(|nested| (nested.id, nested.point.clone())));
        Some(Self(shown))
    }

    fn holds(&self, open: &Descriptor) -> bool {
        let link = || target(&format!("/proc/{}/fd/{}", open.pid, open.fd));
        self.0.get(&open.mount).is_some_and(|place| link().0.starts_with(place))
    }

    /// Whether a process has its working directory there, by the mount of its namespace that the
    /// link's text lies on.
    fn is_in(&self, pid: u32, node: &NodeMounts) -> bool {
        let directory = target(&format!("/proc/{pid}/cwd")).0;
        // Nearly all are elsewhere by their text already.
        if !self.0.values().any(|place| directory.starts_with(place)) {
            return false;
        }
        let table = namespaces::of_process(pid).and_then(|namespace| node.tables.get(&namespace));
        let mount = table.and_then(|table| table.covering(&directory));
        let place = mount.and_then(|mount| self.0.get(&mount.id));
        place.is_some_and(|place| directory.starts_with(place))
    }
}

/// Where a mount shows a path of its file system; the mount itself where it shows only what is below
/// that path, `None` where it shows nothing of it.
fn place(mount: &Mount, path: &Path) -> Option<PathBuf> {
    if mount.root.starts_with(path) {
        return Some(mount.point.clone());
    }
    Some(mount.point.join(path.strip_prefix(&mount.root).ok()?))
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command, sync::Arc};

    use super::*;

    /// In the helper the tool is left out; here the tests' own children are not.
    fn below(directory: &Path, owner: u32) -> Vec<User> {
        let own = namespaces::of_process(std::process::id()).unwrap();
        users_below(owner, own, directory)
    }

    #[test]
    fn who_is_in_a_directory_is_found() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(below(dir.path(), 0), []);
        let mut child = Command::new("sleep").arg("60").current_dir(dir.path()).spawn().unwrap();
        let found = below(dir.path(), 0);
        let of_owner = below(dir.path(), child.id());
        let pid = child.id();
        let started = proc::started(pid);
        child.kill().unwrap();
        child.wait().unwrap();
        let how = "its working directory".to_owned();
        let comm = found[0].comm.clone();
        assert_eq!(found, [User { pid, started, comm, how, writes: false }]);
        assert_eq!(of_owner, []);
    }

    #[test]
    fn who_writes_comes_before_those_who_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let writer = fs::File::create(&path).unwrap();
        let mut sleep = Command::new("sleep");
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
        assert_eq!(
            (found[0].how.as_str(), found[1].how.as_str()),
            ("a file open for writing", "an open file")
        );
    }

    #[test]
    fn who_has_a_removed_file_open_does_not_write_what_is_there() {
        let (gone, there) = (Path::new("/v/log (deleted)"), Path::new("/v/log"));
        let seconds = |it| Some(Duration::from_secs(it));
        assert!(is_left_over(gone, || None) && is_left_over(gone, || seconds(60)));
        assert!(!is_left_over(gone, || seconds(2)), "such files are made again and again");
        assert!(!is_left_over(there, || None) && !is_left_over(there, || seconds(60)));
    }

    #[test]
    fn who_has_a_file_open_that_was_just_made_and_removed_writes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let writer = fs::File::create(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let mut child = Command::new("sleep").arg("60").stdin(writer).spawn().unwrap();
        let found = below(dir.path(), 0);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((found.len(), found[0].writes), (1, true), "{found:?}");
    }

    #[test]
    fn a_directory_is_known_wherever_it_is_mounted() {
        let host = "1 0 8:1 / / rw - ext4 /dev/a rw\n5 1 0:9 / /k/pods/u/v/x rw - tmpfs t rw";
        let container = "20 0 0:50 / / rw - overlay o rw\n\
            21 20 8:1 /k/pods/u/v /data rw - ext4 /dev/a rw\n\
            22 20 8:1 /k/pods/u/v/sub /sub rw - ext4 /dev/a rw\n\
            23 20 8:1 /k/pods /pods rw - ext4 /dev/a rw\n\
            24 20 8:1 /k/other /other rw - ext4 /dev/a rw";
        let tables = [(1, host), (2, container)].map(|(namespace, text)| {
            (namespace, Arc::new(proc::parse_mounts(namespace, text.as_bytes())))
        });
        let node = NodeMounts { tables: tables.into(), host: Some(1) };
        let found = Below::new(&node.tables[&1], Path::new("/k/pods/u/v"), &node).unwrap();
        let mut places: Vec<(u32, &str)> =
            found.0.iter().map(|(id, place)| (*id, place.to_str().unwrap())).collect();
        places.sort_unstable();
        let expected = [
            (1, "/k/pods/u/v"),
            (5, "/k/pods/u/v/x"),
            (21, "/data"),
            (22, "/sub"),
            (23, "/pods/u/v"),
        ];
        assert_eq!(places, expected);
    }
}
