//! podstuck's probes. A call is entered (`account::start`) and returns (`account::finish`); what
//! happened is counted (`count`), the directory it happened in is found (`path`, `target`), and
//! what user space must see at once (`tell`) is sent (`report`).
//!
//! On the host this crate is an empty program, so that `cargo test` and `cargo clippy` cover the
//! whole workspace.
#![cfg_attr(target_arch = "bpf", no_std, no_main, feature(asm_experimental_arch))]
#![cfg_attr(
    target_arch = "bpf",
    expect(
        clippy::needless_borrows_for_generic_args,
        reason = "a value passed to a map by value is copied onto a stack of 512 bytes"
    )
)]

#[cfg(target_arch = "bpf")]
mod account;
#[cfg(target_arch = "bpf")]
mod actor;
#[cfg(target_arch = "bpf")]
mod argument;
#[cfg(target_arch = "bpf")]
mod atomic;
#[cfg(target_arch = "bpf")]
mod count;
#[cfg(target_arch = "bpf")]
mod in_flight;
#[cfg(target_arch = "bpf")]
mod kernel;
#[cfg(target_arch = "bpf")]
mod limit;
#[cfg(target_arch = "bpf")]
mod locate;
#[cfg(target_arch = "bpf")]
mod maps;
#[cfg(target_arch = "bpf")]
mod memory;
#[cfg(target_arch = "bpf")]
mod names;
#[cfg(target_arch = "bpf")]
mod path;
#[cfg(target_arch = "bpf")]
mod place;
#[cfg(target_arch = "bpf")]
mod probe;
#[cfg(target_arch = "bpf")]
mod rename;
#[cfg(target_arch = "bpf")]
mod report;
#[cfg(target_arch = "bpf")]
mod request;
#[cfg(target_arch = "bpf")]
mod returned;
#[cfg(target_arch = "bpf")]
mod scratch;
#[cfg(target_arch = "bpf")]
mod target;
#[cfg(target_arch = "bpf")]
mod tell;
#[cfg(target_arch = "bpf")]
mod walk;

#[cfg(not(target_arch = "bpf"))]
fn main() {}

/// A program that could panic does not pass the verifier: there is no way out of this loop.
#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[cfg(target_arch = "bpf")]
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
