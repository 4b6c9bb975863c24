//! `kubectl podstuck`: what is being deleted in a cluster and does not go, each with what keeps it.
//!
//! Data flows one way. [`read`] makes requests, within a budget; what it was not permitted to read is data, too. The
//! decision is `podstuck_engine::cluster`, a pure function, which says what it lacks. [`present`] returns text. Nothing
//! here changes anything in the cluster, but that [`examine`], where it is asked for, has a pod of podstuck's own examine a node.

mod answers;
pub mod cli;
pub mod examine;
pub mod present;
pub mod read;
mod recording;
pub mod run;
pub mod target;
pub mod watch;
