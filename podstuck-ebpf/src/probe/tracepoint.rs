//! Syscall tracepoints. Layout of their context on 64-bit kernels (`struct syscall_trace_enter`
//! and `_exit` of kernel/trace/trace.h): 8 bytes of common fields, the call's number, then
//! arguments or result as 64-bit words from byte 16.

use aya_ebpf::{EbpfContext, macros::tracepoint, programs::TracePointContext};
use aya_log_ebpf::debug;
use podstuck_common::record::call;

use crate::{account, path::AT_FDCWD, scratch::room};

/// A word of the context.
#[inline(always)]
fn word(ctx: &TracePointContext, index: usize) -> u64 {
    // SAFETY: the verifier checks the access against the size of the tracepoint's context.
    unsafe { ctx.as_ptr().cast::<u64>().add(2 + index).read() }
}

#[inline(always)]
fn exit(ctx: &TracePointContext, room: u32, call: u8) -> u32 {
    let result = word(ctx, 0) as i64;
    debug!(ctx, "call {} returned {}", call, result);
    account::finish(room, call, result);
    0
}

#[tracepoint]
fn enter_umount2(ctx: TracePointContext) -> u32 {
    account::start(call::UMOUNT2, AT_FDCWD, word(&ctx, 0), word(&ctx, 1) as u32);
    0
}

#[tracepoint]
fn exit_umount2(ctx: TracePointContext) -> u32 {
    exit(&ctx, room::UMOUNT2, call::UMOUNT2)
}

#[tracepoint]
fn enter_unlink(ctx: TracePointContext) -> u32 {
    account::start(call::UNLINK, AT_FDCWD, word(&ctx, 0), 0);
    0
}

#[tracepoint]
fn exit_unlink(ctx: TracePointContext) -> u32 {
    exit(&ctx, room::UNLINK, call::UNLINK)
}

#[tracepoint]
fn enter_unlinkat(ctx: TracePointContext) -> u32 {
    account::start(call::UNLINKAT, word(&ctx, 0) as i32, word(&ctx, 1), word(&ctx, 2) as u32);
    0
}

#[tracepoint]
fn exit_unlinkat(ctx: TracePointContext) -> u32 {
    exit(&ctx, room::UNLINKAT, call::UNLINKAT)
}

#[tracepoint]
fn enter_rmdir(ctx: TracePointContext) -> u32 {
    account::start(call::RMDIR, AT_FDCWD, word(&ctx, 0), 0);
    0
}

#[tracepoint]
fn exit_rmdir(ctx: TracePointContext) -> u32 {
    exit(&ctx, room::RMDIR, call::RMDIR)
}
