//! Exclusive access to scratch memory, and its transfer between functions.

use core::mem::{ManuallyDrop, forget};

use aya_ebpf::{btf_maps::PerCpuArray, helpers::generated, macros::btf_map};
use podstuck_common::{config::SLOTS, kept::lanes};

use super::{claim, globals::config, scratch::Scratch};

/// A program on a function can be preempted, and programs on other functions may then run on the same CPU. A program
/// that needs scratch memory claims a slot. A third program at the same time gets none, and the outcome of its call
/// is unknown. That is rarer than the kernel's own omission of a program because one on the same function was
/// preempted. Programs on tracepoints and kprobes run one at a time per CPU (`trace_call_bpf` in
/// kernel/trace/bpf_trace.c); if there are no others, user space sets `one_slot`, and the slot is never claimed.
#[btf_map]
static SCRATCH: PerCpuArray<Scratch, { SLOTS as usize }> = PerCpuArray::new();

/// Exclusive access to one scratch area on this CPU. It lends the memory, so there are never two references to it.
pub(crate) struct Slot {
    number: u32,
    scratch: *mut Scratch,
}

impl Slot {
    /// Claims a free slot; `None` if all are in use.
    #[inline(always)]
    pub(crate) fn claim() -> Option<Self> {
        if config().one_slot != 0 {
            return Self::at(0);
        }
        for number in 0..SLOTS {
            let slot = Self::at(number)?;
            // SAFETY: map memory, of which only a word is accessed that all programs share.
            if unsafe { claim::claim(&raw mut (*slot.scratch).claims) } {
                return Some(slot);
            }
            // The slot belongs to another program, so it is not released here.
            forget(slot);
        }
        None
    }

    #[inline(always)]
    fn at(number: u32) -> Option<Self> {
        Some(Self { number, scratch: SCRATCH.get_ptr_mut(number)? })
    }

    /// Its scratch memory.
    #[inline(always)]
    pub(crate) fn scratch(&mut self) -> &mut Scratch {
        // SAFETY: the map lives as long as its programs. This is the only access to this value, and it is borrowed
        // for the lifetime of the reference, which is not used for the word with the claims.
        unsafe { &mut *self.scratch }
    }

    /// The slot with this number, on the other side of a call that cannot pass a reference. It remains with the
    /// program that claimed it.
    ///
    /// # Safety
    /// The result is used only while the slot with this number is borrowed for it.
    #[inline(always)]
    pub(crate) unsafe fn borrowed(number: u32) -> Option<ManuallyDrop<Self>> {
        Self::at(number).map(ManuallyDrop::new)
    }

    #[inline(always)]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// A number that no other slot of any CPU has, nor one of a program that another process has loaded.
    #[inline(always)]
    pub(crate) fn lane(&self) -> u32 {
        // SAFETY: it takes nothing, and no program changes its CPU while it runs.
        let cpu = unsafe { generated::bpf_get_smp_processor_id() };
        lanes(u64::from(config().turn)) | (cpu * SLOTS + self.number)
    }
}

impl Drop for Slot {
    #[inline(always)]
    fn drop(&mut self) {
        if config().one_slot == 0 {
            // SAFETY: as in `claim`.
            unsafe { claim::give_back(&raw mut (*self.scratch).claims) };
        }
    }
}

/// Makes a step with a slot a "global" function in the verifier's sense: one with an unmangled name, which is
/// verified once and separately. If the larger steps were verified as part of their callers, path by path, they would
/// exceed the limit of a million instructions.
///
/// Before Linux 5.12 such a function accepts only numbers, so the slot is passed by its number.
macro_rules! global_function {
    (
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident($slot:ident $(, $argument:ident)*) -> u32 $body:block
    ) => {
        $(#[$attribute])*
        #[inline(always)]
        $visibility fn $name(slot: &mut $crate::probes::slot::Slot $(, $argument: u32)*) -> u32 {
            #[unsafe(no_mangle)]
            #[inline(never)]
            unsafe extern "C" fn $name(number: u32 $(, $argument: u32)*) -> u32 {
                // SAFETY: the only caller is below.
                let slot = unsafe { $crate::probes::slot::Slot::borrowed(number) };
                // It always exists, but the verifier does not know that.
                let Some(mut slot) = slot else { return 0 };
                let $slot = &mut *slot;
                $body
            }
            // SAFETY: the slot is borrowed until this returns.
            unsafe { $name(slot.number() $(, $argument)*) }
        }
    };
}

pub(crate) use global_function;
