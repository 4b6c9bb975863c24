//! podstuck: what keeps a pod Terminating, who does, and which command releases it.
//!
//! Data flows one way through these modules, in this order; each uses only those before it:
//! `model` (the words everybody speaks), `kernel` (load and attach), `source` (records and tables
//! out of the kernel), `decode`, `identity` (path and process to pod, volume, component),
//! `state` (bounded looks at the node), `attribute`, `aggregate`, `detect`, then `export` and
//! `present`. `lab` builds real cases to try it on. `commands` wires them up.

pub mod model;

pub mod kernel;
pub mod source;

pub mod decode;
pub mod identity;

pub mod state;

pub mod attribute;

pub mod aggregate;

pub mod detect;

pub mod export;
pub mod present;

pub mod lab;

pub mod cli;
pub mod commands;
pub mod logging;
