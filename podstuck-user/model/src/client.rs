//! Who has a connection to a daemon.

use serde::{Deserialize, Serialize};

use super::{identity::Component, time::Monotonic};

/// A process at the other end of a daemon's local sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Process id.
    pub pid: u32,
    /// When it was started.
    pub since: Monotonic,
    /// What it is on this node.
    pub component: Component,
    /// The name of its program and what it is to do, as in `docker volume create`: at most two words, of small
    /// letters only, before the first option. What follows may be a secret. Safe to be shown.
    pub command: String,
    /// How far it has come.
    pub request: Request,
}

/// How far a request has come, by the kernel's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// The daemon has not taken the connection.
    Pending,
    /// It has not read all that was sent.
    Unread,
    /// It has read all.
    Read,
}
