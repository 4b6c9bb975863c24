//! Connects the stages, one file for each command.

mod away;
mod believed;
pub(crate) mod check;
pub mod compare;
pub mod diagnose;
pub mod doctor;
pub mod explain;
pub mod holders;
pub mod lab;
pub mod list;
pub mod man;
mod near;
pub mod npd;
pub mod replay;
pub mod report;
pub mod separate;
pub mod watch;
