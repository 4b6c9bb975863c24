//! The maps that several files use, with their writers and readers.

use aya_ebpf::{
    bindings::BPF_F_MMAPABLE,
    btf_maps::{Array, HashMap, LruHashMap, PerCpuArray, ProgramArray, RingBuf},
    macros::btf_map,
};
use podstuck_common::{
    count::{COUNTS, CallTotals, CountKey},
    in_flight::{IN_FLIGHT_SLOTS, InFlight},
    lru,
    record::{Caller, Process, call, loss},
    trail::Trail,
};

use super::{
    atomic,
    kernel_path::{KernelPath, Mounted},
};

/// Calls between entry and return, by the lower bits of the thread's id: see `in_flight`. Written by the probes and
/// mapped by user space.
#[btf_map]
pub(crate) static IN_FLIGHT: Array<
    InFlight,
    { IN_FLIGHT_SLOTS as usize },
    { BPF_F_MMAPABLE as usize },
> = Array::new();
/// Calls of threads whose slot another thread uses, by thread. Preallocated and not LRU, because the oldest entry is
/// the most important one: a call that never returns.
#[btf_map]
pub(crate) static IN_FLIGHT_BESIDE: HashMap<u64, InFlight, 16384> = HashMap::new();

/// The table of counts that is written at present, 0 or 1. Set by user space only.
#[btf_map]
pub(crate) static GENERATION: Array<u32, 1> = Array::new();

/// Exact counts. Two tables, so that user space can empty one while the other is written: see `source/counts.rs` for
/// why no count is lost. Each CPU has entries of its own, by the lane in the key: a per-CPU table would reserve memory
/// for each entry on each possible CPU, although a process runs on few of them between two reads.
#[btf_map]
pub(crate) static COUNTS_0: HashMap<CountKey, CallTotals, COUNTS> = HashMap::new();
/// See [`COUNTS_0`].
#[btf_map]
pub(crate) static COUNTS_1: HashMap<CountKey, CallTotals, COUNTS> = HashMap::new();

/// Total number of entries that were created in both tables, from which user space detects that one fills.
#[btf_map]
pub(crate) static COUNTS_MADE: Array<u64, 1, { BPF_F_MMAPABLE as usize }> = Array::new();

/// The callers, by process. Written at the first count of a process.
#[btf_map]
pub(crate) static ACTORS: LruHashMap<Process, Caller, { lru::ACTORS }> = LruHashMap::new();

/// Targets whose path was sent to user space.
#[btf_map]
pub(crate) static ANNOUNCED: LruHashMap<u64, u8, { lru::ANNOUNCED }> = LruHashMap::new();

/// Objects (hash of their path) whose removal failed and has not succeeded since, in addition to the first ones of
/// each target: see `failed`.
#[btf_map]
pub(crate) static FAILED: LruHashMap<u64, u8, { lru::FAILED }> = LruHashMap::new();

/// Records for user space.
#[btf_map]
pub(crate) static EVENTS: RingBuf<u8, { 1 << 20 }> = RingBuf::new();

/// Losses and omissions, by `record::loss`. Read by user space.
#[btf_map]
pub(crate) static LOSSES: PerCpuArray<u64, { loss::COUNT as usize }> = PerCpuArray::new();

/// podstuck's own calls seen by each probe, at entry and at exit, by `record::call`, followed by those whose
/// directory was reported. Read by the self-test.
#[btf_map]
pub(crate) static OWN_CALLS: PerCpuArray<u64, { 2 * call::COUNT }> = PerCpuArray::new();

/// The cached data of a directory.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Directory {
    /// The next three detect a recycled dentry or a renamed directory.
    pub(crate) parent: u64,
    pub(crate) hash_len: u64,
    pub(crate) inode: u64,
    /// Detects a recycled or moved mount.
    pub(crate) mounted: Mounted,
    /// When the oldest part of the trail was read.
    pub(crate) born_ns: u64,
    pub(crate) trail: Trail,
    /// 1 if the removal of an object in it failed.
    pub(crate) has_failed: u64,
}

/// Trails, cached for a second, so that a bulk deletion in one directory walks only once.
#[btf_map]
pub(crate) static DIRECTORIES: LruHashMap<KernelPath, Directory, { lru::DIRECTORIES }> =
    LruHashMap::new();

/// The tail-call target of programs on the return of functions. Set by user space.
#[btf_map]
pub(crate) static AFTER_RETURN: ProgramArray<1> = ProgramArray::new();
/// The tail-call target of kretprobes. A program array accepts programs of one type only.
#[btf_map]
pub(crate) static AFTER_KRETPROBE: ProgramArray<1> = ProgramArray::new();

/// Counts a loss.
#[inline(always)]
pub(crate) fn count_loss(reason: u32) {
    if let Some(count) = LOSSES.get_ptr_mut(reason) {
        // SAFETY: an aligned word of map memory.
        unsafe { atomic::add(count, 1) };
    }
}
