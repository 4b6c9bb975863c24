//! The functions through which system calls enter the kernel, such as `__x64_sys_unlinkat`. Unlike
//! their callees they cannot be inlined, and a program on them costs no other call anything.

use aya_ebpf::{
    bindings::bpf_user_pt_regs_t as Registers,
    macros::{fentry, fexit},
    programs::{FEntryContext, FExitContext},
};
use podstuck_common::record::{call, loss};

use crate::{
    account, in_flight,
    maps::{AFTER_RETURN, lose},
    path::AT_FDCWD,
    rename,
    scratch::room,
};

/// The first four arguments of the call: the function's own argument is a pointer to the registers
/// that the caller left (`SC_X86_64_REGS_TO_ARGS` of arch/x86/include/asm/syscall_wrapper.h,
/// `SC_ARM64_REGS_TO_ARGS` of its counterpart).
#[inline(always)]
fn arguments(ctx: &FEntryContext) -> [u64; 4] {
    let saved: *const Registers = ctx.arg(0);
    // SAFETY: the kernel knows the type of the pointer and checks the access when it loads this.
    let saved = unsafe { &*saved };
    #[cfg(not(bpf_target_arch = "aarch64"))]
    return [saved.rdi, saved.rsi, saved.rdx, saved.r10];
    #[cfg(bpf_target_arch = "aarch64")]
    [saved.regs[0], saved.regs[1], saved.regs[2], saved.regs[3]]
}

/// The call for which an entry was noted in `room` returns.
///
/// The verifier takes its time for each program, and a kernel has up to twelve of these functions. So
/// what follows a return is one program, which all of them go on with: in the emulator the start takes
/// 5.8 s instead of 14.7 s on Linux 6.12.
#[inline(always)]
pub(super) fn returned(ctx: &FExitContext, room: u32) {
    if in_flight::is_in(room) {
        // SAFETY: nothing here needs to be dropped. The functions have the same type, so what that
        // program may read is there.
        unsafe { AFTER_RETURN.tail_call(ctx, 0) };
    }
    in_flight::forget();
    lose(loss::UNMATCHED_EXIT);
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
    if !account::finish_in_its_room(ctx.arg(1)) {
        // SAFETY: as in `returned`; the map has no second program.
        unsafe { AFTER_RETURN.tail_call(&ctx, 1) };
    }
    0
}

#[fentry]
fn fentry_umount2(ctx: FEntryContext) -> i32 {
    let [path, flags, ..] = arguments(&ctx);
    account::start(call::UMOUNT2, room::UMOUNT2, AT_FDCWD, path, flags as u32);
    0
}

#[fexit]
fn fexit_umount2(ctx: FExitContext) -> i32 {
    returned(&ctx, room::UMOUNT2);
    0
}

#[fentry]
fn fentry_unlink(ctx: FEntryContext) -> i32 {
    let [path, ..] = arguments(&ctx);
    account::start(call::UNLINK, room::UNLINK, AT_FDCWD, path, 0);
    0
}

#[fexit]
fn fexit_unlink(ctx: FExitContext) -> i32 {
    returned(&ctx, room::UNLINK);
    0
}

#[fentry]
fn fentry_unlinkat(ctx: FEntryContext) -> i32 {
    let [dirfd, path, flags, _] = arguments(&ctx);
    account::start(call::UNLINKAT, room::UNLINKAT, dirfd as i32, path, flags as u32);
    0
}

#[fexit]
fn fexit_unlinkat(ctx: FExitContext) -> i32 {
    returned(&ctx, room::UNLINKAT);
    0
}

#[fentry]
fn fentry_rmdir(ctx: FEntryContext) -> i32 {
    let [path, ..] = arguments(&ctx);
    account::start(call::RMDIR, room::RMDIR, AT_FDCWD, path, 0);
    0
}

#[fexit]
fn fexit_rmdir(ctx: FExitContext) -> i32 {
    returned(&ctx, room::RMDIR);
    0
}

#[fentry]
fn fentry_rename(ctx: FEntryContext) -> i32 {
    let [from, to, ..] = arguments(&ctx);
    rename::start(room::RENAME, (AT_FDCWD, from), (AT_FDCWD, to));
    0
}

#[fexit]
fn fexit_rename(ctx: FExitContext) -> i32 {
    returned(&ctx, room::RENAME);
    0
}

#[fentry]
fn fentry_renameat(ctx: FEntryContext) -> i32 {
    let [from_dir, from, to_dir, to] = arguments(&ctx);
    rename::start(room::RENAMEAT, (from_dir as i32, from), (to_dir as i32, to));
    0
}

#[fexit]
fn fexit_renameat(ctx: FExitContext) -> i32 {
    returned(&ctx, room::RENAMEAT);
    0
}

#[fentry]
fn fentry_renameat2(ctx: FEntryContext) -> i32 {
    let [from_dir, from, to_dir, to] = arguments(&ctx);
    rename::start(room::RENAMEAT2, (from_dir as i32, from), (to_dir as i32, to));
    0
}

#[fexit]
fn fexit_renameat2(ctx: FExitContext) -> i32 {
    returned(&ctx, room::RENAMEAT2);
    0
}
