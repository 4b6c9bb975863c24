//! Where a pod's name was read.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The source of a pod's name, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NameSource {
    /// The API server.
    Api,
    /// kubelet's log.
    Log,
    /// A directory of logs.
    LogDirectory,
    /// A service account's token in one of its volumes.
    Token,
    /// Its `etc-hosts`, which its containers may write.
    EtcHosts,
    /// The runtime's files about its containers.
    Runtime,
    /// Its host name, where it matches the requested name.
    HostName,
}

impl fmt::Display for NameSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Api => "the API server",
            Self::Log => "kubelet's log",
            Self::LogDirectory => "its directory of logs",
            Self::Token => "the service account's token in its volume",
            Self::EtcHosts => "its etc-hosts",
            Self::Runtime => "the runtime's record of its containers",
            Self::HostName => "its host name in etc-hosts, which does not show the namespace",
        })
    }
}
