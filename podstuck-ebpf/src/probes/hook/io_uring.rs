//! Deletions by io_uring, which do not enter the kernel through a system call of their own.

use aya_ebpf::{
    EbpfContext,
    macros::{fentry, fexit, tracepoint},
    programs::{FEntryContext, FExitContext, TracePointContext},
};
use podstuck_common::record::loss;

use crate::probes::{
    globals::{config, offsets},
    kernel::field,
    maps::count_loss,
    request,
};

/// On `int io_unlinkat(struct io_kiocb *req, unsigned int issue_flags)`.
#[fentry]
fn fentry_io_unlinkat(ctx: FEntryContext) -> i32 {
    request::start(ctx.arg(0));
    0
}

#[fexit]
fn fexit_io_unlinkat(ctx: FExitContext) -> i32 {
    request::finish(ctx.arg(0), ctx.arg(2));
    0
}

/// `IORING_OP_UNLINKAT` of include/uapi/linux/io_uring.h
const UNLINKAT: u8 = 36;

/// A request is queued for a worker, as all deletions are, because they may block (`io_unlinkat_prep` in
/// io_uring/fs.c). Where requests cannot be counted by their outcome, this counts them as losses, so that the counts
/// are not considered complete.
#[tracepoint]
fn io_uring_queued(ctx: TracePointContext) -> u32 {
    // Read with a helper: the offset is unknown at compile time, and the verifier permits no other access to the
    // context.
    if field::<u8>(ctx.as_ptr() as u64, offsets().io_uring_opcode) == Some(UNLINKAT)
        && ctx.tgid() != config().own_tgid
    {
        count_loss(loss::IO_URING);
    }
    0
}
