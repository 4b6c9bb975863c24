//! What a detached mount was mounted from. No mount table names it, and a link of `/proc` on it begins at its root;
//! `statmount(2)` reports its file system for a descriptor on it (`STATMOUNT_BY_FD`, Linux 7.0).
//!
//! Its mount point is not reported: an unmounted mount has none (`do_statmount` in fs/namespace.c). Options are not
//! asked for, because each file system prints its own; all else the kernel answers from memory.

use std::{
    ffi::OsStr,
    os::{
        fd::{AsFd, AsRawFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use nix::{errno::Errno, libc};
use rustix::fs::{Mode, OFlags, open};

use podstuck_model::{
    holder::{Detached, MountedFrom},
    path::JsonPath,
};

/// The same on all architectures; `libc` does not name it everywhere.
const SYS_STATMOUNT: libc::c_long = 457;

// Of `linux/mount.h`.
const STATMOUNT_BY_FD: libc::c_uint = 1;
const STATMOUNT_MNT_BASIC: u64 = 0x2;
const STATMOUNT_MNT_ROOT: u64 = 0x8;
const STATMOUNT_FS_TYPE: u64 = 0x20;
const STATMOUNT_SB_SOURCE: u64 = 0x200;
const WANTED: u64 =
    STATMOUNT_MNT_BASIC | STATMOUNT_MNT_ROOT | STATMOUNT_FS_TYPE | STATMOUNT_SB_SOURCE;

/// `struct mnt_id_req`, with a descriptor in place of ids.
#[repr(C)]
struct Request {
    size: u32,
    descriptor: u32,
    mount: u64,
    mask: u64,
    namespace: u64,
}

// Positions in `struct statmount`; those of texts hold their distance from its end.
const MASK: usize = 8;
const FS_TYPE: usize = 36;
const ID: usize = 56;
const ROOT: usize = 104;
const SOURCE: usize = 124;
const TEXTS: usize = 512;
/// Room for a path and a source of `PATH_MAX` each.
const ROOM: usize = TEXTS + (10 << 10);

/// The file system of a detached mount, which a link of `/proc` leads to. To follow the link may wait for a dead server.
pub(super) fn seen_through(link: &Path, mount: u32) -> Detached {
    let held = match open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(held) => held,
        Err(error) => {
            return Detached::Error(format!("{} cannot be followed: {error}", link.display()));
        }
    };
    match of_descriptor(held.as_fd()) {
        Ok((id, from)) if id == mount => Detached::Known(from),
        Ok(_) => Detached::Error(format!("{} leads to another mount by now", link.display())),
        Err(Errno::ENOSYS | Errno::EINVAL) => {
            Detached::Error("only Linux 7.0 and later can report it (statmount(2))".into())
        }
        Err(error) => Detached::Error(format!("statmount(2): {error}")),
    }
}

/// The mount that a descriptor is on: its id and what it shows.
fn of_descriptor(held: impl AsFd) -> nix::Result<(u32, MountedFrom)> {
    let request = Request {
        size: u32::try_from(size_of::<Request>()).unwrap_or_default(),
        descriptor: held.as_fd().as_raw_fd().cast_unsigned(),
        mount: 0,
        mask: WANTED,
        namespace: 0,
    };
    let mut answer = vec![0_u8; ROOM];
    // SAFETY: the request is a `struct mnt_id_req` of the size that it states, and the kernel writes at most `ROOM` bytes
    // into `answer`, which has room for them.
    let status = unsafe {
        libc::syscall(
            SYS_STATMOUNT,
            &raw const request,
            answer.as_mut_ptr(),
            answer.len(),
            STATMOUNT_BY_FD,
        )
    };
    Errno::result(status)?;
    parse(&answer).ok_or(Errno::ENODATA)
}

/// The id of a mount and what it shows; `None` if the kernel did not report all of it.
fn parse(answer: &[u8]) -> Option<(u32, MountedFrom)> {
    let mask = u64::from_ne_bytes(*answer.get(MASK..)?.first_chunk()?);
    if mask & WANTED != WANTED {
        return None;
    }
    let number = |at: usize| Some(u32::from_ne_bytes(*answer.get(at..)?.first_chunk()?));
    let text = |at: usize| {
        let begin = usize::try_from(number(at)?).ok()?.checked_add(TEXTS)?;
        answer.get(begin..)?.split(|byte| *byte == 0).next()
    };
    let lossy = |at: usize| Some(String::from_utf8_lossy(text(at)?).into_owned());
    let root = JsonPath(Path::new(OsStr::from_bytes(text(ROOT)?)).into());
    Some((number(ID)?, MountedFrom { fs_type: lossy(FS_TYPE)?, source: lossy(SOURCE)?, root }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(mask: u64, texts: &[u8]) -> Vec<u8> {
        let mut answer = vec![0; TEXTS];
        answer[MASK..MASK + 8].copy_from_slice(&mask.to_ne_bytes());
        for (at, value) in [(ID, 77_u32), (FS_TYPE, 0), (ROOT, 5), (SOURCE, 10)] {
            answer[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        answer.extend(texts);
        answer
    }

    #[test]
    fn fuzz_statmount() {
        podstuck_fuzz::fuzz("statmount", |input| {
            let _ = parse(input);
        });
    }

    #[test]
    fn texts_are_found_by_their_distance_from_the_structure() {
        let (id, from) = parse(&answer(WANTED | 1, b"ext4\0/a b\0/dev/sdb1\0")).unwrap();
        let found = Detached::Known(from).describe();
        assert_eq!((id, found.as_str()), (77, "directory /a b of /dev/sdb1 (ext4)"));
        assert_eq!(
            parse(&answer(WANTED & !STATMOUNT_SB_SOURCE, b"ext4\0/a\0.\0/dev/sdb1\0")),
            None
        );
        assert_eq!(parse(&answer(WANTED, b"ext4")), None, "texts are missing");
    }

    /// The kernel and its mount table agree, where it can report a mount by a descriptor.
    #[test]
    fn a_mount_is_as_in_the_mount_table() {
        let held = std::fs::File::open("/proc/self/status").unwrap();
        match of_descriptor(&held) {
            Ok((id, from)) => {
                let table = podstuck_confine::proc::mounts(std::process::id()).unwrap();
                let mount = table.by_id(id).unwrap();
                assert_eq!(
                    (from.fs_type, from.source),
                    (mount.fs_type.clone(), mount.source.clone())
                );
                assert_eq!(from.root.0, mount.root);
            }
            Err(Errno::ENOSYS | Errno::EINVAL) => {
                eprintln!("skipped: this kernel has no STATMOUNT_BY_FD, Linux 7.0 has")
            }
            Err(error) => panic!("statmount: {error}"),
        }
    }
}
