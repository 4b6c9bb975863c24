//! Deletion requests of io_uring. They are processed like calls, except that their arguments are in kernel memory,
//! and that the name is freed before the request has its result.
//!
//! A thread executes one request at a time, and none during a call of its own.

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

/// Maximum length of a stored name with its NUL. A longer path is counted without a target.
const KEPT: u32 = IO_URING_NAME as u32;
/// An address that is never mapped in a process.
const NOWHERE: u64 = u64::MAX;

#[repr(C)]
#[derive(Clone, Copy)]
struct Name([u8; KEPT as usize]);

/// Names of the requests in progress, by thread: a process has at most four workers for each CPU. Without room, a
/// request is counted without its target. User space removes the names of threads that have ended.
#[btf_map]
static NAMES: HashMap<u64, Name, { IO_URING_NAMES as usize }> = HashMap::new();

/// Buffer of a name before its insertion into the table.
#[btf_map]
static COPY: PerCpuArray<Name, 1> = PerCpuArray::new();

/// Processes the start of a request, a `struct io_kiocb`.
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
    // SAFETY: the buffer has this many bytes; the helper checks the source.
    let len = unsafe { generated::bpf_probe_read_kernel_str(copy.cast(), KEPT, name as *const _) };
    // A name that fills the buffer may be truncated.
    if len <= 0 || len >= i64::from(KEPT) {
        return None;
    }
    // SAFETY: no other program uses it, and this program is never re-entered on one CPU.
    let copy = unsafe { &*copy };
    NAMES.insert(&bpf_get_current_pid_tgid(), copy, u64::from(BPF_ANY)).ok()
}

/// The function that executes the request returns: 0 if the request has its result.
#[inline(always)]
pub(crate) fn finish(request: u64, returned: i32) {
    let thread = bpf_get_current_pid_tgid();
    let mut slot = Slot::claim();
    let argument = take_name(thread, slot.as_mut()).unwrap_or(NOT_READ);
    match (returned, field::<i32>(request, offsets().request_result)) {
        (0, Some(result)) => {
            exit::finish(EntryPointId::IO_UNLINKAT, i64::from(result), argument, slot);
        }
        // Deferred to a context that may block: nothing was executed.
        _ => {
            in_flight::forget();
        }
    }
}

/// Puts the name in the place of the argument, as if it had been read; returns its length.
#[inline(always)]
fn take_name(thread: u64, slot: Option<&mut Slot>) -> Option<u32> {
    let name = NAMES.get_ptr(&thread)?;
    let to = slot?.scratch().argument.as_mut_ptr();
    // SAFETY: the argument's buffer is larger; only this thread writes or removes the entry.
    let len = unsafe { generated::bpf_probe_read_kernel_str(to.cast(), KEPT, name.cast()) };
    let _ = NAMES.remove(&thread);
    u32::try_from(len - 1).ok()
}
