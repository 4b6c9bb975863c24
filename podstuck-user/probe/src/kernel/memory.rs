//! Kernel memory of the probes' tables.

use std::{
    fmt, fs,
    os::fd::{AsFd, AsRawFd},
};

use anyhow::{Context, Result};
use aya::{
    Ebpf,
    maps::{Map, MapData},
    util::nr_cpus,
};

use podstuck_common::{count, lru};

use super::load::SCRATCH;

/// Sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Working memory for each possible CPU: more where probes are on functions.
    pub scratch: u64,
    /// Counters for each possible CPU.
    pub counts: u64,
    /// Entries that were added to the LRU tables for each possible CPU: see [`lru`].
    pub kept: u64,
    /// Number of possible CPUs.
    pub cpus: u64,
    /// The total, as the kernel accounts for it.
    pub all: u64,
}

/// The memory of these probes.
///
/// # Errors
/// Fails when the kernel does not report it.
pub fn of(ebpf: &Ebpf) -> Result<Memory> {
    let cpus = nr_cpus().map_err(|(path, error)| anyhow::anyhow!("{path}: {error}"))?;
    let mut memory = Memory { cpus: cpus as u64, ..Memory::default() };
    for (name, map) in ebpf.maps() {
        let (map, is_per_cpu) = match map {
            Map::PerCpuArray(map) | Map::PerCpuHashMap(map) | Map::PerCpuLruHashMap(map) => {
                (map, true)
            }
            Map::Array(map)
            | Map::HashMap(map)
            | Map::LruHashMap(map)
            | Map::ProgramArray(map)
            | Map::RingBuf(map) => (map, false),
            _ => continue,
        };
        let reckoned = reckoned(map).with_context(|| format!("map `{name}`"))?;
        memory.all += reckoned;
        let info = map.info().with_context(|| format!("map `{name}`"))?;
        let entries = u64::from(info.max_entries());
        let for_cpus = |base: usize| (entries - base as u64) * (reckoned / entries) / memory.cpus;
        if let Some((_, base)) = lru::TABLES.iter().find(|(table, _)| *table == name) {
            memory.kept += for_cpus(*base);
        } else if count::TABLES.contains(&name) {
            memory.counts += for_cpus(count::COUNTS);
        }
        if is_per_cpu {
            let size = u64::from(info.value_size()) * u64::from(info.max_entries());
            *(if name == SCRATCH { &mut memory.scratch } else { &mut memory.counts }) += size;
        }
    }
    Ok(memory)
}

/// Exact since Linux 6.4; before, without what a table may allocate later.
fn reckoned(map: &MapData) -> Result<u64> {
    let path = format!("/proc/self/fdinfo/{}", map.fd().as_fd().as_raw_fd());
    let info = fs::read_to_string(&path).with_context(|| path.clone())?;
    let value = info.lines().find_map(|line| line.strip_prefix("memlock:"));
    value.and_then(|value| value.trim().parse().ok()).with_context(|| format!("{path}: no memlock"))
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scratch, counts, kept, cpus, all } = *self;
        let kib = |bytes: u64| bytes.div_ceil(1024);
        let mib = all as f64 / f64::from(1 << 20);
        write!(
            f,
            "{mib:.1} MiB, of which {} KiB for each possible CPU ({cpus}): {} of scratch space, {} of \
             counters, and {} of LRU tables",
            kib(scratch + counts + kept),
            kib(scratch),
            kib(counts),
            kib(kept)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_reported_for_each_cpu() {
        let memory =
            Memory { scratch: 18_001, counts: 65_536, kept: 69_000, cpus: 2, all: 12 << 20 };
        assert_eq!(
            memory.to_string(),
            "12.0 MiB, of which 149 KiB for each possible CPU (2): 18 of scratch space, 64 of counters, and \
             68 of LRU tables"
        );
    }
}
