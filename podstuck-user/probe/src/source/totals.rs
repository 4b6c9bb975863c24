//! Where the totals outlive this process: two copies in memory that the probes' map [`kept::KEPT`] shares, of which one
//! is valid at any time, whenever the process is killed.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use aya::Ebpf;
use podstuck_common::kept;

use super::shared::Shared;

/// The map.
#[derive(Debug)]
pub(super) struct Totals(Shared<AtomicU64>);

impl Totals {
    /// Takes the map out of the loaded probes.
    pub(super) fn take(ebpf: &mut Ebpf) -> Result<Self> {
        let map = ebpf.take_map(kept::KEPT).context("this build has no map `KEPT`")?;
        Ok(Self(Shared::map(map, kept::WORDS).context("map `KEPT`")?))
    }

    fn word(&self, index: u32) -> &AtomicU64 {
        &self.0.all()[index as usize]
    }

    fn copy(&self, number: u64) -> &[AtomicU64] {
        let first = kept::HEAD + usize::from(number == 2) * kept::COPY;
        &self.0.all()[first..first + kept::COPY]
    }

    /// The table whose counts are in the totals although they were not removed from it.
    pub(super) fn included(&self) -> Option<usize> {
        match self.word(kept::VALID).load(Ordering::Acquire) {
            0 => None,
            valid => {
                self.copy(valid)[1].load(Ordering::Relaxed).checked_sub(1).map(|it| it as usize)
            }
        }
    }

    /// Replaces the totals; false if they are too long.
    pub(super) fn save(&self, text: &[u8], included: Option<usize>) -> bool {
        if text.len() > kept::TEXT {
            return false;
        }
        let next = if self.word(kept::VALID).load(Ordering::Relaxed) == 1 { 2 } else { 1 };
        let [len, table, words @ ..] = self.copy(next) else { return false };
        len.store(text.len() as u64, Ordering::Relaxed);
        table.store(included.map_or(0, |table| table as u64 + 1), Ordering::Relaxed);
        for (word, bytes) in words.iter().zip(text.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
        }
        self.word(kept::VALID).store(next, Ordering::Release);
        true
    }

    /// Notes whether counts are in the memory of this process only.
    pub(super) fn set_unsaved(&self, unsaved: bool) {
        self.word(kept::UNSAVED).store(u64::from(unsaved), Ordering::Release);
    }
}
