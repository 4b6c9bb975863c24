//! A call is entered (`enter`) and returns (`exit`); what happened is counted (`account`, `count`), the directory
//! it happened in is found (`path`, `target`), and what user space must see at once (`report`) is
//! sent (`ring_record`).
//!
//! A file uses only those that do not use it: `rooms.rs` of the tests checks that.
#![expect(
    clippy::needless_borrows_for_generic_args,
    reason = "a value passed to a map by value is copied onto a stack of 512 bytes"
)]

mod account;
mod actor;
mod argument;
mod atomic;
mod claim;
mod count;
mod directory_cache;
mod enter;
mod exit;
mod failed;
mod failures;
mod globals;
mod hook;
mod in_flight;
mod kernel;
mod kernel_path;
mod last;
mod limit;
mod locate;
mod maps;
mod moved;
mod names;
mod noted;
mod path;
mod process;
mod rename;
mod report;
mod request;
mod returned;
mod ring_record;
mod roots;
mod scratch;
mod slot;
mod target;
mod walk;
mod words;

/// A program that could panic does not pass the verifier: this loop never ends, and is never reached.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
