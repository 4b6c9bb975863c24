//! Processes the entry of a call: stores the data that is needed when it returns.

use core::hint::black_box;

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
use podstuck_common::{config::step, entry_point::EntryPointId, in_flight::InFlight, record::call};

use super::{globals::stop_after, in_flight, owner};

const AT_REMOVEDIR: u32 = 0x200;

/// A deletion or an unmount.
#[inline(always)]
pub(crate) fn deletion(entry_point: EntryPointId, call: u8, dirfd: i32, path: u64, flags: u32) {
    if stop_after(step::PAIR) {
        return;
    }
    let call =
        if call == call::UNLINKAT && flags & AT_REMOVEDIR != 0 { call::UNLINKAT_DIR } else { call };
    put(&InFlight {
        thread: bpf_get_current_pid_tgid(),
        claims: 0,
        // SAFETY: no arguments.
        start_ns: unsafe { bpf_ktime_get_ns() },
        path,
        // `black_box`: adjacent zeros would be set byte by byte, see `words`.
        second: black_box(0),
        mnt: 0,
        dirfd,
        flags,
        inode: 0,
        call: u16::from(call),
        entry_point,
    });
}

/// A rename: two pairs of directory and path.
#[inline(always)]
pub(crate) fn rename(entry_point: EntryPointId, call: u8, from: (i32, u64), to: (i32, u64)) {
    if stop_after(step::PAIR) {
        return;
    }
    put(&InFlight {
        thread: bpf_get_current_pid_tgid(),
        claims: 0,
        // SAFETY: no arguments.
        start_ns: unsafe { bpf_ktime_get_ns() },
        path: from.1,
        second: to.1,
        mnt: 0,
        dirfd: from.0,
        flags: to.0 as u32,
        inode: 0,
        call: u16::from(call),
        entry_point,
    });
}

#[inline(always)]
fn put(entry: &InFlight) {
    if !stop_after(step::CLOCKS) && owner::processes(entry.thread, entry.path, entry.flags) {
        in_flight::put(entry);
    }
}
