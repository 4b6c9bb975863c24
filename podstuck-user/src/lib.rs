//! podstuck: what keeps a pod Terminating, who does, and which command releases it.
//!
//! Data flows one way through these modules, in this order; each uses only those before it:
//! `model` (the words everybody speaks), the crate `podstuck_confine` (what the tool may do, and other processes),
//! the crate `podstuck_probe` (records and tables out of the kernel), `identity` (path and process to pod,
//! volume, component), `program` (where the node's programs are), `state` (bounded looks at the node), `scope`, `attribute`, `ask`, the engine,
//! then `recording`, `export`, `present` and `tui` (a terminal's screen), and what is made of runs that are over:
//! `report` and `compare`. `commands` wires them up, with the crate `podstuck_lab`,
//! which builds real cases to try it on.

pub use podstuck_engine::{engine, event, model, query};

pub mod identity;

mod program;
pub mod state;

mod attribute;
mod scope;

mod ask;
#[cfg(test)]
mod captures_tests;

pub mod export;
pub mod present;
pub mod recording;

mod tui;

pub mod compare;
pub mod report;

pub mod cli;
pub mod commands;
pub mod logging;
