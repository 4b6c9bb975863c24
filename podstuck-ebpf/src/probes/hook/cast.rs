//! Tests whether the kernel lets programs load words from any address: user space loads this program but does not
//! attach it.

use aya_ebpf::{macros::tracepoint, programs::TracePointContext};

use crate::probes::{
    globals::offsets,
    kernel::{task, words},
};

#[tracepoint]
fn cast_probe(_ctx: TracePointContext) -> u32 {
    if offsets().words_type == 0 {
        return 0;
    }
    let [first] = words(task());
    u32::from(first != 0)
}
