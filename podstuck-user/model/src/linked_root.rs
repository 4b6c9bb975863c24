//! A kubelet's root directory that is reached by a symbolic link.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{node::NodeSample, raw_path};

/// A root whose name is not the path that mount tables have, which are without links.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkedRoot {
    /// As kubelet was told it.
    #[serde(with = "raw_path")]
    pub named: PathBuf,
    /// The first link on the way to it.
    #[serde(with = "raw_path")]
    pub link: PathBuf,
    /// Where it is.
    #[serde(with = "raw_path")]
    pub leads_to: PathBuf,
}

impl LinkedRoot {
    /// A path below it as mount tables have it.
    pub fn real(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.named)
            .map_or_else(|_| path.into(), |below| self.leads_to.join(below))
    }
}

impl NodeSample {
    /// The link by which the kubelet's root is reached that a path lies in, by either of its names.
    pub fn link_to(&self, path: &Path) -> Option<&LinkedRoot> {
        let is_in =
            |root: &&LinkedRoot| path.starts_with(&root.named) || path.starts_with(&root.leads_to);
        self.linked.iter().find(is_in)
    }
}
