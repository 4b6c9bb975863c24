//! The decisions of podstuck, as a pure function of its input events.
//!
//! Nothing in this crate reads a clock, a file or `/proc`, or knows that a kernel is there: time and facts come
//! with [`event::Event`]s, and further facts are requested by a [`query::Query`], whose answer comes back as an
//! event. So a recorded run can be replayed, and a test needs no node.
//!
//! The [`engine`] passes each event to the trackers (`trackers`), each of which follows one kind of object. They
//! collect facts and ask; rules (`rules`), which are pure functions, draw the conclusions. The `ledger` keeps the
//! life cycle of the findings: new, updated, cleared.

pub use podstuck_model as model;
pub use podstuck_model::{bounded, cause, event, query};

pub mod catalogue;
pub mod ids;
pub mod versions;

pub mod aggregate;
pub mod backoff;
mod chain;
mod command;
mod container_stage;
mod kernel_lock;
mod kubelet_steps;
pub mod tracker;
mod unmounts;
mod verdict;
mod wait_channel;
mod waits;

mod family;

mod causes;
pub use causes::cluster;

pub mod engine;
mod hung_report;
mod lacking;
mod ledger;
pub mod rank;
mod release;
mod said;
mod stage;
mod where_next;

#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod testing;
