//! The clients of a daemon.

use serde::{Deserialize, Serialize};

use super::{identity::Component, time::Monotonic};

/// A process at the other end of a daemon's local sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Process id.
    pub pid: u32,
    /// When it was started.
    pub since: Monotonic,
    /// The component that it belongs to.
    pub component: Component,
    /// Program and subcommand, such as `docker volume create`: at most two words of lower-case letters before the
    /// first option. Later arguments may be secrets. Safe to show.
    pub command: String,
    /// The state of its request.
    pub request: Request,
}

/// The state of a request, by the kernel's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// The daemon has not accepted the connection.
    Pending,
    /// The daemon has not read everything that was sent.
    Unread,
    /// The daemon has read everything.
    Read,
}
