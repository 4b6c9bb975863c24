//! Ring records: the head, the names of the directory from the bottom up, and the argument.

use core::hint::black_box;

use aya_ebpf::helpers::generated;
use podstuck_common::{
    component::NAME_SIZE,
    record::{ARGUMENT_MAX, BASE_MAX, RecordHead, flaw, loss},
};

use super::{
    actor,
    maps::{EVENTS, count_loss},
    names::{NO_NAMES, write_names},
    returned::NOT_READ,
    scratch::{OFFSET_MASK, Scratch, TAIL_SIZE},
    slot::global_function,
};

/// Masks that give the verifier bounds, which always hold. The compiler would remove a mask that it can prove to be
/// redundant, hence `black_box`.
const SIZE_MASK: usize = 16383;

global_function! {
    /// Sends the call; returns 1 if the record fitted into the ring.
    pub(crate) fn send(slot, why, suppressed) -> u32 {
        actor::describe_caller(slot);
        let scratch = slot.scratch();
        write_head(scratch, why, suppressed);
        let has_place = !scratch.call.place.is_none();
        let mut end = if has_place { write_names(slot) } else { NO_NAMES };
        let scratch = slot.scratch();
        if end == NO_NAMES {
            scratch.head.flaws |= flaw::NO_DIRECTORY;
            end = 0;
        }
        scratch.head.base_len = end as u16;
        if scratch.call.argument == NOT_READ {
            scratch.head.flaws |= flaw::NO_ARGUMENT;
        } else {
            end = write_argument(end, scratch);
        }
        let size = (black_box(end) & SIZE_MASK) + size_of::<RecordHead>();
        if size > size_of::<RecordHead>() + TAIL_SIZE {
            return 0;
        }
        let map = (&raw const EVENTS).cast_mut().cast();
        let record = (&raw mut scratch.head).cast();
        // SAFETY: the map is a ring buffer; head and tail are adjacent initialised map memory.
        let sent = unsafe { generated::bpf_ringbuf_output(map, record, size as u64, 0) } == 0;
        if !sent {
            count_loss(loss::RING_FULL);
        }
        u32::from(sent)
    }
}

#[inline(always)]
fn write_head(scratch: &mut Scratch, why: u32, suppressed: u32) {
    let Scratch { call, head, .. } = scratch;
    let (dir_ino, dir_dev, mount_id) =
        if call.place.is_none() { (0, 0, 0) } else { call.place.numbers() };
    head.end_ns = call.now;
    head.duration_ns = call.duration_ns;
    head.target = call.trail.target;
    head.object = call.trail.path;
    head.dir_ino = dir_ino;
    head.tgid = call.process.tgid;
    head.tid = call.tid;
    head.flags = call.entry.flags;
    head.reason = why;
    head.dir_dev = dir_dev;
    head.mount_id = mount_id;
    head.suppressed = suppressed;
    head.depth = call.trail.depth;
    head.mount_depth = call.mount_depth;
    head.call = call.entry.call as u8;
    head.reserved = 0;
    head.errno = call.errno;
    head.flaws = 0;
    head.argument_len = 0;
}

/// Copies the argument after the names; returns the end.
#[inline(always)]
fn write_argument(end: usize, scratch: &mut Scratch) -> usize {
    let offset = black_box(end) & OFFSET_MASK;
    let len = black_box(scratch.call.argument as usize) & (ARGUMENT_MAX - 1);
    if offset > BASE_MAX + NAME_SIZE {
        return end;
    }
    // SAFETY: the tail has room for the longest names and argument, checked above.
    let to = unsafe { scratch.tail.as_mut_ptr().add(offset) };
    let begin = black_box(scratch.call.last as usize) & (ARGUMENT_MAX - 1);
    // SAFETY: within the argument.
    let from = unsafe { scratch.argument.as_ptr().cast::<u8>().add(begin) };
    // SAFETY: the tail has room for it; the helper checks the source.
    let copied =
        unsafe { generated::bpf_probe_read_kernel(to.cast(), len as u32, from.cast()) } == 0;
    if !copied {
        return end;
    }
    scratch.head.argument_len = len as u16;
    offset + len
}
