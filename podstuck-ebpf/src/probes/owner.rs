//! Whose calls are podstuck's own, where the programs outlive the process that has loaded them.

use aya_ebpf::{bindings::BPF_F_MMAPABLE, btf_maps::Array, macros::btf_map};
use podstuck_common::{
    kept,
    root::{INDEX_MASK, SHOW},
};

use super::{globals::config, process};

/// Written by user space, which maps it, except [`kept::STARTED`].
#[btf_map]
static KEPT: Array<u64, { kept::WORDS }, { BPF_F_MMAPABLE as usize }> = Array::new();

#[inline(always)]
fn word(index: u32) -> u64 {
    KEPT.get(index).copied().unwrap_or(0)
}

/// Whether a call is made by the process that reads the tables. By its id alone, a later process with the same id would
/// not be counted while no podstuck runs.
#[inline(always)]
fn is_of_owner(thread: u64) -> bool {
    if word(kept::OWNER) != thread >> 32 {
        return false;
    }
    let started = process::started(false);
    let Some(known) = KEPT.get_ptr_mut(kept::STARTED) else { return false };
    // SAFETY: an aligned word of map memory. The first calls of a process are made by one thread.
    unsafe {
        if *known == 0 {
            *known = started;
        }
        *known == started
    }
}

/// Whether a call is made by the process that has loaded these programs.
#[inline(always)]
pub(crate) fn is_own(thread: u64) -> bool {
    let config = config();
    if config.kept == 0 {
        return (thread >> 32) as u32 == config.own_tgid;
    }
    word(kept::SECRET) == config.secret && is_of_owner(thread)
}

/// Whether these programs process a call with this path argument and these flags. Those of another process, which may
/// be attached as well, leave the calls by which a process tries and sets its own programs to these.
#[inline(always)]
pub(crate) fn processes(thread: u64, path: u64, flags: u32) -> bool {
    let config = config();
    if config.kept == 0 {
        return true;
    }
    let secret = word(kept::SECRET);
    if (path == secret && flags & !INDEX_MASK == SHOW) || is_of_owner(thread) {
        return secret == config.secret;
    }
    word(kept::ACTIVE) >= u64::from(config.turn)
}
