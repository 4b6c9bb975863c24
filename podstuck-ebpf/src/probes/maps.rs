//! The maps that several files use: who writes each, who reads it, how large it is.

use aya_ebpf::{
    bindings::BPF_F_MMAPABLE,
    btf_maps::{Array, HashMap, LruHashMap, PerCpuArray, PerCpuHashMap, ProgramArray, RingBuf},
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

/// Calls between entry and return, by the lower bits of the thread's id: see `in_flight`. Written
/// here; user space sees the same memory.
#[btf_map]
pub(crate) static IN_FLIGHT: Array<
    InFlight,
    { IN_FLIGHT_SLOTS as usize },
    { BPF_F_MMAPABLE as usize },
> = Array::new();
/// Those whose slot another thread is in, by thread. Preallocated and not LRU, because the oldest
/// entry is the most important one: the call that never returns.
#[btf_map]
pub(crate) static IN_FLIGHT_BESIDE: HashMap<u64, InFlight, 16384> = HashMap::new();

/// Which of the two tables of counts is written now, 0 or 1. Set by user space only.
#[btf_map]
pub(crate) static GENERATION: Array<u32, 1> = Array::new();

/// Exact counts. Two tables, so that user space can empty one while the other is written: see
/// `source/counts.rs` for why nothing is lost.
#[btf_map]
pub(crate) static COUNTS_0: PerCpuHashMap<CountKey, CallTotals, COUNTS> = PerCpuHashMap::new();
/// See [`COUNTS_0`].
#[btf_map]
pub(crate) static COUNTS_1: PerCpuHashMap<CountKey, CallTotals, COUNTS> = PerCpuHashMap::new();

/// How many entries were made in both, ever: user space sees by it that one fills.
#[btf_map]
pub(crate) static COUNTS_MADE: Array<u64, 1, { BPF_F_MMAPABLE as usize }> = Array::new();

/// Who made the calls. Written at the first count of a process.
#[btf_map]
pub(crate) static ACTORS: LruHashMap<Process, Caller, { lru::ACTORS }> = LruHashMap::new();

/// Targets whose path was sent to user space.
#[btf_map]
pub(crate) static ANNOUNCED: LruHashMap<u64, u8, { lru::ANNOUNCED }> = LruHashMap::new();

/// Objects (hash of their path) whose removal has failed and not succeeded since, beyond the first of each target: see
/// `failed`.
#[btf_map]
pub(crate) static FAILED: LruHashMap<u64, u8, { lru::FAILED }> = LruHashMap::new();

/// Records for user space.
#[btf_map]
pub(crate) static EVENTS: RingBuf<u8, { 1 << 20 }> = RingBuf::new();

/// What was lost or left out, by `record::loss`. Read by user space.
#[btf_map]
pub(crate) static LOSSES: PerCpuArray<u64, { loss::COUNT as usize }> = PerCpuArray::new();

/// Own calls seen by each probe, entry and exit, by `record::call`; behind them those whose directory was reported.
/// The self-test reads it.
#[btf_map]
pub(crate) static OWN_CALLS: PerCpuArray<u64, { 2 * call::COUNT }> = PerCpuArray::new();

/// What is cached of a directory.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Directory {
    /// By the next three a recycled dentry or a renamed directory is known.
    pub(crate) parent: u64,
    pub(crate) hash_len: u64,
    pub(crate) inode: u64,
    /// By these a recycled or moved mount is.
    pub(crate) mounted: Mounted,
    /// When the oldest part of the trail was read.
    pub(crate) born_ns: u64,
    pub(crate) trail: Trail,
    /// 1 when the removal of an object in it has failed.
    pub(crate) has_failed: u64,
}

/// Answers cached for a second, so that a bulk delete in one directory walks once.
#[btf_map]
pub(crate) static DIRECTORIES: LruHashMap<KernelPath, Directory, { lru::DIRECTORIES }> =
    LruHashMap::new();

/// The program that those on the ends of functions go on with. Set by user space.
#[btf_map]
pub(crate) static AFTER_RETURN: ProgramArray<1> = ProgramArray::new();
/// The one that kretprobes go on with: a table is for programs of one kind.
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
