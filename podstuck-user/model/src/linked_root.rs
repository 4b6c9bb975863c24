//! A kubelet root directory that is reached through a symbolic link.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{node::NodeSample, raw_path};

/// A root whose configured path differs from the path in mount tables, which have links resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkedRoot {
    /// The path in kubelet's configuration.
    #[serde(with = "raw_path")]
    pub named: PathBuf,
    /// The first symbolic link on that path.
    #[serde(with = "raw_path")]
    pub link: PathBuf,
    /// The resolved path.
    #[serde(with = "raw_path")]
    pub leads_to: PathBuf,
}

impl LinkedRoot {
    /// Converts a path below it to the form of mount tables.
    pub fn real(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.named)
            .map_or_else(|_| path.into(), |below| self.leads_to.join(below))
    }
}

impl NodeSample {
    /// The linked root that contains a path, by either of its names.
    pub fn link_to(&self, path: &Path) -> Option<&LinkedRoot> {
        let is_in =
            |root: &&LinkedRoot| path.starts_with(&root.named) || path.starts_with(&root.leads_to);
        self.linked.iter().find(is_in)
    }
}
