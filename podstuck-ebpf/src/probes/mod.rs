//! A call enters (`enter`) and returns (`exit`). It is counted (`account`, `count`), its directory is found (`path`,
//! `target`), and calls that user space must see at once (`report`) are sent (`ring_record`).
//!
//! The dependencies between the files have no cycles: `rooms.rs` of the tests checks that.
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
mod owner;
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

/// The verifier rejects a program that could panic, so this loop is never reached.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
