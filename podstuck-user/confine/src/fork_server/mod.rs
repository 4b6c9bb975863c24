//! A process that is forked at the very beginning, while there is one thread, and from which all other
//! processes of the tool are forked: helpers, which look at what may never answer, and writers, which write
//! where it may never end. A thread that waits in the kernel cannot be killed, and keeps its whole process
//! from ending; a process can be left behind.
//!
//! Nothing is executed for that, so nothing is read from the disk that the tool itself is on: its own code is
//! in memory ([`stay_in_memory`]), and that of a forked process is the same.

mod client;
mod hold;
pub mod lines;
mod protocol;
mod server;

pub use client::{Process, end, is_ready, limit, lost, spawn, start};
pub use hold::{Held, drop_at_once, hold, serve as serve_held};
pub use protocol::Work;

/// Keeps the program, and the libraries that it has by now, from being dropped from memory: read again from a
/// disk that does not answer, they would stop whoever needs them next. What comes to be later is not
/// concerned. To be called before there are other processes.
pub fn stay_in_memory() {
    if let Err(error) = rustix::mm::mlockall(rustix::mm::MlockAllFlags::CURRENT) {
        tracing::info!("the program may have to be read from its disk again: {error}");
    }
}
