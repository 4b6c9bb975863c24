//! Every map and global: who writes it, who reads it, how large it is.

use core::hint::black_box;

use aya_ebpf::{
    Global,
    btf_maps::{Array, HashMap, LruHashMap, PerCpuArray, PerCpuHashMap, ProgramArray, RingBuf},
    macros::btf_map,
};
use podstuck_common::{
    config::{Config, MARKERS, Marker, Offsets},
    record::{Actor, Count, CountKey, IN_FLIGHT_SLOTS, InFlight, call, loss},
    trail::Trail,
};

use crate::atomic;

/// Kernel layout, set by the loader.
#[unsafe(no_mangle)]
static OFFSETS: Global<Offsets> = Global::new(
    // SAFETY: `Offsets` is made of integers; `usable` is 0, so none of them is used.
    unsafe { core::mem::zeroed() },
);

/// Switches, set by the loader.
#[unsafe(no_mangle)]
static CONFIG: Global<Config> = Global::new(Config {
    slow_ns: u64::MAX,
    only_pod: 0,
    only_path: 0,
    own_tgid: 0,
    reserved: 0,
    markers: [Marker { hash: 0, take: 0, pod: 0 }; MARKERS],
});

/// Reading a whole global copies it onto the small stack; a reference that the compiler cannot see
/// through reads single fields, and the verifier still knows their values.
#[inline(always)]
pub(crate) fn offsets() -> &'static Offsets {
    let global: *const Offsets = (&raw const OFFSETS).cast();
    // SAFETY: `Global` is transparent, and the map behind it is frozen before any program runs.
    unsafe { &*black_box(global) }
}

/// See [`offsets`].
#[inline(always)]
pub(crate) fn config() -> &'static Config {
    let global: *const Config = (&raw const CONFIG).cast();
    // SAFETY: as in `offsets`.
    unsafe { &*black_box(global) }
}

/// Calls between entry and return, by the lower bits of the thread's id: see `in_flight`. Written
/// here, scanned by user space.
#[btf_map]
pub(crate) static IN_FLIGHT: Array<InFlight, { IN_FLIGHT_SLOTS as usize }> = Array::new();
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
pub(crate) static COUNTS_0: PerCpuHashMap<CountKey, Count, 8192> = PerCpuHashMap::new();
/// See [`COUNTS_0`].
#[btf_map]
pub(crate) static COUNTS_1: PerCpuHashMap<CountKey, Count, 8192> = PerCpuHashMap::new();

/// Who made the calls, by process id. Written at the first count of a process in a generation.
#[btf_map]
pub(crate) static ACTORS: LruHashMap<u32, Actor, 8192> = LruHashMap::new();

/// Targets whose path user space has been told.
#[btf_map]
pub(crate) static ANNOUNCED: LruHashMap<u64, u8, 16384> = LruHashMap::new();

/// Objects (hash of their path) whose removal has failed and not succeeded since.
#[btf_map]
pub(crate) static FAILED: LruHashMap<u64, u8, 8192> = LruHashMap::new();

/// Records for user space.
#[btf_map]
pub(crate) static EVENTS: RingBuf<u8, { 1 << 20 }> = RingBuf::new();

/// What was lost or left out, by `record::loss`. Read by user space.
#[btf_map]
pub(crate) static LOSSES: PerCpuArray<u64, { loss::COUNT as usize }> = PerCpuArray::new();

/// Own calls seen by each probe, entry and exit, by `record::call`: the self-test reads it.
#[btf_map]
pub(crate) static OWN_CALLS: PerCpuArray<u64, { call::COUNT }> = PerCpuArray::new();

/// A directory as a path reaches it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DirectoryKey {
    pub(crate) mnt: u64,
    pub(crate) dentry: u64,
}

/// What is remembered of a directory.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Directory {
    /// The next three tell a recycled dentry or a renamed directory from the one remembered.
    pub(crate) parent: u64,
    pub(crate) hash_len: u64,
    pub(crate) inode: u64,
    /// When the oldest part of the trail was read.
    pub(crate) born_ns: u64,
    pub(crate) trail: Trail,
    /// 1 when the removal of an object in it has failed.
    pub(crate) has_failed: u64,
}

/// Answers remembered for a second, so that a storm in one directory walks once.
#[btf_map]
pub(crate) static DIRECTORIES: LruHashMap<DirectoryKey, Directory, 16384> = LruHashMap::new();

/// How many directories were ever marked as one in which a removal failed: a private copy of an
/// answer is outdated when this has changed.
#[btf_map]
pub(crate) static FAILURES: Array<u64, 1> = Array::new();

/// The program that those on the ends of functions go on with. Set by user space.
#[btf_map]
pub(crate) static AFTER_RETURN: ProgramArray<1> = ProgramArray::new();

/// Counts a loss.
#[inline(always)]
pub(crate) fn lose(reason: u32) {
    if let Some(count) = LOSSES.get_ptr_mut(reason) {
        // SAFETY: an aligned word of map memory.
        unsafe { atomic::add(count, 1) };
    }
}
