//! Kinds of questions, by what may delay their answers.

use crate::degraded::Feed;

/// A kind of question. Each kind has its own concurrency limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One object by its inode: a helper process that takes milliseconds.
    Inode,
    /// `/proc` and `/sys`: no helper process.
    Tables,
    /// A directory, the mounts below it, sockets: a helper process that may read much.
    Places,
    /// kubelet's port: a helper process that waits for kubelet.
    Kubelet,
    /// A whole tree, which may take seconds.
    Trees,
    /// Holders: a search of all processes.
    Holders,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Inode, Self::Tables, Self::Places, Self::Kubelet, Self::Trees, Self::Holders];

    /// Concurrency limit. All but [`Self::Tables`] need a helper process, of which the fork server allows `MOST`;
    /// one search answers all questions about holders,
    /// and one read of kubelet's list those about its pods.
    pub const fn turns(self) -> usize {
        match self {
            Self::Tables => 4,
            Self::Inode | Self::Places | Self::Trees => 2,
            Self::Kubelet | Self::Holders => 1,
        }
    }

    /// The feed that depends on it.
    pub const fn feed(self) -> Feed {
        match self {
            Self::Holders => Feed::Holders,
            _ => Feed::Objects,
        }
    }
}
