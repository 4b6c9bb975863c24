//! Sizes of the probes' LRU tables.
//!
//! Each CPU takes free entries 128 at a time (`LOCAL_FREE_TARGET`) and keeps them until it has used them
//! (`bpf_lru_list_pop_free_to_local` in kernel/bpf/bpf_lru_list.c). With many CPUs, a table would evict entries while
//! most of it is empty. Where the CPUs would keep more than half of a table to themselves, user space enlarges it: half
//! of its entries remain for all.

/// Processes that made counted calls.
pub const ACTORS: usize = 8192;
/// Targets whose path was sent.
pub const ANNOUNCED: usize = 16384;
/// Objects whose removal failed.
pub const FAILED: usize = 8192;
/// Cached directories.
pub const DIRECTORIES: usize = 16384;
/// Kinds of records with a rate limit.
pub const LIMITS: usize = 8192;
/// Targets that were renamed.
pub const MOVED: usize = 1024;

/// All tables, by name.
pub const TABLES: [(&str, usize); 6] = [
    ("ACTORS", ACTORS),
    ("ANNOUNCED", ANNOUNCED),
    ("FAILED", FAILED),
    ("DIRECTORIES", DIRECTORIES),
    ("LIMITS", LIMITS),
    ("MOVED", MOVED),
];

/// The average reserve of a CPU: half of what it takes at a time.
pub const FREE_PER_CPU: usize = 64;

/// The size of a table of `entries` entries on a machine with `cpus` possible CPUs.
pub const fn size(entries: usize, cpus: usize) -> u32 {
    let size = (entries / 2).saturating_add(cpus.saturating_mul(FREE_PER_CPU));
    let size = if size < entries { entries } else { size };
    if size > u32::MAX as usize { u32::MAX } else { size as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_table_remains_beside_what_the_cpus_reserve() {
        assert_eq!(size(1024, 2), 1024);
        assert_eq!(size(8192, 64), 8192);
        assert_eq!(size(8192, 128), 4096 + 64 * 128);
        assert_eq!(size(1, usize::MAX), u32::MAX);
    }
}
