//! Who listens on local sockets. `/proc/PID/net/unix` shows one network namespace, with the path
//! that the listener gave: in a container that is a path of the container's, so that only the name
//! of the file is sure to be the same on the host.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use podstuck_confine::{proc, silent};

/// `__SO_ACCEPTCON` of include/linux/net.h: the socket listens.
const LISTENS: u32 = 1 << 16;

/// A listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listener {
    /// As the listener named it.
    pub(super) path: PathBuf,
    /// Number of the socket, as in the link `socket:[22117]` of a descriptor.
    pub(super) inode: u64,
}

/// The sockets of one network namespace that have a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// The listening sockets.
    pub(super) listening: Vec<Listener>,
    /// The daemon's ends of connections, with the path that it listens on. One that was not accepted has no number
    /// yet, and 0 here.
    pub(super) connected: Vec<Listener>,
}

/// All listening sockets, in every network namespace that has a process.
pub(super) fn listening() -> Vec<Listener> {
    let mut seen = HashMap::new();
    for pid in proc::processes() {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let Some(namespace) = proc::namespace(&process, "net") else { continue };
        seen.entry(namespace)
            .or_insert_with(|| fs::read(format!("/proc/{pid}/net/unix")).unwrap_or_default());
    }
    seen.values().flat_map(|table| listeners(table)).collect()
}

/// Those in the network namespace of a process.
pub(super) fn table_for(process: &Path) -> Table {
    let text = silent::read(process, |process| fs::read(process.join("net/unix")).ok());
    let text = text.unwrap_or_default();
    let connected = sockets(&text).filter(|socket| !socket.listens);
    let connected = connected.map(|socket| socket.named).collect();
    Table { listening: listeners(&text).collect(), connected }
}

/// The numbers of a process's sockets, of any kind.
pub(super) fn sockets_of(process: &Path) -> HashSet<u64> {
    let links = silent::read(process, |process| Some(descriptors(process))).unwrap_or_default();
    links.iter().filter_map(|link| socket_inode(link.to_str()?)).collect()
}

/// Where a process listens.
pub(super) fn of_process(pid: u32, listening: &[Listener]) -> Vec<PathBuf> {
    let own = sockets_of(Path::new(&format!("/proc/{pid}")));
    let own = listening.iter().filter(|listener| own.contains(&listener.inode));
    own.map(|listener| listener.path.clone()).collect()
}

fn listeners(table: &[u8]) -> impl Iterator<Item = Listener> {
    sockets(table).filter(|socket| socket.listens).map(|socket| socket.named)
}

/// A line with the path of a file.
struct Socket {
    named: Listener,
    listens: bool,
}

/// `Num RefCount Protocol Flags Type St Inode Path`, as in
/// `0000000000000000: 00000002 00000000 00010000 0001 01 22117 /run/x.sock`
fn sockets(table: &[u8]) -> impl Iterator<Item = Socket> {
    table.split(|byte| *byte == b'\n').filter_map(|line| {
        // The path is the eighth field and may have spaces; before it may be several.
        let mut rest = line;
        let (mut flags, mut inode) = (None, None);
        for field in 0..7 {
            let end = rest.iter().position(|byte| *byte == b' ')?;
            let (word, after) = rest.split_at(end);
            let word = std::str::from_utf8(word);
            match field {
                3 => flags = u32::from_str_radix(word.ok()?, 16).ok(),
                6 => inode = word.ok()?.parse().ok(),
                _ => {}
            }
            rest = after.trim_ascii_start();
        }
        let listens = flags? & LISTENS != 0;
        // Abstract names begin with `@` and are no files.
        let is_file = !rest.is_empty() && !rest.starts_with(b"@");
        let named = Listener { path: OsStr::from_bytes(rest).into(), inode: inode? };
        is_file.then_some(Socket { named, listens })
    })
}

/// What the links of a process's descriptors say.
pub(super) fn descriptors(process: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    all.filter_map(|entry| fs::read_link(entry.path()).ok()).collect()
}

/// The processes that have these sockets open, one for each. The links are read and not followed.
pub(super) fn owners(sockets: &HashSet<u64>) -> HashMap<u64, u32> {
    let mut found = HashMap::new();
    for pid in proc::processes() {
        let process = PathBuf::from(format!("/proc/{pid}"));
        for link in silent::read(&process, |process| Some(descriptors(process))).unwrap_or_default()
        {
            let inode = link.to_str().and_then(socket_inode);
            if let Some(inode) = inode.filter(|inode| sockets.contains(inode)) {
                found.entry(inode).or_insert(pid);
            }
        }
        if found.len() == sockets.len() {
            break;
        }
    }
    found
}

pub(super) fn socket_inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Who listens on kubelet's registration socket `file`. A listener in a container has
/// mounted the directory elsewhere, as on `/registration`; one that names another
/// `plugins_registry` belongs to another node.
pub(super) fn listener_on<'a>(file: &Path, listening: &'a [Listener]) -> Option<&'a Listener> {
    let (name, directory) = (file.file_name()?, file.parent()?);
    listening.iter().find(|Listener { path, .. }| {
        path.is_absolute()
            && path.file_name() == Some(name)
            && path.parent().is_some_and(|found| {
                let same = found.as_os_str().as_bytes().ends_with(directory.as_os_str().as_bytes());
                same || found.file_name() != directory.file_name()
            })
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn fuzz_net_unix() {
        podstuck_fuzz::fuzz("net_unix", |input| {
            let found: Vec<Listener> = listeners(input).collect();
            let _ = listener_on(Path::new("/k/plugins_registry/x-reg.sock"), &found);
        });
    }

    #[test]
    fn who_listens_is_found_and_who_does_not_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (live, dead) = (dir.path().join("live-reg.sock"), dir.path().join("dead-reg.sock"));
        let _listener = UnixListener::bind(&live).unwrap();
        drop(UnixListener::bind(&dead).unwrap());
        let listening = listening();
        let on = |path: &Path| listening.iter().find(|listener| listener.path == path);
        let inode = on(&live).unwrap().inode;
        assert!(on(&dead).is_none());
        let owners = owners(&HashSet::from([inode]));
        assert_eq!(owners, HashMap::from([(inode, std::process::id())]));
    }

    #[test]
    fn connections_are_seen_on_the_daemons_side_and_before_they_are_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let count = || {
            let table = table_for(Path::new("/proc/self"));
            let own = table.connected.into_iter().filter(|it| it.path == path);
            own.map(|it| it.inode != 0).collect::<Vec<_>>()
        };
        assert_eq!(count(), Vec::<bool>::new());
        let client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        assert_eq!(count(), [false]);
        let taken = listener.accept().unwrap();
        assert_eq!(count(), [true]);
        drop((client, taken));
        assert_eq!(count(), Vec::<bool>::new());
    }

    #[test]
    fn lines_are_read_to_the_end() {
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 22117 /run/a b.sock\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 22118 /run/a b.sock\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 22119 @abstract\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 22120\n";
        let found: Vec<_> = listeners(table).collect();
        let named = |inode| Listener { path: "/run/a b.sock".into(), inode };
        assert_eq!(found, [named(22117)]);
        let connected: Vec<_> =
            sockets(table).filter(|it| !it.listens).map(|it| it.named).collect();
        assert_eq!(connected, [named(22118)], "with the listener's path");
    }

    #[test]
    fn a_registrar_in_a_container_listens_under_another_directory() {
        let file = Path::new("/var/lib/kubelet/plugins_registry/d-reg.sock");
        let heard =
            |path: &str| listener_on(file, &[Listener { path: path.into(), inode: 1 }]).is_some();
        assert!(heard("/var/lib/kubelet/plugins_registry/d-reg.sock"));
        assert!(heard("/host/var/lib/kubelet/plugins_registry/d-reg.sock"));
        assert!(heard("/registration/d-reg.sock"));
        assert!(!heard("/registration/e-reg.sock"));
        assert!(!heard("/tmp/other/plugins_registry/d-reg.sock"));
    }
}
