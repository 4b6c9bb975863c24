//! How many entries the probes' tables hold that forget what was used longest ago.
//!
//! Each CPU takes free entries 128 at a time (`LOCAL_FREE_TARGET`), and keeps them to itself until it has used them
//! (`bpf_lru_list_pop_free_to_local` in kernel/bpf/bpf_lru_list.c). With many CPUs a table would forget while
//! most of it is empty. So user space adds what a CPU keeps of them on average, for each CPU that there may be.

/// Processes that made counted calls.
pub const ACTORS: usize = 8192;
/// Targets whose path was sent.
pub const ANNOUNCED: usize = 16384;
/// Objects whose removal has failed.
pub const FAILED: usize = 8192;
/// What was found out about directories.
pub const DIRECTORIES: usize = 16384;
/// Kinds of records.
pub const LIMITS: usize = 8192;
/// Targets that were renamed.
pub const MOVED: usize = 1024;

/// All of them, by their names.
pub const TABLES: [(&str, usize); 6] = [
    ("ACTORS", ACTORS),
    ("ANNOUNCED", ANNOUNCED),
    ("FAILED", FAILED),
    ("DIRECTORIES", DIRECTORIES),
    ("LIMITS", LIMITS),
    ("MOVED", MOVED),
];

/// Half of what a CPU takes at a time: it has between all of it and nothing.
pub const FREE_PER_CPU: usize = 64;

/// The size of a table that holds `entries` entries on a machine with `cpus` CPUs.
pub const fn size(entries: usize, cpus: usize) -> u32 {
    let size = entries.saturating_add(cpus.saturating_mul(FREE_PER_CPU));
    if size > u32::MAX as usize { u32::MAX } else { size as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cpus_keep_to_themselves_is_added() {
        assert_eq!(size(1024, 2), 1152);
        assert_eq!(size(8192, 1024), 8192 + 64 * 1024);
        assert_eq!(size(1, usize::MAX), u32::MAX);
    }
}
