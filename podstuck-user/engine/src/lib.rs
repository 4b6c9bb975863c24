//! What podstuck knows and decides, as a function of what it is told.
//!
//! Nothing in this crate reads a clock, a file or `/proc`, or knows that a kernel is there: time and
//! facts come with [`event::Event`]s, and what is wanted beside them is asked by a
//! [`query::Query`], whose answer comes back as an event. So a run that was recorded can be played
//! again, and a test needs no node.
//!
//! An event goes to the [`engine`], which shows it to the trackers (`trackers`, one kind of object
//! each). Those collect and ask; what it all means is said by rules (`rules`), which are pure functions.
//! The `ledger` gives what they say a life: new, updated, cleared.

pub use podstuck_model as model;
pub use podstuck_model::{bounded, cause, event, query};

pub mod catalogue;
pub mod ids;

pub mod aggregate;
pub mod backoff;
mod chain;
mod command;
mod container_stage;
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
mod said;
mod stage;
mod where_next;

#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod testing;
