//! The same functions as in `function`, with kprobes and kretprobes: for kernels that cannot attach programs to
//! functions directly. They do not slow down other calls either.
//!
//! The kernel tracks the returns of a limited number of concurrent calls: ten, or twice the number of processors
//! (`register_kretprobe` in kernel/kprobes.c). The return of a further call is not reported, so its outcome is
//! unknown. It is counted as such when its thread enters the next call, or is found to be in none.

use core::ffi::c_void;

use aya_ebpf::{
    helpers::bpf_get_current_pid_tgid,
    macros::kretprobe,
    programs::{ProbeContext, RetProbeContext},
};
use podstuck_common::{
    entry_point::EntryPointId,
    entry_points,
    in_flight::AT_FDCWD,
    record::{call, loss},
};

use super::arguments::{self, Registers};
use crate::probes::{
    enter::{deletion, rename},
    exit, in_flight,
    kernel::field,
    maps::{AFTER_KRETPROBE, count_loss},
};

/// The caller's saved registers. The kernel does not know the type of the pointer here, so they are copied.
#[inline(always)]
fn saved(ctx: &ProbeContext) -> Option<Registers> {
    let saved: *const Registers = ctx.arg(0)?;
    field(saved as u64, 0)
}

/// A call returns through this entry point. The processing is one program for all, as in `function`.
#[inline(always)]
fn returned(ctx: &RetProbeContext, entry_point: EntryPointId) {
    if exit::is_of_others(bpf_get_current_pid_tgid()) {
        return;
    }
    if in_flight::is_in(entry_point) {
        // SAFETY: no value here needs to be dropped, and the target has the same context.
        unsafe { AFTER_KRETPROBE.tail_call(ctx, 0) };
    }
    in_flight::forget();
    count_loss(loss::UNMATCHED_EXIT);
}

#[kretprobe]
fn after_kretprobe(ctx: RetProbeContext) -> u32 {
    exit::finish_any(ctx.ret());
    0
}

/// Both programs for the function of one system call.
macro_rules! pair {
    (
        $interface:ident, $id:ident, $name:literal, $call:ident,
        [$($argument:ident)*], $enter:ident, ($($value:expr),*)
    ) => {
        const _: () = {
            #[unsafe(export_name = concat!("kprobe_", $name))]
            #[unsafe(link_section = "kprobe")]
            extern "C" fn enter(ctx: *mut c_void) -> u32 {
                if let Some(saved) = saved(&ProbeContext::new(ctx)) {
                    let [$($argument,)* ..] = arguments::$interface(&saved);
                    $enter(EntryPointId::$id, call::$call, $($value),*);
                }
                0
            }

            #[unsafe(export_name = concat!("kretprobe_", $name))]
            #[unsafe(link_section = "kretprobe")]
            extern "C" fn exit(ctx: *mut c_void) -> u32 {
                returned(&RetProbeContext::new(ctx), EntryPointId::$id);
                0
            }
        };
    };
}

entry_points!(pairs);
