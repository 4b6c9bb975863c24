//! `kubectl podstuck`: shows which objects of a cluster are being deleted but remain, and the cause of each.
//!
//! Data flows in one direction. [`read`] makes requests, within a budget; a refused request is data as well. The
//! decision is `podstuck_engine::cluster`, a pure function, which returns the questions that it still has.
//! [`present`] returns text. No module changes anything in the cluster, except that [`examine`], if requested,
//! creates and removes podstuck's own pod.

mod answers;
pub mod cli;
pub mod examine;
pub mod present;
pub mod progress;
mod ranking;
pub mod read;
mod recording;
pub mod run;
pub mod target;
pub mod watch;
