//! Syscall tracepoints. Layout of their context on 64-bit kernels (`struct syscall_trace_enter`
//! and `_exit` of kernel/trace/trace.h): 8 bytes of common fields, the call's number, then
//! arguments or result as 64-bit words from byte 16.

use core::ffi::c_void;

use aya_ebpf::{EbpfContext, macros::tracepoint, programs::TracePointContext};
use aya_log_ebpf::debug;
use podstuck_common::{entry_point::EntryPointId, entry_points, in_flight::AT_FDCWD, record::call};

use crate::probes::{
    enter::{deletion, rename},
    exit,
};

/// A word of the context.
#[inline(always)]
fn word(ctx: &TracePointContext, index: usize) -> u64 {
    // SAFETY: the verifier checks the access against the size of the tracepoint's context.
    unsafe { ctx.as_ptr().cast::<u64>().add(index).read() }
}

/// One program for each native system call.
macro_rules! entries {
    (
        native { $(
            $id:ident $name:literal: $call:ident, $_kernel:literal, $_numbers:tt,
            |$($argument:ident),*| $enter:ident($($value:expr),*);
        )* }
        $($_without_tracepoint:tt)*
    ) => { $(
        const _: () = {
            #[unsafe(export_name = concat!("enter_", $name))]
            #[unsafe(link_section = "tracepoint")]
            extern "C" fn enter(ctx: *mut c_void) -> u32 {
                let ctx = TracePointContext::new(ctx);
                let mut arguments = (2..).map(|index| word(&ctx, index));
                $(let $argument = arguments.next().unwrap_or_default();)*
                $enter(EntryPointId::$id, call::$call, $($value),*);
                0
            }
        };
    )* };
}

entry_points!(entries);

/// One program for all returns, since the verification of each takes time: the stored entry identifies the call.
#[tracepoint]
fn exit(ctx: TracePointContext) -> u32 {
    let (number, result) = (word(&ctx, 1) as u32, word(&ctx, 2) as i64);
    debug!(ctx, "system call {} returned {}", number, result);
    exit::finish_system_call(number, result);
    0
}
