//! The same for callers that use the 32-bit interface of an x86-64 kernel: 32-bit programs, and
//! `int 0x80` in any. Syscall tracepoints do not show them (`arch_trace_is_compat_syscall`).
//!
//! On arm64 both kinds of callers enter by the same functions.

use aya_ebpf::{
    bindings::bpf_user_pt_regs_t as Registers,
    macros::{fentry, fexit},
    programs::{FEntryContext, FExitContext},
};
use podstuck_common::record::call;

use super::function::returned;
use crate::{account, path::AT_FDCWD, scratch::room::FIRST_32};

/// The first three arguments of the call (`SC_IA32_REGS_TO_ARGS`), of which only the lower halves
/// are the caller's.
#[inline(always)]
fn arguments(ctx: &FEntryContext) -> [u64; 3] {
    let saved: *const Registers = ctx.arg(0);
    // SAFETY: the kernel knows the type of the pointer and checks the access when it loads this.
    let saved = unsafe { &*saved };
    [saved.rbx, saved.rcx, saved.rdx].map(|word| word & 0xffff_ffff)
}

#[fentry]
fn fentry_umount2_32(ctx: FEntryContext) -> i32 {
    let [path, flags, _] = arguments(&ctx);
    account::start(call::UMOUNT2, FIRST_32, AT_FDCWD, path, flags as u32);
    0
}

#[fexit]
fn fexit_umount2_32(ctx: FExitContext) -> i32 {
    returned(&ctx, FIRST_32);
    0
}

/// `umount(2)` without flags, which only this interface still has.
#[fentry]
fn fentry_umount_32(ctx: FEntryContext) -> i32 {
    let [path, ..] = arguments(&ctx);
    account::start(call::UMOUNT2, FIRST_32 + 1, AT_FDCWD, path, 0);
    0
}

#[fexit]
fn fexit_umount_32(ctx: FExitContext) -> i32 {
    returned(&ctx, FIRST_32 + 1);
    0
}

#[fentry]
fn fentry_unlink_32(ctx: FEntryContext) -> i32 {
    let [path, ..] = arguments(&ctx);
    account::start(call::UNLINK, FIRST_32 + 2, AT_FDCWD, path, 0);
    0
}

#[fexit]
fn fexit_unlink_32(ctx: FExitContext) -> i32 {
    returned(&ctx, FIRST_32 + 2);
    0
}

#[fentry]
fn fentry_unlinkat_32(ctx: FEntryContext) -> i32 {
    let [dirfd, path, flags] = arguments(&ctx);
    account::start(call::UNLINKAT, FIRST_32 + 3, dirfd as i32, path, flags as u32);
    0
}

#[fexit]
fn fexit_unlinkat_32(ctx: FExitContext) -> i32 {
    returned(&ctx, FIRST_32 + 3);
    0
}

#[fentry]
fn fentry_rmdir_32(ctx: FEntryContext) -> i32 {
    let [path, ..] = arguments(&ctx);
    account::start(call::RMDIR, FIRST_32 + 4, AT_FDCWD, path, 0);
    0
}

#[fexit]
fn fexit_rmdir_32(ctx: FExitContext) -> i32 {
    returned(&ctx, FIRST_32 + 4);
    0
}
