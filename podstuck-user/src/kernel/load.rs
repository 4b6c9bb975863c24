//! Loads the probes with this kernel's layout and this run's switches.

use anyhow::{Context, Result};
use aya::{Ebpf, EbpfLoader, VerifierLogLevel, include_bytes_aligned};
use podstuck_common::config::Config;

use super::{
    attach::{self, Attached},
    hooks::Form,
    layout::Layout,
    links::Links,
};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/podstuck-ebpf"));

/// aya-log's switch in the object: levels up to this one are compiled in by the verifier, the
/// others are removed as dead code. 0 is none.
const LOG_LEVEL: &str = "AYA_LOG_LEVEL";
const LOG_DEBUG: u8 = 4;

/// Probes in the kernel. They leave it when this is dropped.
pub struct Probes {
    /// First, so that programs are out of the kernel before the maps are that lead from one to another.
    _links: Links,
    /// Owns programs and those maps that nobody took.
    pub ebpf: Ebpf,
    /// What hangs where; `missing` includes what the self-test found dead.
    pub attached: Attached,
    /// Whether they believe what a path reads like, for want of this kernel's layout.
    pub by_text: bool,
}

/// Loads, attaches and tests, by these forms of hooks, the best one first.
pub fn load(layout: &Layout, config: &Config, forms: &[Form], debug: bool) -> Result<Probes> {
    let by_text = layout.offsets.usable == 0;
    let config = &Config { by_text: u32::from(by_text), ..*config };
    let level = if debug { LOG_DEBUG } else { 0 };
    let mut ebpf = EbpfLoader::new()
        .override_global("OFFSETS", &layout.offsets, true)
        .override_global("CONFIG", config, true)
        .override_global(LOG_LEVEL, &level, true)
        .verifier_log_level(VerifierLogLevel::STATS)
        .load(OBJECT)
        .context("creating the probes' maps")?;
    let (attached, links) = attach::all(&mut ebpf, forms, layout)?;
    give_back_memory();
    Ok(Probes { _links: links, ebpf, attached, by_text })
}

/// aya reads all of the kernel's types. What stays in use lies behind them, so the C library would keep
/// their room for the whole run: 32 MiB resident instead of 12.
fn give_back_memory() {
    // SAFETY: only pages that nothing is allocated in are given back.
    #[cfg(target_env = "gnu")]
    unsafe {
        nix::libc::malloc_trim(0);
    }
}
