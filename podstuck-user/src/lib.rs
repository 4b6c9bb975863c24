//! podstuck: finds what keeps a pod Terminating, the process that does, and the command that releases it.
//!
//! Data flows one way through crates and modules, in this order; each uses only those before it: `podstuck_model`
//! (the shared types), `podstuck_confine` (privileges and other processes), then `podstuck_probe` (records and tables
//! from the kernel), `podstuck_node` (the owners of paths and processes, bounded scans of the node, answers) and
//! `podstuck_engine`, which are independent of each other; after them `podstuck_show`. Here `live` is a run, and
//! `commands` are the user's commands, with the crate `podstuck_lab`, which builds real cases to try it on.

pub use podstuck_engine::{engine, event, model, model::exit as outcome, query};

#[cfg(test)]
mod captures_tests;
#[cfg(test)]
mod walk_tests;

pub mod cli;
pub mod logging;

pub mod interrupt;
pub mod standard_output;

mod live;

pub mod commands;

mod json_schema;

pub use json_schema::schemas;
