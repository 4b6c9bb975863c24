//! The system calls that a stuck deletion may be in, and where in their arguments the object is.

use nix::libc;
use podstuck_common::{in_flight::InFlight, record::call};

use podstuck_model::call::Call;

const AT_FDCWD: i32 = -100;
const AT_REMOVEDIR: u64 = 0x200;

/// The directory where an object's path begins, and the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Argument {
    /// The directory's descriptor, or `AT_FDCWD`.
    pub(super) directory: i32,
    /// Address of the rest in the caller's memory; `None` when the descriptor is the object.
    pub(super) text: Option<u64>,
}

/// A call in `/proc/PID/task/TID/syscall` that is of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// As reports show it.
    pub(super) name: &'static str,
    /// Whether it deletes, renames or unmounts; else it reads what is to be deleted.
    pub(super) deletes: bool,
    /// The object.
    pub(super) argument: Argument,
}

/// The call with this number and these arguments; `None` for others.
pub(super) fn known(number: libc::c_long, arguments: &[u64; 6]) -> Option<Known> {
    let [first, second, third, ..] = *arguments;
    let path = Argument { directory: AT_FDCWD, text: Some(first) };
    // A descriptor is an `int`: its upper half means nothing.
    let at = Argument { directory: first as i32, text: Some(second) };
    let open = Argument { directory: first as i32, text: None };
    let remove = if third & AT_REMOVEDIR != 0 { Call::UnlinkatDir } else { Call::Unlinkat };
    let (name, deletes, argument) = match number {
        libc::SYS_umount2 => (Call::Umount2.name(), true, path),
        libc::SYS_unlinkat => (remove.name(), true, at),
        libc::SYS_renameat => ("renameat", true, at),
        libc::SYS_renameat2 => ("renameat2", true, at),
        libc::SYS_newfstatat => ("newfstatat", false, at),
        libc::SYS_statx => ("statx", false, at),
        libc::SYS_openat => ("openat", false, at),
        libc::SYS_openat2 => ("openat2", false, at),
        libc::SYS_getdents64 => ("getdents64", false, open),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink => (Call::Unlink.name(), true, path),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rmdir => (Call::Rmdir.name(), true, path),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename => ("rename", true, path),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_stat => ("stat", false, path),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_lstat => ("lstat", false, path),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => ("open", false, path),
        _ => return None,
    };
    Some(Known { name, deletes, argument })
}

/// The call that the probes saw entered.
pub(super) fn entered(entry: &InFlight) -> Option<Known> {
    let code = u8::try_from(entry.call).ok()?;
    let name = if code == call::RENAME { "rename" } else { Call::from_code(code)?.name() };
    let argument = Argument { directory: entry.dirfd, text: Some(entry.path) };
    Some(Known { name, deletes: true, argument })
}

/// Whether a thread waits for a child.
pub(super) fn waits_for_child(number: libc::c_long) -> bool {
    [libc::SYS_wait4, libc::SYS_waitid].contains(&number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_is_where_each_call_has_it() {
        let arguments = [0xffff_ffff_ffff_ff9c, 0x1000, 0x200, 0, 0, 0];
        let removal = known(libc::SYS_unlinkat, &arguments).unwrap();
        assert_eq!((removal.name, removal.deletes), ("unlinkat+AT_REMOVEDIR", true));
        assert_eq!(removal.argument, Argument { directory: AT_FDCWD, text: Some(0x1000) });
        let read = known(libc::SYS_getdents64, &[7, 0x1000, 9, 0, 0, 0]).unwrap();
        assert_eq!(read.argument, Argument { directory: 7, text: None });
        assert_eq!(known(libc::SYS_futex, &arguments), None);
    }

    #[test]
    fn a_rename_is_no_deletion_by_another_name() {
        let entry = InFlight { call: u16::from(call::RENAME), dirfd: 3, ..InFlight::default() };
        assert_eq!(entered(&entry).unwrap().name, "rename");
    }
}
