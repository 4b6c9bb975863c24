//! Where the handlers hang: one file for each form of hook, nothing but one-line twins in it.

mod exec;
mod function;
#[cfg(not(bpf_target_arch = "aarch64"))]
mod function_32;
mod io_uring;
mod tracepoint;
