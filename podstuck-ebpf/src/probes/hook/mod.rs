//! Where the handlers hang: one file for each form of hook.

mod arguments;
mod cast;
mod directory;
mod exec;
mod function;
mod io_uring;
mod tracepoint;
