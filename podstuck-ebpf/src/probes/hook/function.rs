//! The functions through which system calls enter the kernel, such as `__x64_sys_unlinkat`. Unlike
//! their callees they cannot be inlined, and a program on them costs no other call anything.
//!
//! The 32-bit system calls of an x86-64 kernel have functions of their own. They serve 32-bit programs,
//! and `int 0x80` in any; syscall tracepoints do not show them (`arch_trace_is_compat_syscall`).

use core::ffi::c_void;

use aya_ebpf::{
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

/// The registers that the caller left.
#[inline(always)]
fn saved(ctx: &FEntryContext) -> &Registers {
    let saved: *const Registers = ctx.arg(0);
    // SAFETY: the kernel knows the type of the pointer and checks each access when it loads this.
    unsafe { &*saved }
}

/// A call returns by this way.
///
/// The verifier takes its time for each program, and a kernel has up to twelve of these functions. So
/// what follows a return is one program, which all of them go on with: in the emulator the start takes
/// 5.8 s instead of 14.7 s on Linux 6.12.
#[inline(always)]
fn returned(ctx: &FExitContext, entry_point: EntryPointId) {
    if in_flight::is_in(entry_point) {
        // SAFETY: nothing here needs to be dropped. The functions have the same type, so what that
        // program may read is there.
        unsafe { AFTER_RETURN.tail_call(ctx, 0) };
    }
    in_flight::forget();
    count_loss(loss::UNMATCHED_EXIT);
}

/// `bpf_get_func_ret` would need Linux 5.17; behind the only argument of a function with one its
/// result stands in all kernels.
///
/// It may be preempted and run inside itself, for another function: the kernel keeps only the programs
/// that it enters by itself from that. From Linux 6.13 on their frames are therefore in one place for
/// each CPU (`bpf_enable_priv_stack`), but for programs with a tail call. So this one has one too, that
/// leads nowhere.
#[fexit]
fn after_return(ctx: FExitContext) -> i32 {
    if !exit::finish_any(ctx.arg(1)) {
        // SAFETY: as in `returned`; the map has no second program.
        unsafe { AFTER_RETURN.tail_call(&ctx, 1) };
    }
    0
}

/// Both programs on the function of one system call.
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
