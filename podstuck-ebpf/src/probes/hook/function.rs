//! The functions through which system calls enter the kernel, such as `__x64_sys_unlinkat`. Unlike their callees they
//! cannot be inlined, and a program on them does not slow down other calls.
//!
//! The 32-bit system calls of an x86-64 kernel have separate functions. They serve 32-bit programs, and `int 0x80` in
//! any program; syscall tracepoints do not show them (`arch_trace_is_compat_syscall`).

use core::ffi::c_void;

use aya_ebpf::{
    helpers::bpf_get_current_pid_tgid,
    macros::fexit,
    programs::{FEntryContext, FExitContext},
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
    maps::{AFTER_RETURN, count_loss},
};

/// The caller's saved registers.
#[inline(always)]
fn saved(ctx: &FEntryContext) -> &Registers {
    let saved: *const Registers = ctx.arg(0);
    // SAFETY: the kernel knows the type of the pointer and checks each access when it loads the program.
    unsafe { &*saved }
}

/// A call returns through this entry point.
///
/// The verification of each program takes time, and a kernel has up to twelve of these functions. So the processing
/// of a return is one program, which all of them tail-call: in the emulator the start takes 5.8 s instead of 14.7 s
/// on Linux 6.12.
#[inline(always)]
fn returned(ctx: &FExitContext, entry_point: EntryPointId) {
    if exit::is_of_others(bpf_get_current_pid_tgid()) {
        return;
    }
    if in_flight::is_in(entry_point) {
        // SAFETY: no value here needs to be dropped. The functions have the same type, so the arguments that the
        // target may read exist.
        unsafe { AFTER_RETURN.tail_call(ctx, 0) };
    }
    in_flight::forget();
    count_loss(loss::UNMATCHED_EXIT);
}

/// `bpf_get_func_ret` requires Linux 5.17. For a function with one argument, its result follows that argument in the
/// context in all kernels.
///
/// The program may be preempted and re-entered for another function: the kernel prevents that only for programs that
/// it calls directly. Since Linux 6.13, the frames of programs without a tail call are therefore in one place per CPU
/// (`bpf_enable_priv_stack`). So this program has a tail call too, which has no target.
#[fexit]
fn after_return(ctx: FExitContext) -> i32 {
    if !exit::finish_any(ctx.arg(1)) {
        // SAFETY: as in `returned`; the map has no second program.
        unsafe { AFTER_RETURN.tail_call(&ctx, 1) };
    }
    0
}

/// Both programs for the function of one system call.
macro_rules! pair {
    (
        $interface:ident, $id:ident, $name:literal, $call:ident,
        [$($argument:ident)*], $enter:ident, ($($value:expr),*)
    ) => {
        const _: () = {
            #[unsafe(export_name = concat!("fentry_", $name))]
            #[unsafe(link_section = "fentry")]
            extern "C" fn enter(ctx: *mut c_void) -> i32 {
                let [$($argument,)* ..] = arguments::$interface(saved(&FEntryContext::new(ctx)));
                $enter(EntryPointId::$id, call::$call, $($value),*);
                0
            }

            #[unsafe(export_name = concat!("fexit_", $name))]
            #[unsafe(link_section = "fexit")]
            extern "C" fn exit(ctx: *mut c_void) -> i32 {
                returned(&FExitContext::new(ctx), EntryPointId::$id);
                0
            }
        };
    };
}

entry_points!(pairs);
