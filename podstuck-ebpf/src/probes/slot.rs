//! The right to use scratch memory, and how it is handed on.

use core::mem::{ManuallyDrop, forget};

use aya_ebpf::{btf_maps::PerCpuArray, macros::btf_map};
use podstuck_common::config::SLOTS;

use super::{claim, globals::config, scratch::Scratch};

/// Programs on functions can be preempted, so that others run on their CPU meanwhile, on other functions: a program that
/// needs a slot claims one. A third at a time has none, and its call's outcome is not known. That is rarer than that
/// the kernel itself leaves a program out because one on the same function was preempted. Of programs on
/// tracepoints and of kprobes one at a time runs on a CPU (`trace_call_bpf` in kernel/trace/bpf_trace.c): where there
/// are no others, user space makes this one slot, which is never claimed.
#[btf_map]
static SCRATCH: PerCpuArray<Scratch, { SLOTS as usize }> = PerCpuArray::new();

/// The right to use one piece of scratch memory on this CPU. The holder lends the memory, so that no two
/// references to it live at a time.
pub(crate) struct Slot {
    number: u32,
    scratch: *mut Scratch,
}

impl Slot {
    /// A slot that is not in use, if there is one.
    #[inline(always)]
    pub(crate) fn claim() -> Option<Self> {
        if config().one_slot != 0 {
            return Self::at(0);
        }
        for number in 0..SLOTS {
            let slot = Self::at(number)?;
            // SAFETY: map memory, of which only a word is touched that all share.
            if unsafe { claim::claim(&raw mut (*slot.scratch).claims) } {
                return Some(slot);
            }
            // It belongs to another program.
            forget(slot);
        }
        None
    }

    #[inline(always)]
    fn at(number: u32) -> Option<Self> {
        Some(Self { number, scratch: SCRATCH.get_ptr_mut(number)? })
    }

    /// Its memory.
    #[inline(always)]
    pub(crate) fn scratch(&mut self) -> &mut Scratch {
        // SAFETY: the map lives as long as its programs. This is the only right to this value, and
        // it is borrowed for as long as the reference lives. The word with the claims is not used by it.
        unsafe { &mut *self.scratch }
    }

    /// The slot of this number, on the other side of a call that cannot take a reference. It stays with the program that
    /// claimed it.
    ///
    /// # Safety
    /// It is used only while the slot that has the number is borrowed for it.
    #[inline(always)]
    pub(crate) unsafe fn borrowed(number: u32) -> Option<ManuallyDrop<Self>> {
        Self::at(number).map(ManuallyDrop::new)
    }

    #[inline(always)]
    pub(crate) fn number(&self) -> u32 {
        self.number
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

/// Makes of a step with a slot a "global" function, in the verifier's words: one with an unmangled name,
/// which it checks once and by itself. Checked as part of their callers, path by path, the larger steps
/// exceed its limit of a million instructions.
///
/// Before Linux 5.12 such a function takes numbers and nothing else, so the slot crosses by its number.
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
                // SAFETY: the only caller stands below.
                let slot = unsafe { $crate::probes::slot::Slot::borrowed(number) };
                // It is there: only the verifier does not know.
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
