//! Programs whose purpose is to unmount. Many hang before their `umount2`: util-linux first calls `stat` on the path,
//! which does not return from a dead file system.

use aya_ebpf::{
    EbpfContext,
    helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_ktime_get_ns},
    macros::tracepoint,
    programs::TracePointContext,
};
use podstuck_common::record::{RecordHead, call, loss};

use crate::probes::{
    actor,
    globals::config,
    maps::{EVENTS, count_loss},
    process,
};

/// `umount` and names that begin with it, such as `umount.nfs`: the first six bytes as a word.
const UMOUNT: u64 = u64::from_le_bytes(*b"umount\0\0");
const SIX_BYTES: u64 = 0xffff_ffff_ffff;
/// `fusermount`, `fusermount3`: the first eight bytes.
const FUSERMOUNT: u64 = u64::from_le_bytes(*b"fusermou");

/// A process has executed a program; its name is already the program's.
#[tracepoint]
fn executed(ctx: TracePointContext) -> u32 {
    let Ok(comm) = bpf_get_current_comm() else { return 0 };
    let [a, b, c, d, e, f, g, h, ..] = comm;
    let first = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    if (first & SIX_BYTES != UMOUNT && first != FUSERMOUNT) || ctx.tgid() == config().own_tgid {
        return 0;
    }
    let thread = bpf_get_current_pid_tgid();
    // SAFETY: made of integers without padding.
    let mut head: RecordHead = unsafe { core::mem::zeroed() };
    let is_main = thread as u32 == (thread >> 32) as u32;
    actor::describe(&mut head.actor, process::started(is_main), false);
    // SAFETY: no arguments.
    head.end_ns = unsafe { bpf_ktime_get_ns() };
    head.tgid = (thread >> 32) as u32;
    head.tid = thread as u32;
    head.call = call::EXEC;
    if EVENTS.output_untyped::<RecordHead>(&head, 0).is_err() {
        count_loss(loss::RING_FULL);
    }
    0
}
