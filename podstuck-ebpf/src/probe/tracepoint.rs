//! Syscall tracepoints. Layout of their context on 64-bit kernels (`struct syscall_trace_enter`
//! and `_exit` of kernel/trace/trace.h): 8 bytes of common fields, the call's number, then
//! arguments or result as 64-bit words from byte 16.

use aya_ebpf::{EbpfContext, macros::tracepoint, programs::TracePointContext};
use aya_log_ebpf::debug;
use podstuck_common::record::call;

use crate::{account, path::AT_FDCWD, rename, scratch::room};

/// A word of the context.
#[inline(always)]
fn word(ctx: &TracePointContext, index: usize) -> u64 {
    // SAFETY: the verifier checks the access against the size of the tracepoint's context.
    unsafe { ctx.as_ptr().cast::<u64>().add(index).read() }
}

#[inline(always)]
fn number(ctx: &TracePointContext) -> u32 {
    word(ctx, 1) as u32
}

#[inline(always)]
fn argument(ctx: &TracePointContext, index: usize) -> u64 {
    word(ctx, 2 + index)
}

#[tracepoint]
fn enter_umount2(ctx: TracePointContext) -> u32 {
    let (path, flags) = (argument(&ctx, 0), argument(&ctx, 1) as u32);
    account::start(call::UMOUNT2, number(&ctx), AT_FDCWD, path, flags);
    0
}

#[tracepoint]
fn enter_unlink(ctx: TracePointContext) -> u32 {
    account::start(call::UNLINK, number(&ctx), AT_FDCWD, argument(&ctx, 0), 0);
    0
}

#[tracepoint]
fn enter_unlinkat(ctx: TracePointContext) -> u32 {
    let (dirfd, flags) = (argument(&ctx, 0) as i32, argument(&ctx, 2) as u32);
    account::start(call::UNLINKAT, number(&ctx), dirfd, argument(&ctx, 1), flags);
    0
}

#[tracepoint]
fn enter_rmdir(ctx: TracePointContext) -> u32 {
    account::start(call::RMDIR, number(&ctx), AT_FDCWD, argument(&ctx, 0), 0);
    0
}

#[tracepoint]
fn enter_rename(ctx: TracePointContext) -> u32 {
    let [from, to] = [argument(&ctx, 0), argument(&ctx, 1)];
    rename::start(number(&ctx), (AT_FDCWD, from), (AT_FDCWD, to));
    0
}

/// `renameat` and `renameat2`, which differ in an argument behind these.
#[tracepoint]
fn enter_renameat(ctx: TracePointContext) -> u32 {
    let from = (argument(&ctx, 0) as i32, argument(&ctx, 1));
    let to = (argument(&ctx, 2) as i32, argument(&ctx, 3));
    rename::start(number(&ctx), from, to);
    0
}

/// One program for all returns, since the verifier takes its time for each: the entry has noted
/// which call it is.
#[tracepoint]
fn exit(ctx: TracePointContext) -> u32 {
    let (number, result) = (number(&ctx), argument(&ctx, 0) as i64);
    debug!(ctx, "system call {} returned {}", number, result);
    account::finish(room::TRACEPOINT, number, result);
    0
}
