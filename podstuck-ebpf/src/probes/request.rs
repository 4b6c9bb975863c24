//! Requests of io_uring to delete. They are a call like any other, except that their arguments lie in
//! the kernel's memory, and that the name is freed before the request has its result.
//!
//! A thread carries out one request at a time, and none while it is in a call of its own.

use aya_ebpf::{
    bindings::BPF_ANY,
    btf_maps::{HashMap, PerCpuArray},
    helpers::{bpf_get_current_pid_tgid, generated},
    macros::btf_map,
};
use podstuck_common::{
    entry_point::EntryPointId,
    in_flight::{AT_FDCWD, IO_URING_NAME, IO_URING_NAMES},
    record::call,
};

use super::{
    enter, exit, globals::offsets, in_flight, kernel::field, returned::NOT_READ, slot::Slot,
};

/// A longer path is counted without a target.
const KEPT: u32 = IO_URING_NAME as u32;
/// An address that no process can have anything at.
const NOWHERE: u64 = u64::MAX;

#[repr(C)]
#[derive(Clone, Copy)]
struct Name([u8; KEPT as usize]);

/// Names of the requests under way, by thread: a process has at most four workers for each CPU. Where
/// there is no room, a request is counted without its target. User space removes those of threads that
/// have ended.
#[btf_map]
static NAMES: HashMap<u64, Name, { IO_URING_NAMES as usize }> = HashMap::new();

/// Where a name is copied to on its way there.
#[btf_map]
static COPY: PerCpuArray<Name, 1> = PerCpuArray::new();

/// A request is begun: a `struct io_kiocb`.
#[inline(always)]
pub(crate) fn start(request: u64) {
    let o = offsets();
    keep_name(request);
    let dirfd = field(request, o.request_dfd).unwrap_or(AT_FDCWD);
    let flags = field(request, o.request_flags).unwrap_or(0);
    enter::deletion(EntryPointId::IO_UNLINKAT, call::UNLINKAT, dirfd, NOWHERE, flags);
}

#[inline(always)]
fn keep_name(request: u64) -> Option<()> {
    let o = offsets();
    let filename: u64 = field(request, o.request_filename)?;
    let name: u64 = field(filename, o.filename_name)?;
    let copy = COPY.get_ptr_mut(0)?;
    // SAFETY: the copy has as many bytes; the helper checks the source.
    let len = unsafe { generated::bpf_probe_read_kernel_str(copy.cast(), KEPT, name as *const _) };
    // One that fills the copy may have been cut.
    if len <= 0 || len >= i64::from(KEPT) {
        return None;
    }
    // SAFETY: no other program uses it, and this one never runs inside itself on one CPU.
    let copy = unsafe { &*copy };
    NAMES.insert(&bpf_get_current_pid_tgid(), copy, u64::from(BPF_ANY)).ok()
}

/// The function that carries the request out returns: 0 when the request has its result.
#[inline(always)]
pub(crate) fn finish(request: u64, returned: i32) {
    let thread = bpf_get_current_pid_tgid();
    let mut slot = Slot::claim();
    let argument = take_name(thread, slot.as_mut()).unwrap_or(NOT_READ);
    match (returned, field::<i32>(request, offsets().request_result)) {
        (0, Some(result)) => {
            exit::finish(EntryPointId::IO_UNLINKAT, i64::from(result), argument, slot);
        }
        // Put off, to where it may block: nothing was done.
        _ => {
            in_flight::forget();
        }
    }
}

/// Puts the name where an argument is, as if it had been read; its length.
#[inline(always)]
fn take_name(thread: u64, slot: Option<&mut Slot>) -> Option<u32> {
    let name = NAMES.get_ptr(&thread)?;
    let to = slot?.scratch().argument.as_mut_ptr();
    // SAFETY: an argument may be longer; only this thread writes or removes the entry.
    let len = unsafe { generated::bpf_probe_read_kernel_str(to.cast(), KEPT, name.cast()) };
    let _ = NAMES.remove(&thread);
    u32::try_from(len - 1).ok()
}
