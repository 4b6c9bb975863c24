//! Deletions by io_uring, which enter the kernel by no system call of their own.

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

/// A request is handed to a worker, as all that delete are: they may block (`io_unlinkat_prep` in
/// io_uring/fs.c). Where requests cannot be counted, they are noticed, so that the counts are not taken
/// for complete.
#[tracepoint]
fn io_uring_queued(ctx: TracePointContext) -> u32 {
    // Read by a helper: the offset is not known when this is compiled, and the verifier lets no
    // other into its context.
    if field::<u8>(ctx.as_ptr() as u64, offsets().io_uring_opcode) == Some(UNLINKAT)
        && ctx.tgid() != config().own_tgid
    {
        count_loss(loss::IO_URING);
    }
    0
}
