//! What a process holds beside its descriptors: working directory, root, program, mapped files.
//!
//! The mount behind the links `cwd`, `root` and `exe` is asked of `statx` (`STATX_MNT_ID`), which
//! follows the link to the very mount, whatever its path has become. That is exact, but it can
//! wait for a dead server (NFS and 9p look at the object again when a link leads to it), and
//! `maps` waits for the lock of the process's memory, which a process in trouble may hold for
//! ever. So this runs in the helper process only; for a process at which a helper has hung,
//! [`by_text`] compares the text of the links with the process's own mounts instead.

use std::{
    cell::LazyCell,
    collections::{BTreeMap, HashSet},
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

use memchr::memmem;
use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};

use super::{
    mappings, people,
    relation::{Hit, Wanted},
};
use podstuck_confine::proc;
use podstuck_model::{
    holder::{Holder, How},
    mountinfo,
    mounts::Device,
    path::JsonPath,
};

const LINKS: [(How, &str); 3] = [(How::Cwd, "cwd"), (How::Root, "root"), (How::Exe, "exe")];

/// What the file system behind a link or path says from memory: mount, device and inode.
pub(super) fn look(path: &Path) -> Option<(u32, Device, u64)> {
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let seen = statx(CWD, path, flags, StatxFlags::INO | StatxFlags::MNT_ID).ok()?;
    let mount = mount_of(&seen)?;
    let device = Device { major: seen.stx_dev_major, minor: seen.stx_dev_minor };
    Some((mount, device, seen.stx_ino))
}

/// The mount, where the kernel tells it (since Linux 5.8).
pub(super) fn mount_of(seen: &Statx) -> Option<u32> {
    let has_id = StatxFlags::from_bits_retain(seen.stx_mask).contains(StatxFlags::MNT_ID);
    has_id.then(|| u32::try_from(seen.stx_mnt_id).ok()).flatten()
}

/// Working directory, root and program, and of what is wanted they hold which. May wait for a dead file system.
pub(super) fn links(pid: u32, all: &[(usize, Wanted)]) -> Vec<(usize, Holder)> {
    let mut found = Vec::new();
    for (how, name) in LINKS {
        let path = format!("/proc/{pid}/{name}");
        let Some((mount, device, inode)) = look(Path::new(&path)) else { continue };
        for (at, wanted) in all {
            if let Some(hit) = wanted.hit(mount, Some(device), Some(inode)) {
                let hit = hit.named(Path::new(&path));
                let holder = people::process(pid, how, hit, target(&path), path.clone());
                found.push((*at, holder));
            }
        }
    }
    found
}

/// The same from the text of the links alone, which never waits: the mount of the process's own
/// table that covers the path. Not exact: another mount may lie over that place since.
pub(super) fn by_text(pid: u32, all: &[(usize, Wanted)]) -> Vec<(usize, Holder)> {
    let Some(table) = proc::mounts(pid) else { return Vec::new() };
    let mut found = Vec::new();
    for (how, name) in LINKS {
        let path = format!("/proc/{pid}/{name}");
        let object = target(&path);
        let Some(mount) = table.covering(&object.0) else { continue };
        for (at, wanted) in all.iter().filter(|(_, wanted)| wanted.inode.is_none()) {
            if let Some(hit) = wanted.hit(mount.id, None, None) {
                let holder = people::process(pid, how, hit, object.clone(), path.clone());
                found.push((*at, Holder { exact: false, ..holder }));
            }
        }
    }
    found
}

/// What a link of `/proc` says that it leads to; it is not followed.
pub(super) fn target(link: &str) -> JsonPath {
    JsonPath(fs::read_link(link).unwrap_or_default())
}

/// Mapped files. May wait for the process's memory lock.
pub(super) fn maps(pid: u32, all: &[(usize, Wanted)]) -> Vec<(usize, Holder)> {
    let Ok(mut file) = File::open(format!("/proc/{pid}/maps")) else { return Vec::new() };
    let is_wanted = |device| all.iter().any(|(_, wanted)| wanted.device == device);
    // Nearly all processes have no such mapping, and some have ten thousand others.
    if mappings::any_on(&file, is_wanted).is_ok_and(|any| !any) {
        return Vec::new();
    }
    let mut text = Vec::new();
    if file.read_to_end(&mut text).is_err() {
        return Vec::new();
    }
    let of = |(at, wanted): &(usize, Wanted)| {
        let held = mapped(pid, &text, wanted, || likely_mount(pid, wanted.device));
        let at = *at;
        held.into_iter().map(move |holder| (at, holder))
    };
    all.iter().flat_map(of).collect()
}

/// The same from the text. `likely` is asked at most once: it reads a whole mount table.
fn mapped(
    pid: u32,
    text: &[u8],
    wanted: &Wanted,
    likely: impl FnOnce() -> Option<Likely>,
) -> Vec<Holder> {
    let device = format!(" {:02x}:{:02x} ", wanted.device.major, wanted.device.minor);
    // Before Linux 6.11 the text must tell.
    if memmem::find(text, device.as_bytes()).is_none() {
        return Vec::new();
    }
    let likely = LazyCell::new(likely);
    let mut inodes = HashSet::new();
    let mut found: BTreeMap<u32, Holder> = BTreeMap::new();
    for mapping in text.split(|byte| *byte == b'\n').filter_map(|line| mapping(line, &device)) {
        let of_interest = wanted.inode.is_none_or(|inode| inode == mapping.inode);
        if !of_interest || !inodes.insert(mapping.inode) {
            continue;
        }
        let through = mapped_through(pid, &mapping, wanted, || *likely);
        let Some((hit, exact)) = through else { continue };
        let source = format!("/proc/{pid}/maps");
        let holder = found.entry(hit.mount.id).or_insert_with(|| {
            let holder = people::process(pid, How::Map, hit, JsonPath(mapping.path), source);
            Holder { count: 0, exact, ..holder }
        });
        holder.count += 1;
    }
    found.into_values().collect()
}

/// A line of `maps`.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    /// As in `map_files`.
    range: String,
    inode: u64,
    path: PathBuf,
}

/// `7f00000-7f01000 r-xp 00000000 08:01 1234   /usr/lib/x.so`, if it is of this device.
fn mapping(line: &[u8], device: &str) -> Option<Mapping> {
    let at = memmem::find(line, device.as_bytes())?;
    let head = std::str::from_utf8(line.get(..at)?).ok()?;
    // Range, permissions, offset: a path further on may look like a device.
    let mut fields = head.split(' ');
    let (range, _, _) = (fields.next()?, fields.next()?, fields.next()?);
    if fields.next().is_some() {
        return None;
    }
    let rest = line.get(at + device.len()..)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let inode: u64 = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    let (from, to) = range.split_once('-')?;
    let bare = |address: &str| match address.trim_start_matches('0') {
        "" => "0".to_owned(),
        digits => digits.to_owned(),
    };
    Some(Mapping {
        range: format!("{}-{}", bare(from), bare(to)),
        inode,
        path: mountinfo::unescape(rest[digits..].trim_ascii_start()),
    })
}

/// The mount that a process's mappings of a device probably go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Likely {
    mount: u32,
    /// Its namespace has no other mount of the file system.
    only: bool,
}

fn likely_mount(pid: u32, device: Device) -> Option<Likely> {
    let table = proc::mounts(pid)?;
    let mut own = table.all.iter().filter(|mount| mount.device == device);
    let mount = own.next()?.id;
    Some(Likely { mount, only: own.next().is_none() })
}

/// The mount that a file was mapped through. `map_files` shows it exactly, to a process with
/// `CAP_CHECKPOINT_RESTORE` (or `CAP_SYS_ADMIN`); without, the answer is known only if the process's
/// namespace has but one mount of the file system.
fn mapped_through(
    pid: u32,
    mapping: &Mapping,
    wanted: &Wanted,
    likely: impl FnOnce() -> Option<Likely>,
) -> Option<(Hit, bool)> {
    let link = format!("/proc/{pid}/map_files/{}", mapping.range);
    if let Some((mount, device, inode)) = look(Path::new(&link)) {
        let hit = wanted.hit(mount, Some(device), Some(inode))?;
        return Some((hit.named(Path::new(&link)), true));
    }
    let Likely { mount, only } = likely()?;
    let hit = wanted.hit(mount, None, Some(mapping.inode))?;
    Some((Hit { explains: hit.explains.filter(|_| only), ..hit }, false))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn fuzz_maps() {
        podstuck_fuzz::fuzz("maps", |input| {
            let _ = input
                .split(|byte| *byte == b'\n')
                .filter_map(|line| mapping(line, " 08:01 "))
                .count();
            let _ = target(&String::from_utf8_lossy(input));
        });
    }

    #[test]
    fn a_mapping_is_recognised_by_its_device() {
        let line =
            b"7f0012000000-7f0012001000 r-xp 00002000 08:01 1234                       /a b\\012";
        let expected = Mapping {
            range: "7f0012000000-7f0012001000".into(),
            inode: 1234,
            path: "/a b\n".into(),
        };
        assert_eq!(mapping(line, " 08:01 "), Some(expected));
        assert_eq!(mapping(line, " 08:02 "), None);
        let low = b"00400000-00401000 r-xp 0 08:01 7 /x";
        assert_eq!(mapping(low, " 08:01 ").map(|m| m.range).as_deref(), Some("400000-401000"));
        let hostile = b"7f00-7f01 r-xp 0 08:01 7      /x 08:02 9 ";
        assert_eq!(mapping(hostile, " 08:02 "), None);
    }

    #[test]
    fn the_mount_table_is_read_at_most_once_and_only_where_it_is_needed() {
        let table = "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:9 / /v rw - tmpfs t rw";
        let tables = [(1, Arc::new(proc::parse_mounts(1, table.as_bytes())))];
        let node = podstuck_model::mounts::NodeMounts { tables: tables.into(), host: Some(1) };
        let wanted = Wanted::mount(&node.into(), 1, 2).unwrap();
        // No such process: its `map_files` cannot be read.
        let pid = u32::MAX >> 1;
        let text = b"1000-2000 r-xp 0 00:09 7 /v/a\n2000-3000 r-xp 0 00:09 8 /v/b\n";
        // That it is `FnOnce` is half of the test.
        let once = || Some(Likely { mount: 2, only: true });
        let found = mapped(pid, text, &wanted, once);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].count, found[0].exact, found[0].mount.id), (2, false, 2));
        let other = b"1000-2000 r-xp 0 08:01 7 /a\n";
        assert_eq!(mapped(pid, other, &wanted, || panic!("not needed")), []);
    }

    #[test]
    fn own_working_directory_is_on_a_mount() {
        let (mount, _, _) = look(Path::new("/proc/self/cwd")).unwrap();
        let table = proc::mounts(std::process::id()).unwrap();
        assert!(table.by_id(mount).is_some());
    }
}
