//! Loads the probes with this kernel's layout and this run's settings.

use std::{borrow::Cow, io};

use anyhow::{Context, Result};
use aya::{Ebpf, EbpfLoader, VerifierLogLevel, include_bytes_aligned, util::nr_cpus};
use podstuck_common::{
    config::{CAST, Config},
    count, kept, lru,
};
use podstuck_confine::pins::Pins;

use super::{
    attach::{self, Attached},
    hooks::Form,
    layout::Layout,
    links::Links,
    locks,
    pinned::Kept,
    programs,
};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/podstuck-ebpf"));

/// aya-log's switch in the object: levels up to this one are compiled in by the verifier, the others are removed as
/// dead code. 0 turns logging off.
const LOG_LEVEL: &str = "AYA_LOG_LEVEL";
const LOG_DEBUG: u8 = 4;
/// The map of the programs' working memory.
pub(super) const SCRATCH: &str = "SCRATCH";

/// Loaded and attached probes. Dropping this unloads them.
pub struct Probes {
    /// The first field, so that programs are unloaded before the maps that lead from one to another.
    links: Links,
    /// Owns the programs, and the maps that were not taken out.
    pub ebpf: Ebpf,
    /// What is attached where; `missing` includes what the self-test found dead.
    pub attached: Attached,
    /// Whether they go by the text of a path, for want of this kernel's layout.
    pub by_text: bool,
    /// Whether [`locks::waits`] can be read.
    pub shows_locks: bool,
    /// What outlives this process, if anything does.
    pub kept: Option<Kept>,
    /// Why nothing does although it was to.
    pub not_kept: Option<String>,
}

impl Probes {
    /// Makes the probes count, if they are to outlive this process, and removes those of the process before. Until then,
    /// these count. If the probes cannot outlive this process, they only count, and nothing is pinned any more.
    ///
    /// # Errors
    /// Fails if they do not count.
    pub fn take_over(&mut self) -> Result<()> {
        let Some(kept) = self.kept.take() else { return Ok(()) };
        kept.begin(&mut self.ebpf)?;
        let hooks = self.links.len();
        match kept.pin(&mut self.ebpf, &mut self.links, &self.attached) {
            Ok(()) => self.kept = Some(kept),
            Err(why) => {
                kept.give_up();
                // A hook that cannot be pinned is removed.
                if self.links.len() < hooks {
                    return Err(why);
                }
                self.not_kept = Some(format!("{why:#}"));
            }
        }
        Ok(())
    }
}

/// Loads, attaches and tests, by these forms of hooks, the best one first.
pub fn load(layout: &Layout, config: &Config, forms: &[Form], debug: bool) -> Result<Probes> {
    load_kept(layout, config, forms, debug, None)
}

/// The same, with maps that outlive this process if that is possible. [`Probes::take_over`] is to follow.
pub fn load_kept(
    layout: &Layout,
    config: &Config,
    forms: &[Form],
    debug: bool,
    pins: Option<Pins>,
) -> Result<Probes> {
    let by_text = layout.offsets.usable == 0;
    // Without the kernel's layout, a process that has ended cannot be distinguished from a later one with its id.
    let no_layout = pins.is_some() && by_text;
    let pins = pins.filter(|_| !by_text);
    let mut config =
        Config { by_text: u32::from(by_text), kept: u32::from(pins.is_some()), ..*config };
    let one_slot = !forms.contains(&Form::Function);
    let mut ebpf = tables(layout, config, one_slot, debug, None)?;
    let mut not_kept = no_layout.then(|| "the kernel's layout is not known".to_owned());
    let mut kept = None;
    if let Some(pins) = pins {
        match Kept::open(pins, &ebpf, config.secret) {
            Ok(opened) => (config.turn, kept) = (opened.turn(), Some(opened)),
            Err(why) => (config.kept, not_kept) = (0, Some(format!("{why:#}"))),
        }
        ebpf = tables(layout, config, one_slot, debug, kept.as_ref())?;
    }
    let without_cast;
    let mut layout = layout;
    if layout.cast.is_some()
        && let Err(why) = programs::cast(&mut ebpf)
    {
        tracing::info!("the probes read by helpers: {why:#}");
        without_cast = layout.without_cast();
        layout = &without_cast;
        ebpf = tables(layout, config, one_slot, debug, kept.as_ref())?;
    }
    let functions = attach::load_functions(&mut ebpf, forms, layout);
    if forms.contains(&Form::Function) && !functions.any() {
        // No program on a function was loaded: programs on tracepoints need less memory.
        ebpf = tables(layout, config, true, debug, kept.as_ref())?;
    }
    let (attached, links) =
        attach::all(&mut ebpf, functions, forms, layout, config.stop_after == 0)?;
    let shows_locks = layout.keeps_locks
        && locks::load(&mut ebpf)
            .inspect_err(|why| tracing::info!("holders of kernel locks are not known: {why:#}"))
            .is_ok();
    give_back_memory();
    Ok(Probes { links, ebpf, attached, by_text, shows_locks, kept, not_kept })
}

/// Creates the maps, with working memory for programs on tracepoints only, or for all.
fn tables(
    layout: &Layout,
    config: Config,
    one_slot: bool,
    debug: bool,
    kept: Option<&Kept>,
) -> Result<Ebpf> {
    let config = Config { one_slot: u32::from(one_slot), ..config };
    let level = if debug { LOG_DEBUG } else { 0 };
    let cpus = nr_cpus().map_err(|(path, error)| error_at(path, error))?;
    let mut loader = EbpfLoader::new();
    loader
        .override_global("OFFSETS", &layout.offsets, true)
        .override_global("CONFIG", &config, true)
        .override_global(LOG_LEVEL, &level, true)
        .verifier_log_level(VerifierLogLevel::STATS);
    for (table, entries) in lru::TABLES {
        loader.map_max_entries(table, lru::size(entries, cpus));
    }
    for table in count::TABLES {
        loader.map_max_entries(table, count::size(cpus));
    }
    if one_slot {
        loader.map_max_entries(SCRATCH, 1);
    }
    if config.kept == 0 {
        loader.map_max_entries(kept::KEPT, kept::HEAD as u32);
    }
    for map in kept::MAPS {
        if let Some(kept) = kept {
            loader.map_pin_path(map, kept.maps().join(map));
        }
    }
    loader.load(&object(layout.cast)).context("creating the probes' maps")
}

/// The object file of the probes, with calls of this function of the kernel.
fn object(cast: Option<u32>) -> Cow<'static, [u8]> {
    /// `BPF_JMP | BPF_CALL`, and whose function it is in the upper half of the registers (linux/bpf.h).
    const CALL: [u8; 4] = [0x85, 0, 0, 0];
    const CALL_KERNEL: [u8; 4] = [0x85, 2 << 4, 0, 0];
    let Some(function) = cast else { return OBJECT.into() };
    let [wanted, put] = [(CALL, CAST.to_ne_bytes()), (CALL_KERNEL, function.to_ne_bytes())]
        .map(|(call, number)| [call, number].concat());
    let mut object = OBJECT.to_vec();
    // Programs are aligned to their instructions.
    for instruction in object.chunks_exact_mut(8).filter(|bytes| **bytes == *wanted) {
        instruction.copy_from_slice(&put);
    }
    object.into()
}

fn error_at(path: &str, error: io::Error) -> anyhow::Error {
    anyhow::Error::new(error).context(format!("counting CPUs by {path}"))
}

/// aya reads all of the kernel's types. Memory that stays in use is allocated after them, so the C library would keep
/// theirs for the whole run: 32 MiB resident instead of 12.
fn give_back_memory() {
    // SAFETY: only pages that nothing is allocated in are given back.
    #[cfg(target_env = "gnu")]
    unsafe {
        nix::libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use aya::maps::{Map, MapData};
    use podstuck_common::config::SLOTS;
    use podstuck_testing::skip;

    use super::*;
    use crate::kernel::layout;
    use podstuck_confine::privilege;

    /// The maps, where the privileges allow it.
    fn made(one_slot: bool) -> Option<Ebpf> {
        if let Err(missing) = privilege::check() {
            skip(missing.to_string());
            return None;
        }
        let layout = layout::read(Path::new(layout::BTF_PATH));
        Some(tables(&layout, Config::EMPTY, one_slot, false, None).unwrap())
    }

    fn entries(map: &MapData) -> usize {
        map.info().unwrap().max_entries() as usize
    }

    /// cargo shows a build script's warnings in every build.
    #[test]
    fn building_the_probes_is_quiet() {
        let said = std::path::Path::new(env!("OUT_DIR")).with_file_name("output");
        let said = std::fs::read_to_string(said).unwrap();
        assert!(said.contains("cargo:rerun-if-changed="), "{said}");
        assert!(!said.contains("Compiling") && !said.contains("Finished"), "{said}");
    }

    #[test]
    fn tables_are_sized_by_the_possible_cpus() {
        let Some(ebpf) = made(true) else { return };
        let cpus = nr_cpus().unwrap();
        for table in count::TABLES {
            let Some(Map::HashMap(map)) = ebpf.map(table) else { panic!("no {table}") };
            assert_eq!(entries(map), count::size(cpus) as usize);
        }
        let mut expected =
            lru::TABLES.map(|(name, entries)| (name, lru::size(entries, cpus) as usize));
        expected.sort_unstable();
        let forget = ebpf.maps().filter_map(|(name, map)| match map {
            Map::LruHashMap(map) | Map::PerCpuLruHashMap(map) => Some((name, entries(map))),
            _ => None,
        });
        let mut found: Vec<(&str, usize)> = forget.collect();
        found.sort_unstable();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_kernels_function_is_put_where_the_probes_call_it() {
        let calls = |object: &[u8], wanted: &[u8]| {
            object.chunks_exact(8).filter(|bytes| *bytes == wanted).count()
        };
        let placeholder = [[0x85, 0, 0, 0], CAST.to_ne_bytes()].concat();
        let function = [[0x85, 0x20, 0, 0], 4711_u32.to_ne_bytes()].concat();
        let (old, new) = (object(None), object(Some(4711)));
        assert!(calls(&old, &placeholder) > 0 && calls(&old, &function) == 0);
        assert_eq!(calls(&new, &function), calls(&old, &placeholder));
        assert_eq!(calls(&new, &placeholder), 0);
        assert_eq!(old.len(), new.len());
    }

    #[test]
    fn programs_on_tracepoints_have_one_slot_to_work_in() {
        for (one_slot, expected) in [(true, 1), (false, SLOTS as usize)] {
            let Some(ebpf) = made(one_slot) else { return };
            let Some(Map::PerCpuArray(map)) = ebpf.map(SCRATCH) else { panic!("no {SCRATCH}") };
            assert_eq!(entries(map), expected);
        }
    }
}
