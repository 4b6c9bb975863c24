//! Every open descriptor of the node with the mount that it is on, from `/proc/PID/fdinfo`, which
//! is answered from memory. Descriptors of threads that do not share their process's are not read.

use std::{fs::File, mem::MaybeUninit, os::fd::AsRawFd};

use rustix::fs::{Mode, OFlags, RawDir, open, openat};

use podstuck_confine::proc;

/// One open descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) pid: u32,
    pub(super) fd: u32,
    /// The mount through which it was opened.
    pub(super) mount: u32,
    /// The file's inode number; `None` before Linux 5.14.
    pub(super) inode: Option<u64>,
    /// It may be written to. One that was opened with `O_PATH` may not.
    pub(super) writes: bool,
}

/// `O_ACCMODE`; without it a descriptor is read only, or `O_PATH`.
const ACCESS: u32 = 0o3;

/// All descriptors of all processes but these.
pub(super) fn all(but: &[u32]) -> Vec<Descriptor> {
    let mut found = Vec::with_capacity(16 << 10);
    for pid in proc::processes().into_iter().filter(|pid| !but.contains(pid)) {
        // One that has ended meanwhile holds nothing.
        let _ = of_process(pid, &mut found);
    }
    found
}

fn of_process(pid: u32, found: &mut Vec<Descriptor>) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = open(format!("/proc/{pid}/fdinfo"), flags, Mode::empty())?;
    let mut names = [MaybeUninit::<u8>::uninit(); 8192];
    let mut entries = RawDir::new(&directory, &mut names);
    // What is neither file nor directory (two thirds of a node's descriptors) is read like the rest:
    // its link would tell, and to read that takes half as long again for those that are.
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let Some(fd) = entry.file_name().to_str().ok().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let file =
            openat(&directory, entry.file_name(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        // Closed meanwhile.
        let Ok(file) = file else { continue };
        // `pos`, `flags`, `mnt_id` and `ino` come first.
        let mut text = [0; 160];
        let length = rustix::io::read(&file, &mut text).unwrap_or(0);
        if let Some(Info { mount, inode, writes }) = parse(&text[..length]) {
            found.push(Descriptor { pid, fd, mount, inode, writes });
        }
    }
    Ok(())
}

/// What `fdinfo` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Info {
    mount: u32,
    inode: Option<u64>,
    writes: bool,
}

fn parse(text: &[u8]) -> Option<Info> {
    let (mut mount, mut inode, mut writes) = (None, None, false);
    for line in std::str::from_utf8(text).ok()?.lines().take(4) {
        match line.split_once(':').map(|(name, value)| (name, value.trim())) {
            Some(("mnt_id", value)) => mount = value.parse().ok(),
            Some(("ino", value)) => inode = value.parse().ok(),
            Some(("flags", value)) => {
                writes = u32::from_str_radix(value, 8).is_ok_and(|flags| flags & ACCESS != 0);
            }
            _ => {}
        }
    }
    Some(Info { mount: mount?, inode, writes })
}

/// The kernel's own mount that descriptors of namespaces are on.
pub(super) fn mount_of_namespaces() -> Option<u32> {
    let own = File::open("/proc/self/ns/mnt").ok()?;
    let text = std::fs::read(format!("/proc/self/fdinfo/{}", own.as_raw_fd())).ok()?;
    parse(&text).map(|info| info.mount)
}

#[cfg(test)]
mod tests {
    use std::os::linux::fs::MetadataExt;

    use super::*;

    #[test]
    fn fuzz_fdinfo() {
        podstuck_fuzz::fuzz("fdinfo", |input| {
            let _ = parse(input);
        });
    }

    #[test]
    fn the_first_lines_say_which_mount_and_file() {
        let text = b"pos:\t0\nflags:\t0100002\nmnt_id:\t29\nino:\t1055\nlock:\t";
        assert_eq!(parse(text), Some(Info { mount: 29, inode: Some(1055), writes: true }));
        let old = b"pos:\t0\nflags:\t010000000\nmnt_id:\t29\n";
        assert_eq!(parse(old), Some(Info { mount: 29, inode: None, writes: false }));
        assert_eq!(parse(b"pos:\t0\n"), None);
    }

    #[test]
    fn an_open_file_is_found() {
        let file = tempfile::tempfile().unwrap();
        let (pid, fd) = (std::process::id(), file.as_raw_fd().cast_unsigned());
        let all = all(&[]);
        let own = all.iter().find(|d| (d.pid, d.fd) == (pid, fd)).unwrap();
        assert!(own.inode.is_none_or(|inode| inode == file.metadata().unwrap().st_ino()));
        assert!(
            all.iter().all(|d| d.pid != pid) || super::all(&[pid]).iter().all(|d| d.pid != pid)
        );
        assert!(mount_of_namespaces().is_some_and(|mount| mount != own.mount));
    }
}
