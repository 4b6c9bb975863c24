//! Where the handlers hang: one file for each form of hook, nothing but one-line twins in it.

mod function;
#[cfg(bpf_target_arch = "x86_64")]
mod function_32;
mod io_uring;
mod tracepoint;
