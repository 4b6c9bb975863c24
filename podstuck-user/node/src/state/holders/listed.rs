//! Mount namespaces that the kernel lists (`listns(2)`, Linux 6.19): also those that no process is in and no file of
//! `/proc` shows, such as one whose descriptor waits in a socket's queue to be received. `lsof` and `fuser` do not
//! see their mounts.

use std::{
    fs::File,
    os::fd::{FromRawFd, OwnedFd, RawFd},
};

use nix::{errno::Errno, libc};
use podstuck_confine::refused_calls::FD_NSFS_ROOT;

/// The same on all architectures; `libc` does not name it.
const SYS_LISTNS: libc::c_long = 470;
/// More than these are not asked for at a time, nor are more than `PAGES` times as many listed.
const AT_A_TIME: usize = 512;
const PAGES: usize = 64;

/// `struct ns_id_req` of `linux/nsfs.h`.
#[repr(C)]
struct Request {
    size: u32,
    spare: u32,
    /// Those after this one.
    after: u64,
    kind: u32,
    spare2: u32,
    owner: u64,
}

/// `struct file_handle` with a `struct nsfs_file_handle`: the id alone is enough.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    id: [u32; 2],
    namespace: u32,
    inode: u32,
}

/// `FILEID_NSFS` of `linux/exportfs.h`.
const FILEID_NSFS: i32 = 0xf1;

/// Opens the listed namespaces. Empty on an older kernel; without `CAP_SYS_ADMIN` in the user namespace of a namespace,
/// that one is omitted.
pub(super) fn mount_namespaces() -> Vec<File> {
    let mut found = Vec::new();
    let mut after = 0;
    for _ in 0..PAGES {
        let page = list(after).unwrap_or_default();
        let Some(last) = page.last() else { break };
        after = *last;
        // One that has ended meanwhile cannot be opened.
        found.extend(page.iter().filter_map(|id| open(*id).ok()));
    }
    found
}

fn list(after: u64) -> nix::Result<Vec<u64>> {
    let request = Request {
        size: u32::try_from(size_of::<Request>()).unwrap_or_default(),
        spare: 0,
        after,
        kind: libc::CLONE_NEWNS.cast_unsigned(),
        spare2: 0,
        owner: 0,
    };
    let mut ids = vec![0_u64; AT_A_TIME];
    // SAFETY: the request is a `struct ns_id_req` of the size that it states, and the kernel writes at most `AT_A_TIME`
    // numbers into `ids`, which has room for them.
    let listed = unsafe {
        libc::syscall(SYS_LISTNS, &raw const request, ids.as_mut_ptr(), AT_A_TIME, 0_u32)
    };
    ids.truncate(usize::try_from(Errno::result(listed)?).unwrap_or_default());
    Ok(ids)
}

fn open(id: u64) -> nix::Result<File> {
    let halves = id.to_ne_bytes();
    let half = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| halves[at + byte]));
    let id = [half(0), half(4)];
    let handle = Handle { bytes: 16, kind: FILEID_NSFS, id, namespace: 0, inode: 0 };
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the handle is a `struct file_handle` of 16 bytes, as it states, which the kernel only reads.
    let opened = unsafe {
        libc::syscall(libc::SYS_open_by_handle_at, FD_NSFS_ROOT, &raw const handle, flags)
    };
    let opened = RawFd::try_from(Errno::result(opened)?).map_err(|_| Errno::EBADF)?;
    // SAFETY: the call has just returned this descriptor, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) }.into())
}

#[cfg(test)]
mod tests {
    use std::os::linux::fs::MetadataExt;

    use nix::errno::Errno;

    use super::{list, open};

    #[test]
    fn our_own_namespace_is_listed_where_the_kernel_lists_them() {
        let own = std::fs::metadata("/proc/self/ns/mnt").unwrap().st_ino();
        match list(0) {
            Err(Errno::ENOSYS) => {
                eprintln!("skipped: this kernel has no listns(2), Linux 6.19 has")
            }
            Err(error) => panic!("listns: {error}"),
            Ok(ids) => {
                let inode =
                    |id: &u64| open(*id).map(|file| file.metadata().map_or(0, |it| it.st_ino()));
                assert!(ids.iter().any(|id| inode(id) == Ok(own)), "{ids:?}");
            }
        }
    }
}
