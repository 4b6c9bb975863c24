//! A process that is forked at the very beginning, while there is one thread, and that forks all other processes of
//! the tool: helpers, which read what may never answer, and writers, whose writes may never end. A thread that waits
//! in the kernel cannot be killed, and keeps its whole process from ending; a process can be left behind.
//!
//! Nothing is executed for that, so nothing is read from the disk of the tool itself: its code is in memory
//! ([`stay_in_memory`]), and a forked process shares it.

mod client;
mod hold;
pub mod lines;
mod protocol;
mod server;

pub use client::{Process, end, is_ready, limit, lost, spawn, start};
pub use hold::{Held, drop_at_once, hold, serve as serve_held};
pub use protocol::Work;

/// Locks the program, and the libraries loaded by now, in memory: pages read again from a disk that does not answer
/// would block the process that needs them. Later mappings are not locked. Call it before there are other processes.
pub fn stay_in_memory() {
    if let Err(error) = rustix::mm::mlockall(rustix::mm::MlockAllFlags::CURRENT) {
        tracing::info!("the program may have to be read from its disk again: {error}");
    }
}
