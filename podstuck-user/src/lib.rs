//! podstuck: what keeps a pod Terminating, who does, and which command releases it.
//!
//! Data flows one way through crates and modules, in this order; each uses only those before it: `podstuck_model` (the
//! words everybody speaks), `podstuck_confine` (what the tool may do, and other processes), then `podstuck_probe` (records
//! and tables out of the kernel), `podstuck_node` (whose paths and processes are, bounded looks at the node, answers) and
//! `podstuck_engine`, which do not know each other; after them `podstuck_show`. Here `live` is a run, and `commands` are
//! what a user starts, with the crate `podstuck_lab`, which builds real cases to try it on.

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
