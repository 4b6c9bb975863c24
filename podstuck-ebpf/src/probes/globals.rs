//! Settings that user space applies before the probes are loaded.

use core::hint::black_box;

use aya_ebpf::Global;
use podstuck_common::config::{Config, Offsets};

/// The kernel's layout, set by the loader.
#[unsafe(no_mangle)]
static OFFSETS: Global<Offsets> = Global::new(
    // SAFETY: `Offsets` is made of integers; `usable` is 0, so none of them is used.
    unsafe { core::mem::zeroed() },
);

/// Switches, set by the loader.
#[unsafe(no_mangle)]
static CONFIG: Global<Config> = Global::new(Config::EMPTY);

/// Reading a whole global copies it onto the small stack. A reference that the compiler cannot analyse reads single
/// fields, and the verifier still knows their values.
#[inline(always)]
pub(crate) fn offsets() -> &'static Offsets {
    let global: *const Offsets = (&raw const OFFSETS).cast();
    // SAFETY: `Global` is transparent, and the map behind it is frozen before any program runs.
    unsafe { &*black_box(global) }
}

/// Whether the programs stop after this step.
#[inline(always)]
pub(crate) fn stop_after(step: u32) -> bool {
    config().stop_after == step
}

/// See [`offsets`].
#[inline(always)]
pub(crate) fn config() -> &'static Config {
    let global: *const Config = (&raw const CONFIG).cast();
    // SAFETY: as in `offsets`.
    unsafe { &*black_box(global) }
}
