//! podstuck's probes. On the host this crate is an empty program, so that `cargo test` and `cargo clippy`
//! cover the whole workspace.
#![cfg_attr(target_arch = "bpf", no_std, no_main, feature(asm_experimental_arch))]

#[cfg(target_arch = "bpf")]
mod probes;

#[cfg(not(target_arch = "bpf"))]
fn main() {}
