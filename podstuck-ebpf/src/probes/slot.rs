//! The right to use scratch memory, and how it is handed on.

use aya_ebpf::{btf_maps::PerCpuArray, macros::btf_map};
use podstuck_common::entry_point::EntryPointId;

use super::{globals::config, scratch::Scratch};

/// One for each entry point and CPU is enough: the kernel never lets a program that hangs on one run
/// inside itself. Two may meet, because those on functions can be preempted. Of programs on tracepoints one
/// at a time runs on a CPU (`trace_call_bpf` in kernel/trace/bpf_trace.c): where there are no others, user
/// space makes this one slot.
#[btf_map]
static SCRATCH: PerCpuArray<Scratch, { EntryPointId::COUNT }> = PerCpuArray::new();

/// The right to use the scratch memory of one entry point on this CPU. Whoever has it lends the memory,
/// so that no two references to it live at a time.
pub(crate) struct Slot(u32);

impl Slot {
    /// The slot of an entry point.
    ///
    /// # Safety
    /// The program that runs handles a return by this way, and has no other `Slot` of it.
    #[inline(always)]
    pub(crate) unsafe fn of(entry_point: EntryPointId) -> Self {
        Self(if config().one_slot != 0 { 0 } else { entry_point.index() })
    }

    /// The slot of this number, on the other side of a call that cannot take a reference.
    ///
    /// # Safety
    /// It is used only while the slot that has the number is borrowed for it.
    #[inline(always)]
    pub(crate) unsafe fn borrowed(number: u32) -> Self {
        Self(number)
    }

    #[inline(always)]
    pub(crate) fn number(&self) -> u32 {
        self.0
    }

    /// Its memory.
    #[inline(always)]
    pub(crate) fn scratch(&mut self) -> Option<&mut Scratch> {
        let scratch = SCRATCH.get_ptr_mut(self.0)?;
        // SAFETY: the map lives as long as its programs. This is the only right to this value, and
        // it is borrowed for as long as the reference lives.
        Some(unsafe { &mut *scratch })
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
                let $slot = &mut unsafe { $crate::probes::slot::Slot::borrowed(number) };
                $body
            }
            // SAFETY: the slot is borrowed until this returns.
            unsafe { $name(slot.number() $(, $argument)*) }
        }
    };
}

pub(crate) use global_function;
